"""Word vectors from captions alone: counted and worked out by hand, and what they are good for."""

from __future__ import annotations

import numpy as np
import pytest

from vsemb.errors import InvalidArgumentError
from vsemb.text import Vocabulary, WordTokenizer, cooccurrence_vectors
from vsemb.text.cooccurrence import document_frequencies


def tokens(texts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(sum(texts, []), np.int32), np.cumsum([0, *map(len, texts)])


# Two captions, "a b" and "a b c", ids 2, 3, 4. Within a distance of 2 the pairs are a-b twice, b-c and
# a-c once, each in both orders: D = 8, #(a) = 3, #(b) = 3, #(c) = 2.
# PMI(a, b) = log(2 * 8 / 9), PMI(a, c) = PMI(b, c) = log(1 * 8 / 6).
TINY = tokens([[2, 3], [2, 3, 4]])
AB, AC = np.log(16 / 9), np.log(8 / 6)


@pytest.mark.parametrize(("shift", "ab", "ac"), [(1.0, AB, AC), (1.5, AB - np.log(1.5), 0.0)])
def test_information_by_hand(shift: float, ab: float, ac: float) -> None:
    vectors = cooccurrence_vectors(*TINY, vocabulary_size=5, dim=5, window=2, shift=shift)
    assert vectors.dtype == np.float32 and vectors.shape == (5, 5)
    wanted = np.zeros((5, 5))
    wanted[2, 3] = wanted[3, 2] = ab
    wanted[2, 4] = wanted[4, 2] = wanted[3, 4] = wanted[4, 3] = ac
    # With M = U S V^T, (U S^(1/2))(U S^(1/2))^T = U S U^T, whose square is M M^T, up to the scale.
    gram = vectors.astype(float) @ vectors.T.astype(float)
    square, wanted = gram @ gram, wanted @ wanted
    np.testing.assert_allclose(square / square.max(), wanted / wanted.max(), atol=1e-5)
    assert not vectors[:2].any() and not vectors[:, 3:].any()
    lengths = np.linalg.norm(vectors, axis=1)
    np.testing.assert_allclose(lengths[lengths > 0].mean(), 1, rtol=1e-6)
    assert (vectors[4] != 0).any() == (shift == 1.0)  # A word without information has a zero vector.


def test_a_window_ends_at_its_width_and_at_the_text() -> None:
    # Width 1: a-b and b-c are neighbours, a-c not, and c-d not since another text begins.
    vectors = cooccurrence_vectors(*tokens([[2, 3, 4], [5]]), vocabulary_size=6, dim=4, window=1)
    # a and c have one and the same neighbour, d none.
    np.testing.assert_allclose(vectors[2], vectors[4], atol=1e-6)
    assert not vectors[5].any() and vectors[3].any()


def test_unknown_words_are_no_neighbours_and_keep_their_place() -> None:
    plain = cooccurrence_vectors(*TINY, vocabulary_size=5, dim=3, window=2)
    # Unknown words at the ends change nothing; one in between, at width 1, parts the others.
    ends = tokens([[1, 2, 3, 1], [2, 3, 4, 1]])
    np.testing.assert_allclose(cooccurrence_vectors(*ends, 5, 3, window=2), plain, atol=1e-6)
    with pytest.raises(InvalidArgumentError, match="near others"):
        cooccurrence_vectors(*tokens([[2, 1, 3]]), vocabulary_size=5, dim=3, window=1)


def test_words_of_the_same_contexts_are_close() -> None:
    random = np.random.default_rng(3)
    kinds = [["crow", "raven", "rook"], ["rose", "tulip", "daisy"]]
    contexts = [["wings", "beak", "feathers", "tail"], ["petals", "stem", "leaves", "pollen"]]
    captions = []
    for _ in range(400):
        kind = random.integers(2)
        parts = random.choice(contexts[kind], 2, replace=False)
        captions.append(f"a {random.choice(kinds[kind])} with {parts[0]} and {parts[1]}")
    vocabulary = Vocabulary.from_captions(captions)
    encoded = WordTokenizer(vocabulary).encode(captions)
    vectors = cooccurrence_vectors(*encoded, vocabulary_size=len(vocabulary), dim=8)
    unit = vectors[2:] / np.linalg.norm(vectors[2:], axis=1, keepdims=True)
    row = {word: unit[number] for number, word in enumerate(vocabulary.words)}
    within = [row[a] @ row[b] for words in kinds for a in words for b in words if a != b]
    across = [row[a] @ row[b] for a in kinds[0] for b in kinds[1]]
    assert min(within) > max(across) + 0.5
    np.testing.assert_array_equal(cooccurrence_vectors(*encoded, len(vocabulary), 8), vectors)


def test_large_matrices_are_close_to_exact() -> None:
    # 200 words and 20 dimensions, so that the iteration works on 40 directions and not on all.
    random = np.random.default_rng(0)
    ids = np.minimum(random.zipf(1.3, 20_000), 198).astype(np.int32) + 1
    offsets = np.arange(0, 20_001, 10)
    every = cooccurrence_vectors(ids, offsets, 200, 200)
    few = cooccurrence_vectors(ids, offsets, 200, 20)
    strength = [np.linalg.norm(vectors, axis=0) ** 2 for vectors in (every, few)]
    # Both are scaled to mean length 1: compare the spectrum relative to its first value.
    exact, found = (values[:20] / values[0] for values in strength)
    assert exact[-1] > 0.05  # There is something to find in the last dimension.
    np.testing.assert_allclose(found, exact, rtol=0.02)
    np.testing.assert_allclose(np.abs(np.corrcoef(few[2:, :3].T, every[2:, :3].T)[:3, 3:]).diagonal(), 1, atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocabulary_size": 20_001}, "20000"),
        ({"vocabulary_size": 4}, "ids from 0 to 3"),
        ({"dim": 0}, "dim=0"),
        ({"window": 0}, "window=0"),
        ({"shift": 0.0}, "shift=0.0"),
    ],
)
def test_bad_arguments(arguments, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        cooccurrence_vectors(*TINY, **{"vocabulary_size": 5, "dim": 2, **arguments})


@pytest.mark.parametrize("texts", [[], [[2], [3]], [[1, 1]]])
def test_nothing_to_learn_from(texts: list[list[int]]) -> None:
    ids, offsets = tokens(texts)
    with pytest.raises(InvalidArgumentError, match="near others"):
        cooccurrence_vectors(ids.astype(np.int32), offsets, vocabulary_size=5, dim=2)


def test_document_frequencies_count_a_word_once_a_text() -> None:
    # Texts: [2, 2, 3], [], [3].
    counts = document_frequencies(np.array([2, 2, 3, 3]), np.array([0, 3, 3, 4]), 5)
    assert counts.tolist() == [0, 0, 1, 2, 0]

"""Word vectors from captions alone: counted and worked out by hand, and what they are good for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb import recipes
from vsemb.encoders import WordEmbedding
from vsemb.encoders.text_encoder import TextCorpus, WordVectors
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.text import Vocabulary, WordTokenizer
from vsemb.text.tokenizers import Words
from vsemb.text.word_vectors import cooccurrence_vectors, further_words, read_word_vectors


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
    with raises_argument("ids"):
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


@pytest.mark.slow
def test_large_matrices_are_close_to_exact() -> None:
    # 200 words and 20 dimensions, so that the iteration works on 40 directions and not on all.
    random = np.random.default_rng(0)
    ids = np.minimum(random.zipf(1.3, 20_000), 198).astype(np.int32) + 1
    offsets = np.arange(0, 20_001, 10)
    every = cooccurrence_vectors(ids, offsets, 200, 200)
    few = cooccurrence_vectors(ids, offsets, 200, 20)
    strength = [np.linalg.norm(vectors, axis=0) ** 2 for vectors in (every, few)]
    # Both are scaled to mean length 1: compare the spectrum relative to its first value.
    exact, approximate = (values[:20] / values[0] for values in strength)
    assert exact[-1] > 0.05  # There is something to find in the last dimension.
    np.testing.assert_allclose(approximate, exact, rtol=0.02)
    np.testing.assert_allclose(np.abs(np.corrcoef(few[2:, :3].T, every[2:, :3].T)[:3, 3:]).diagonal(), 1, atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"vocabulary_size": 20_001}, "vocabulary_size"),
        ({"vocabulary_size": 4}, "ids"),
        ({"dim": 0}, "dim"),
        ({"window": 0}, "window"),
        ({"shift": 0.0}, "shift"),
    ],
)
def test_bad_arguments(arguments, argument: str) -> None:
    with raises_argument(argument):
        cooccurrence_vectors(*TINY, **{"vocabulary_size": 5, "dim": 2, **arguments})


@pytest.mark.parametrize("texts", [[], [[2], [3]], [[1, 1]]])
def test_nothing_to_learn_from(texts: list[list[int]]) -> None:
    ids, offsets = tokens(texts)
    with raises_argument("ids"):
        cooccurrence_vectors(ids.astype(np.int32), offsets, vocabulary_size=5, dim=2)


VOCABULARY = Vocabulary(["a", "dog", "cat", "собака"])


def read(tmp_path, text: str | bytes, vocabulary: Vocabulary = VOCABULARY):
    path = tmp_path / "vectors.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_word_vectors(path, vocabulary)


@pytest.mark.parametrize(
    "text",
    [
        "dog 1 2 3\ncat 4 5 6\nсобака 7 8 9\nwolf 0 0 0\n",
        "4 3\ndog 1 2 3\ncat 4 5 6\nсобака 7 8 9\nwolf 0 0 0\n",  # word2vec: count and size first
        "dog 1 2 3 \ncat 4 5 6 \n\nсобака 7 8 9 \n",  # word2vec ends lines with a blank
        "dog 1 2 3\r\ncat 4 5 6\r\nсобака 7 8 9\r\n",
        "dog 1 2 3\ncat 4 5 6\n. . . 1 2 3\nсобака 7 8 9",  # GloVe has words with blanks
        "Dog 1.0 2e0 3\nCAT 4 5 6\nсобака 7 8 9\n",  # cased files serve lower-case vocabularies
    ],
)
def test_formats(tmp_path, text: str) -> None:
    vectors, count = read(tmp_path, text)
    assert vectors.dtype == np.float32 and vectors.shape == (6, 3)
    assert count == 3
    # Ids: 0 padding, 1 unknown, then a, dog, cat, собака.
    assert vectors[3:].tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert not vectors[0].any()


def test_missing_words_are_drawn_like_the_others(tmp_path) -> None:
    vocabulary = Vocabulary([f"w{i}" for i in range(4000)])
    text = "w0 1 10\nw1 3 10\n"  # mean (2, 10), deviation (1, 0)
    vectors, count = read(tmp_path, text, vocabulary)
    assert count == 2
    drawn = vectors[4:]
    # 4000 draws of deviation 1: the mean has deviation 0.016.
    np.testing.assert_allclose(drawn.mean(0), [2, 10], atol=0.08)
    np.testing.assert_allclose(drawn.std(0), [1, 0], atol=0.08)
    again, _ = read(tmp_path, text, vocabulary)
    np.testing.assert_array_equal(again, vectors)


def test_the_exact_word_goes_before_another_case(tmp_path) -> None:
    # Cased files are sorted by frequency, and the company comes before the fruit.
    vectors, count = read(tmp_path, "Dog 9 9\ndog 1 2\nDOG 8 8\ncat 3 4\n")
    assert vectors[3].tolist() == [1, 2]
    assert count == 2


def test_reserved_tokens_are_not_counted(tmp_path) -> None:
    vectors, count = read(tmp_path, "<unk> 5 6\n<pad> 7 8\ndog 1 2\n")
    assert count == 1
    assert vectors[0].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("dog 1 2\ncat 1\n", 2),
        ("a 1 2\n\ndog 1 x\n", 3),
        ("2 2\ndog 1 2\ncat nan 2\n", 3),
        ("dog 1 2\ncat 1 inf\n", 2),
        ("dog 1e999 2\n", 1),
        ("dog\n", 1),
    ],
)
def test_malformed_lines_are_named(tmp_path, text: str, line: int) -> None:
    with pytest.raises(DataError, match=f"vectors.txt, line {line}"):
        read(tmp_path, text)


@pytest.mark.parametrize("text", ["", "wolf 1 2\n", "0 2\n", b"\xff\xfe 1 2\n", "3 ²\n", f"3 {'9' * 5000}\n"])
def test_none_found(tmp_path, text) -> None:
    with raises_argument("word_vectors"):
        read(tmp_path, text)


def test_no_such_file(tmp_path) -> None:
    with pytest.raises(DataError, match="missing.txt"):
        read_word_vectors(tmp_path / "missing.txt", VOCABULARY)
    with pytest.raises(DataError):
        read_word_vectors(tmp_path, VOCABULARY)


def test_capitalised_words_in_an_uncased_file(tmp_path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("london 1 2\nApple 3 4\napple 5 6\n")
    vectors, count = read_word_vectors(path, Vocabulary(["London", "apple"]))
    assert count == 2 and vectors[2:].tolist() == [[1, 2], [5, 6]]


FILE_WORDS = ["the", "Dog", "zebra", "new_york", "café", "cat", "zebra's"]
FILE_VECTORS = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)


def write_text(path: Path, header: str = "") -> None:
    lines = [f"{word} {' '.join(map(str, row))}" for word, row in zip(FILE_WORDS, FILE_VECTORS.tolist(), strict=True)]
    path.write_text(header + "\n".join(lines) + "\n", encoding="utf-8")


def write_binary(path: Path, end: bytes = b"") -> None:
    rows = [word.encode() + b" " + row.tobytes() + end for word, row in zip(FILE_WORDS, FILE_VECTORS, strict=True)]
    path.write_bytes(b"7 3\n" + b"".join(rows))


def write_array(path: Path) -> None:
    np.save(path, FILE_VECTORS)
    path.with_suffix(".txt").write_text("\n".join(FILE_WORDS) + "\n", encoding="utf-8-sig")


FORMATS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "glove": ("glove.txt", write_text),
    "word2vec": ("words.w2v", lambda path: write_text(path, "7 3\n")),
    "fasttext": ("wiki.vec", lambda path: write_text(path, "7 3\n")),
    "word2vec-binary": ("words.bin", write_binary),
    "gensim-binary": ("words.bin", lambda path: write_binary(path, b"\n")),
    "npz": ("words.npz", lambda path: np.savez(path, words=np.array(FILE_WORDS), vectors=FILE_VECTORS)),
    "npy": ("words.npy", write_array),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_has_the_same_words_and_vectors(kind: str, tmp_path: Path) -> None:
    name, write = FORMATS[kind]
    write(tmp_path / name)
    vectors, count = read_word_vectors(tmp_path / name, Vocabulary(["dog", "café", "unicorn"]))
    assert count == 2
    np.testing.assert_array_equal(vectors[2:4], FILE_VECTORS[[1, 4]])
    assert further_words(tmp_path / name, Vocabulary(["dog"]), 10) == ["the", "zebra", "café", "cat"]
    assert further_words(tmp_path / name, Vocabulary(["dog"]), 2) == ["the", "zebra"]


def test_words_that_no_caption_has_get_their_vector(tmp_path: Path) -> None:
    write_text(tmp_path / "glove.txt")
    vocabulary = Words(words_of=str(tmp_path / "glove.txt"), most_added=2).learn(["a dog", "a cat"])
    assert vocabulary.words == ("a", "cat", "dog", "the", "zebra") and vocabulary.seen == 3
    vectors, count = read_word_vectors(tmp_path / "glove.txt", vocabulary)
    np.testing.assert_array_equal(vectors[vocabulary.ids["zebra"]], FILE_VECTORS[2])
    assert count == 4


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("words.bin", b"2 3\nthe 0123", "truncated"),
        ("words.bin", b"the 1 2 3\n", "count dim"),
        ("words.bin", (793712314).to_bytes(4, "little") + b"1234", r"\.vec"),
        ("words.vec", b"9 2\nthe 1 2\n\ndog 3 4\n", "words.vec.* 9 .*2"),
        ("words.npz", b"PK", "words.npz"),
        ("words.npy", b"x", "words.npy"),
    ],
)
def test_malformed_files_are_one_error(name: str, content: bytes, named: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=named):
        read_word_vectors(tmp_path / name, Vocabulary(["the"]))


def test_vectors_of_another_size_name_their_file_and_the_field(tmp_path: Path) -> None:
    write_text(tmp_path / "glove.txt")
    corpus = TextCorpus(Vocabulary(["the"]), np.array([2]), np.array([0, 1]), True, 0)
    words = WordVectors(dim=4, vectors=str(tmp_path / "glove.txt"))
    with pytest.raises(InvalidArgumentError, match="glove.txt") as raised:
        words.initialize(WordEmbedding(3, 4), corpus)
    assert raised.value.argument == "text.encoder.words.dim"


def test_words_without_vectors_are_not_added() -> None:
    with raises_argument("text.tokenizer.words_of"):
        recipes.get("vsepp").with_overrides(["text.tokenizer.words_of=glove.txt"])
    recipe = recipes.get("vsepp").with_overrides(
        ["text.tokenizer.words_of=glove.txt", "text.encoder.words.vectors=glove.txt"]
    )
    assert recipe.text.tokenizer.vectors_file == "glove.txt"

"""The generation of the supplement against a loop in NumPy, one caption at a time."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb.encoders import ImageEncoder, RecurrentSentenceEncoder, WordEmbedding
from vsemb.models import DualEncoder
from vsemb.systems.language.candidates import (
    RankingWeights,
    StructureContentCaptioner,
    first_of_each,
    ranking_scores,
    repetition_penalty,
)
from vsemb.systems.language.candidates import (
    _planned as planned,
)
from vsemb.systems.language.kneser_ney import KneserNeyTrigram
from vsemb.systems.language.multiplicative import Multiplicative
from vsemb.systems.language.structure_content import StructureContent
from vsemb.text import Vocabulary

WORDS = ("a", "dog", "cat", "runs", "'s", "red")
# The encoder has other ids, knows a word more and does not know "cat".
ENCODER_WORDS = ("runs", "red", "zebra", "a", "dog", "'s")
STOPWORDS = ("a", "the")
VOCABULARY, ENCODER_VOCABULARY = Vocabulary(WORDS), Vocabulary(ENCODER_WORDS)
DIM, FEATURES, TAGS = 5, 4, 3
SEQUENCES = np.array([[1, 2, 3, 0], [2, 2, 0, 0], [1, 3, 2, 1], [3, 1, 0, 0], [2, 1, 3, 0]], np.int32)
# Sums of some float32 terms of order 1, in another order.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def parts(kind: type = StructureContent) -> dict[str, Any]:
    """Random models, large enough in their weights for captions to differ, and what goes with them."""
    keras.utils.set_random_seed(4)
    more = {"tags": TAGS, "structure": 1} if kind is StructureContent else {}
    size = {"dim": 4, "context": 2, "content_dim": DIM, "factors": 6, "init_scale": 2.0}
    model = kind(len(VOCABULARY), **size, **more)
    model.build()
    words = WordEmbedding(len(ENCODER_VOCABULARY), 4, init_scale=1.0)
    encoder = DualEncoder(ImageEncoder(DIM), RecurrentSentenceEncoder(words, DIM, units=DIM))
    encoder.build({"image": (None, FEATURES), "text": (None, None)})
    rng = np.random.default_rng(2)
    lengths = rng.integers(2, 6, 30)
    ids = rng.integers(2, len(VOCABULARY), lengths.sum())
    return {
        "model": model,
        "encoder": encoder,
        "vocabulary": VOCABULARY,
        "encoder_vocabulary": ENCODER_VOCABULARY,
        "sequences": SEQUENCES,
        "words": encoder.encode_texts(np.arange(2, len(ENCODER_VOCABULARY))[:, None]).numpy(),
        "sentences": encoder.encode_texts(rng.integers(1, 8, (12, 3))).numpy(),
        "trigrams": KneserNeyTrigram.fit(ids, np.concatenate([[0], np.cumsum(lengths)]), len(VOCABULARY)),
        "stopwords": STOPWORDS,
        "weights": RankingWeights(1.0, 0.05),
    }


@pytest.fixture(scope="module")
def given() -> dict[str, Any]:
    return parts()


IMAGES = np.random.default_rng(5).normal(size=(4, FEATURES)).astype(np.float32)


def likeliest(model: Any, vector: np.ndarray, tags: np.ndarray) -> tuple[list[int], float]:
    """The likeliest of all word sequences of the length of `tags`."""
    length = int(np.count_nonzero(tags))
    texts = np.array(list(itertools.product(range(2, len(VOCABULARY)), repeat=length)), np.int32)
    inputs = {
        "text": texts,
        "content": np.tile(vector, (len(texts), 1)),
        "tags": np.tile(tags[:length], (len(texts), 1)),
    }
    sums = model.log_likelihoods(inputs).numpy().sum(axis=1)
    return texts[sums.argmax()].tolist(), float(sums.max())


def greedily(model: Any, vector: np.ndarray, tags: np.ndarray) -> tuple[list[int], float]:
    """One caption by calls of the whole model."""
    length = int(np.count_nonzero(tags))
    words: list[int] = []
    while True:
        text = np.array([[*words, *[2] * (length - len(words))]], np.int32)
        inputs = {"text": text, "content": vector[None], "tags": tags[None, :length]}
        if len(words) == length:
            return words, float(model.log_likelihoods(inputs).numpy().sum())
        words.append(int(model(inputs).numpy()[0, len(words), 2:].argmax()) + 2)


def slow_vectors(given: dict[str, Any], embedding: np.ndarray, neighbours: int) -> list[np.ndarray]:
    vectors = [embedding]
    for table in (given["words"], given["sentences"]):
        mean = table[np.argsort(-table @ embedding)[:neighbours]].mean(axis=0)
        vectors.append(mean / np.linalg.norm(mean))
    return vectors


def slow_captions(
    given: dict[str, Any], embedding: np.ndarray, candidates: int, search: Any
) -> dict[str, tuple[float, float]]:
    """Text -> score and log-probability; the first of equal captions, by longer sequences first."""
    vectors = slow_vectors(given, embedding, 2)
    sequences = SEQUENCES[: -(-candidates // 3)]
    order = sorted(range(len(sequences)), key=lambda row: -np.count_nonzero(sequences[row]))
    weights, captions = given["weights"], {}
    for number in range(min(candidates, 3 * len(sequences))):
        words, log_prob = search(given["model"], vectors[number % 3], sequences[order[number // 3]])
        texts = [WORDS[word - 2] for word in words]
        known = [ENCODER_WORDS.index(text) + 2 if text in ENCODER_WORDS else 1 for text in texts]
        cosine = float(given["encoder"].encode_texts(np.array([known])).numpy()[0] @ embedding)
        times = max((texts.count(text) for text in texts if text not in STOPWORDS), default=1)
        cosine = cosine / times if cosine > 0 else cosine * times
        language = float(given["trigrams"].log_probs([words])[0])
        score = weights.translation * cosine + weights.language * language
        captions.setdefault(" ".join(texts).replace(" '", "'"), (score, log_prob))
    return captions


@pytest.fixture(scope="module")
def captioner(given) -> StructureContentCaptioner:
    """Writes all that there is. Its graph takes seconds, so that several tests ask the one."""
    return StructureContentCaptioner(**given, candidates=100, neighbours=2, n_best=20)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("beam", "search", "candidates"),
    # Six words: a beam of 6 ** 3 loses no sequence of up to four. Seven candidates are no multiple of three vectors.
    [(1, greedily, 100), (216, likeliest, 7)],
)
def test_equals_one_caption_after_the_other(given, captioner, beam: int, search: Any, candidates: int) -> None:
    if (beam, candidates) != (captioner.beam, captioner.candidates):
        options = {"beam": beam, "candidates": candidates, "neighbours": 2, "n_best": 20}
        captioner = StructureContentCaptioner(**given, **options)
    texts, log_probs = captioner(IMAGES[:2])
    assert (texts.shape, log_probs.shape, log_probs.dtype) == ((2, 20), (2, 20), tf.float32)
    for row, embedding in enumerate(given["encoder"].encode_images(IMAGES[:2]).numpy()):
        expected = slow_captions(given, embedding, candidates, search)
        ordered = sorted(expected, key=lambda text: -expected[text][0])
        captions = [text.decode() for text in texts[row].numpy()]
        assert captions[: len(ordered)] == ordered
        assert not any(captions[len(ordered) :])
        np.testing.assert_allclose(log_probs[row, : len(ordered)], [expected[text][1] for text in ordered], **CLOSE)
        assert not log_probs[row, len(ordered) :].numpy().any()


def test_sampled_candidates_are_each_of_a_vector_and_a_sequence(given) -> None:
    sequences, which, sources = planned(SEQUENCES, 3000, sampled=True)
    # 15 pairs of five sequences and three vectors, 200 each; the standard deviation is 13.7.
    pairs = np.bincount(3 * which + sources, minlength=15)
    assert len(pairs) == 15 and pairs.min() > 130 and pairs.max() < 270
    assert (np.diff(np.count_nonzero(sequences, axis=1)[which]) <= 0).all()
    captioner = StructureContentCaptioner(**given, candidates=4, sampled=True, neighbours=2, n_best=4)
    sequences, which, sources = planned(SEQUENCES, 4, sampled=True)
    embedding = given["encoder"].encode_images(IMAGES[:1])[0]
    vectors = slow_vectors(given, embedding.numpy(), 2)
    drawn = [greedily(given["model"], vectors[v], sequences[s]) for s, v in zip(which, sources, strict=True)]
    candidates = captioner.write(embedding)
    assert {tuple(ids[ids > 0]) for ids in candidates.ids.numpy()} == {tuple(words) for words, _ in drawn}


def test_the_parts_of_a_score(given, captioner) -> None:
    embedding = given["encoder"].encode_images(IMAGES[:1])[0]
    candidates = captioner.write(embedding)
    expected = slow_vectors(given, embedding.numpy(), 2)
    np.testing.assert_allclose(captioner.vectors(embedding), expected, **CLOSE)
    rows = {tuple(ids) for ids in candidates.ids.numpy()}
    assert len(rows) == len(candidates.ids) == len(candidates.cosine) == len(candidates.language)
    assert candidates.ids.numpy().min() >= 0
    assert not (candidates.ids.numpy() == 1).any()
    assert (np.diff(np.count_nonzero(candidates.ids, axis=1)) <= 0).all()
    assert (np.abs(candidates.cosine) <= 1 + 1e-6).all()


def test_images_do_not_see_each_other(captioner) -> None:
    together = captioner(IMAGES)
    # Captions that are the same for all images would show nothing.
    assert len({tuple(row) for row in together.texts.numpy()}) >= 3
    for row, image in enumerate(IMAGES):
        alone = captioner(image[None])
        np.testing.assert_array_equal(alone.texts[0], together.texts[row])
        # A product of float32 depends in its last bits on the rows beside it, on processors without AVX-512.
        np.testing.assert_allclose(alone.log_probs[0], together.log_probs[row], rtol=1e-6)
    none = captioner(IMAGES[:0])
    assert (none.texts.shape, none.log_probs.shape) == ((0, 20), (0, 20))


def test_a_model_without_parts_of_speech_takes_the_lengths() -> None:
    given = {**parts(Multiplicative), "sequences": np.tril(np.ones((4, 4), np.int32))[::-1]}
    captioner = StructureContentCaptioner(**given, n_best=12)
    texts, _ = captioner(IMAGES[:1])
    lengths = {len(text.replace(b"'", b" '").split()) for text in texts.numpy()[0] if text}
    assert lengths == {1, 2, 3, 4}


@pytest.mark.slow
def test_a_saved_model_writes_the_same(captioner, tmp_path: Path) -> None:
    caption = tf.function(
        lambda images: captioner(images)._asdict(),
        autograph=False,
        input_signature=[tf.TensorSpec((None, FEATURES), tf.float32)],
    ).get_concrete_function()
    holder = tf.Module()
    # All that is read is found this way, as an export does.
    holder.weights = list(caption.graph.variables)
    tf.saved_model.save(holder, tmp_path / "model", signatures={"caption": caption})
    again = tf.saved_model.load(tmp_path / "model").signatures["caption"]
    for rows in (4, 1, 0):
        outputs, expected = again(tf.constant(IMAGES[:rows])), captioner(IMAGES[:rows])
        np.testing.assert_array_equal(outputs["texts"], expected.texts)
        np.testing.assert_allclose(outputs["log_probs"], expected.log_probs, **CLOSE)


@pytest.mark.parametrize("name", ["n_best", "candidates", "neighbours", "beam"])
def test_numbers_out_of_range_are_refused(given, name: str) -> None:
    with raises_argument(name):
        StructureContentCaptioner(**given, **{name: 0})


@pytest.mark.parametrize("sequences", [np.zeros((0, 4)), np.zeros((2, 4)), np.ones(3)])
def test_sequences_that_are_none_are_refused(given, sequences: np.ndarray) -> None:
    with raises_argument("sequences"):
        StructureContentCaptioner(**{**given, "sequences": sequences})


# Ids: 0 padding, 1 unknown, 2 a stop word, 3 and up the others.
STOP = np.array([False, False, True, False, False, False])


@pytest.mark.parametrize(
    ("ids", "penalty"),
    [
        ([3, 4, 5, 0, 0], 1),
        ([3, 4, 3, 0, 0], 1 / 2),
        ([3, 3, 3, 4, 4], 1 / 3),  # The most repeated word alone counts.
        ([2, 2, 2, 3, 0], 1),
        ([0, 0, 0, 0, 0], 1),
    ],
)
def test_repetition(ids: list[int], penalty: float) -> None:
    np.testing.assert_allclose(repetition_penalty([ids], STOP), [penalty], rtol=1e-6)
    # Rows do not see each other.
    beside = repetition_penalty([[5, 5, 5, 5, 5], ids], STOP)
    np.testing.assert_allclose(beside, [1 / 5, penalty], rtol=1e-6)


def test_scores_by_hand() -> None:
    cosine, penalty = tf.constant([0.6, 0.6, -0.2]), tf.constant([1.0, 0.5, 0.5])
    language, targets = tf.constant([-10.0, -8.0, -8.0]), tf.constant([5.0, 4.0, 4.0])
    parts = (cosine, penalty, language, targets)
    # 2 x 0.6 - 0.1 x 10; 2 x 0.6 x 0.5 - 0.1 x 8; a negative cosine gets worse: -2 x 0.2 / 0.5 - 0.8
    np.testing.assert_allclose(ranking_scores(*parts, RankingWeights(2, 0.1)), [0.2, -0.2, -1.6], rtol=1e-5)
    # A word at a time: 1.2 - 0.1 x 2; 0.6 - 0.2; -0.8 - 0.2
    per_word = ranking_scores(*parts, RankingWeights(2, 0.1, per_word=True))
    np.testing.assert_allclose(per_word, [1.0, 0.4, -1.0], rtol=1e-5)


def test_more_repetition_is_never_better() -> None:
    for cosine in (0.5, -0.5):
        penalties = tf.constant([1.0, 1 / 2, 1 / 3, 1 / 4])
        same = tf.fill([4], cosine)
        scores = ranking_scores(same, penalties, 0 * same, 1 + 0 * same, RankingWeights())
        assert (np.diff(scores) < 0).all()


def test_the_first_of_each_row() -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 3, (60, 3)).astype(np.int32)
    expected = [row for row in range(60) if ids[row].tolist() not in ids[:row].tolist()]
    np.testing.assert_array_equal(first_of_each(tf.constant(ids)), expected)


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_weights_out_of_range_are_refused(value: float) -> None:
    with raises_argument("language"):
        RankingWeights(language=value)

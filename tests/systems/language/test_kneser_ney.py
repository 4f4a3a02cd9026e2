"""Kneser-Ney trigrams against the oracle by hand and against a model of dictionaries, word by word."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.oracles import TOLERANCE, oracle
from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.systems.language.kneser_ney import KneserNeyTrigram

CASE = oracle("kneser_ney_trigram")
# Logarithms of order 1 to 50 in float32.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def fitted(sentences: Sequence[Sequence[int]], vocabulary_size: int, discount: float = 0.75):
    ids = np.array([word for sentence in sentences for word in sentence], np.int32)
    offsets = np.cumsum([0, *map(len, sentences)])
    return KneserNeyTrigram.fit(ids, offsets, vocabulary_size, discount)


def padded(sentences: Sequence[Sequence[int]]) -> np.ndarray:
    rows = np.zeros((len(sentences), max(map(len, sentences))), np.int32)
    for row, sentence in zip(rows, sentences, strict=True):
        row[: len(sentence)] = sentence
    return rows


class Slow:
    """The equations over dictionaries; words are anything that can be compared."""

    def __init__(self, sentences: Sequence[Sequence], discount: float) -> None:
        self.discount = discount
        self.counts: Counter = Counter()
        for sentence in sentences:
            marked = ["<s>", "<s>", *sentence, "</s>"]
            self.counts.update(zip(marked, marked[1:], marked[2:], strict=False))
        self.before: dict = defaultdict(set)
        for u, v, w in self.counts:
            self.before[v, w].add(u)
        self.words: Counter = Counter(w for _, w in self.before)

    def probability(self, w, *context) -> float:
        if not context:
            return self.words.get(w, 1 - self.discount) / sum(self.words.values())
        if len(context) == 2:
            seen = {key[2]: count for key, count in self.counts.items() if key[:2] == context}
        else:
            seen = {key[1]: len(words) for key, words in self.before.items() if key[0] == context[0]}
        shorter = self.probability(w, *context[1:])
        if not seen:
            return shorter
        total = sum(seen.values())
        left = self.discount * len(seen) / total
        return max(seen.get(w, 0) - self.discount, 0) / total + left * shorter

    def log_probs(self, sentence: Sequence) -> list[float]:
        marked = ["<s>", "<s>", *sentence, "</s>"]
        triples = zip(marked, marked[1:], marked[2:], strict=False)
        return [math.log(self.probability(w, u, v)) for u, v, w in triples]


def random_sentences(seed: int, count: int, words: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(1, words, rng.integers(0, 7)).tolist() for _ in range(count)]


IDS = {word: place for place, word in enumerate(CASE.expected["vocabulary"][1:], start=2)}


@pytest.fixture(scope="module")
def model() -> KneserNeyTrigram:
    sentences = [[IDS[word] for word in text.split()] for text in CASE.inputs["sentences"]]
    return fitted(sentences, len(IDS) + 2, CASE.inputs["discount"])


class TestOracle:
    @pytest.mark.parametrize("text", CASE.expected["logprob"])
    def test_sentences(self, model: KneserNeyTrigram, text: str) -> None:
        logarithms = model.log_probs([[IDS[word] for word in text.split()]])
        np.testing.assert_allclose(logarithms, [CASE.expected["logprob"][text]], **TOLERANCE)

    @pytest.mark.parametrize(
        ("context", "key"),
        [
            ("a dog", "p(runs|a dog)"),
            ("the dog", "p(sleeps|the dog)"),
            ("the cat", "p(runs|the cat)_backed_off"),
        ],
    )
    def test_words(self, model: KneserNeyTrigram, context: str, key: str) -> None:
        word = key[2:].split("|")[0]
        logarithms = model.word_log_probs([[IDS[each] for each in [*context.split(), word]]])
        np.testing.assert_allclose(np.exp(logarithms[0, 2]), CASE.expected[key], **TOLERANCE)

    def test_single_words(self, model: KneserNeyTrigram) -> None:
        expected = CASE.expected["p_uni_continuation"]
        values = model.arrays()["word_values"]
        np.testing.assert_allclose(values[0], expected["</s>"], **TOLERANCE)
        for word, place in IDS.items():
            np.testing.assert_allclose(values[place], expected[word], **TOLERANCE)


@pytest.mark.parametrize("discount", [0.75, 0.1, 0.95])
def test_equals_the_dictionaries(discount: float) -> None:
    training = random_sentences(1, 40, 8)
    model, slow = fitted(training, 8, discount), Slow(training, discount)
    tested = [[], *random_sentences(2, 40, 8)]
    logarithms = model.word_log_probs(padded(tested)).numpy()
    for row, sentence in zip(logarithms, tested, strict=True):
        np.testing.assert_allclose(row[: len(sentence) + 1], slow.log_probs(sentence), **CLOSE)
        assert not row[len(sentence) + 1 :].any()
    np.testing.assert_allclose(model.log_probs(padded(tested)), logarithms.sum(axis=1), **CLOSE)


def test_probabilities_sum_to_one_over_the_words_seen() -> None:
    training = random_sentences(3, 30, 6)
    model = fitted(training, 6)
    assert {word for sentence in training for word in sentence} == {1, 2, 3, 4, 5}
    for context in itertools.product(range(1, 6), repeat=2):
        ends = np.exp(model.word_log_probs([context])[0, 2])
        words = np.exp(model.word_log_probs([[*context, word] for word in range(1, 6)])[:, 2])
        # Six float32 probabilities.
        assert ends + words.sum() == pytest.approx(1, abs=1e-6)


def test_a_word_never_seen_is_less_likely_than_any_that_was() -> None:
    model = fitted([[2, 3], [3, 2, 2]], 6)
    values = model.arrays()["word_values"]
    # Seven pairs were seen: <s> 2, <s> 3, 2 3, 3 </s>, 3 2, 2 2, 2 </s>; (1 - 0.75) / 7.
    np.testing.assert_allclose(values[4:], 0.25 / 7, **CLOSE)
    assert values[[0, 2, 3]].min() > values[4]
    assert np.isfinite(model.log_probs([[4, 5, 1], [2, 4, 3]])).all()


def test_padding_and_the_order_of_rows_change_nothing() -> None:
    model = fitted(random_sentences(4, 30, 7), 7)
    rows = padded(random_sentences(5, 9, 7))
    alone = model.log_probs(rows).numpy()
    np.testing.assert_array_equal(model.log_probs(np.pad(rows, [[0, 0], [0, 4]])), alone)
    np.testing.assert_array_equal(model.log_probs(rows[::-1]), alone[::-1])
    assert model.log_probs(rows[:0]).shape == (0,)


def test_arrays_come_back() -> None:
    training = random_sentences(6, 20, 7)
    model, rows = fitted(training, 7), padded(training)
    again = KneserNeyTrigram(model.arrays())
    assert again.vocabulary_size == 7
    np.testing.assert_array_equal(again.log_probs(rows), model.log_probs(rows))


def test_a_saved_model_scores_the_same(tmp_path: Path) -> None:
    training = random_sentences(7, 20, 7)
    model = fitted(training, 7)
    model.score = tf.function(model.log_probs, autograph=False, input_signature=[tf.TensorSpec((None, None), tf.int32)])
    tf.saved_model.save(model, tmp_path / "model")
    again = tf.saved_model.load(tmp_path / "model")
    np.testing.assert_array_equal(again.score(padded(training)), model.log_probs(padded(training)))


def test_large_ids_do_not_collide() -> None:
    most = 1 << 21
    model = fitted([[most - 1, most - 2, most - 1]], most)
    same, other = model.log_probs([[most - 1, most - 2, most - 1], [most - 2, most - 1, most - 2]])
    assert same > other


def test_thirty_thousand_sentences_take_a_second_or_so() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 15, 30_000)
    ids = np.minimum(rng.zipf(1.3, lengths.sum()), 7_999)
    start = time.process_time()
    KneserNeyTrigram.fit(ids, np.concatenate([[0], np.cumsum(lengths)]), 8_000)
    # A fraction of a second by itself; a loop over words takes more than ten.
    assert time.process_time() - start < 5


@pytest.mark.parametrize("discount", [0, 1, -0.5, float("nan")])
def test_discounts_out_of_range_are_refused(discount: float) -> None:
    with raises_argument("discount"):
        fitted([[2]], 3, discount)


def test_bad_arguments_are_refused() -> None:
    with raises_argument("ids"):
        fitted([[3]], 3)
    with raises_argument("ids"):
        fitted([[0]], 3)
    with raises_argument("vocabulary_size"):
        fitted([[2]], (1 << 21) + 1)
    with raises_argument("offsets"):
        KneserNeyTrigram.fit(np.zeros(0, int), np.zeros(1, int), 3)


def test_arrays_that_do_not_belong_together_are_refused() -> None:
    arrays = fitted([[2, 3]], 4).arrays()
    with pytest.raises(DataError, match="bigram_keys"):
        KneserNeyTrigram({name: array for name, array in arrays.items() if name != "bigram_keys"})
    for name, broken in {
        "trigram_keys": arrays["trigram_keys"][::-1],
        "bigram_values": arrays["bigram_values"][1:],
        "word_weights": arrays["word_weights"][:, None],
    }.items():
        with pytest.raises(DataError):
            KneserNeyTrigram({**arrays, name: broken})

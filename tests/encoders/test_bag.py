"""The weighted bag of words, and the sum of it and a sequence encoder."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from tests.contract import check_layer, check_padding
from tests.raising import raises_argument
from vsemb.encoders import (
    BagOfWordsEncoder,
    LinearSentenceEncoder,
    RecurrentSentenceEncoder,
    SequenceAndBagEncoder,
    WordEmbedding,
)

IDS = np.array([[2, 3, 3], [5, 0, 0], [4, 1, 0]], np.int32)


def make_bag(dtype: str = "float32", dim: int = 4) -> BagOfWordsEncoder:
    bag = BagOfWordsEncoder(WordEmbedding(6, dim, dtype=dtype, init_scale=0.5), dropout=0.4, dtype=dtype)
    bag.set_document_frequencies(np.array([0, 0, 9, 3, 1, 1]), 10)
    return bag


def make_hybrid(dtype: str = "float32") -> SequenceAndBagEncoder:
    words = WordEmbedding(6, 3, dtype=dtype, init_scale=0.5)
    sequence = RecurrentSentenceEncoder(words, 4, units=4, pooling="mean", dtype=dtype)
    return SequenceAndBagEncoder(sequence, make_bag(dtype), dtype=dtype)


@pytest.mark.parametrize("make", [make_bag, make_hybrid])
def test_contract(make, tmp_path) -> None:
    keras.utils.set_random_seed(0)
    check_layer(make, [IDS], tmp_path, sequence=True)
    check_padding(make(), IDS)


def test_weights_by_hand() -> None:
    bag = BagOfWordsEncoder(WordEmbedding(4, 1))
    bag.words.set_vectors(np.array([[9.0], [0.0], [1.0], [1.0]]))
    # Of 7 captions one has word 1 (unknown), 3 word 2, all 7 word 3: log 4, log 2, log 1 = 0,
    # that is 2, 1, 0 times log 2; their mean is log 2, so these are the weights.
    bag.set_document_frequencies(np.array([0, 1, 3, 7]), 7)
    np.testing.assert_allclose(bag.rarity[1:], [2.0, 1.0, 0.0], rtol=1e-6)
    np.testing.assert_allclose(bag(np.array([[2, 2, 3, 0]])), [[2.0]], rtol=1e-6)
    # An unknown word that training never saw says nothing: weights 0, 1, 0 over their mean 1/3 log 2.
    bag.set_document_frequencies(np.array([0, 0, 3, 7]), 7)
    np.testing.assert_allclose(bag.rarity[1:], [0.0, 3.0, 0.0], rtol=1e-6)


def test_wrong_counts() -> None:
    with raises_argument("counts"):
        make_bag().set_document_frequencies(np.zeros(5), 3)


def test_both_parts_count_the_same_at_the_start() -> None:
    keras.utils.set_random_seed(0)
    words = WordEmbedding(6, 4, init_scale=5.0)
    sequence, bag = LinearSentenceEncoder(words, "mean"), make_bag()
    hybrid = SequenceAndBagEncoder(sequence, bag)
    parts = [np.asarray(part(IDS)) for part in (sequence, bag)]
    unit = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in parts]
    np.testing.assert_allclose(hybrid(IDS), unit[0] + unit[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("pooling", "dim"), [("sum", None), ("mean", None), ("mean", 5), ("mean", 4)])
def test_contract_of_linear(pooling: str, dim: int | None, tmp_path) -> None:
    def make(dtype: str = "float32") -> LinearSentenceEncoder:
        return LinearSentenceEncoder(WordEmbedding(6, 4, dtype=dtype), pooling, dim, dtype=dtype)

    check_layer(make, [IDS], tmp_path, sequence=True)
    check_padding(make(), IDS)


def test_linear_by_hand() -> None:
    words = WordEmbedding(4, 2)
    # Padding has a vector of its own here, to show that it is not counted.
    words.set_vectors(np.array([[9, 9], [0, 1], [1, 2], [3, 5]]))
    ids = np.array([[2, 3, 0]], np.int32)
    assert LinearSentenceEncoder(words, "sum")(ids).numpy().tolist() == [[4, 7]]
    assert LinearSentenceEncoder(words, "mean")(ids).numpy().tolist() == [[2, 3.5]]


def test_a_linear_map_of_the_mean_by_hand() -> None:
    encoder = LinearSentenceEncoder(WordEmbedding(4, 2), "mean", dim=3)
    encoder.words.set_vectors(np.array([[9, 9], [0, 1], [1, 2], [3, 5]]))
    encoder.build((None, None))
    encoder.projection.set_weights([np.array([[1, 0, 2], [0, 1, 1]]), np.array([0, 0, 1])])
    # The mean is (2, 3.5); 2 * 2 + 3.5 + 1 = 8.5. A row without words becomes the bias.
    assert encoder(np.array([[2, 3, 0], [0, 0, 0]])).numpy().tolist() == [[2, 3.5, 8.5], [0, 0, 1]]


def test_configurations_and_weights_from_before_there_was_a_map() -> None:
    encoder = LinearSentenceEncoder(WordEmbedding(6, 4))
    config = encoder.get_config()
    del config["dim"], config["words"]["config"]["dense_gradient"]
    old = LinearSentenceEncoder.from_config(config)
    old(IDS)
    assert [tuple(weight.shape) for weight in old.weights] == [(6, 4)]


def test_unknown_pooling() -> None:
    with raises_argument("pooling"):
        LinearSentenceEncoder(WordEmbedding(4, 2), "summ")

"""The linear encoder: a sum is exactly the sum of its words."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contract import check_layer, check_padding
from vsemb.encoders import LinearSentenceEncoder, WordEmbedding
from vsemb.errors import InvalidArgumentError

IDS = np.array([[2, 3, 3], [5, 0, 0], [4, 1, 0]], np.int32)


@pytest.mark.parametrize(("pooling", "dim"), [("sum", None), ("mean", None), ("mean", 5), ("mean", 4)])
def test_contract(pooling: str, dim: int | None, tmp_path) -> None:
    def make(dtype: str = "float32") -> LinearSentenceEncoder:
        return LinearSentenceEncoder(WordEmbedding(6, 4, dtype=dtype), pooling, dim, dtype=dtype)

    check_layer(make, [IDS], tmp_path, sequence=True)
    check_padding(make(), IDS)


def test_by_hand() -> None:
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
    with pytest.raises(InvalidArgumentError, match="pooling"):
        LinearSentenceEncoder(WordEmbedding(4, 2), "summ")

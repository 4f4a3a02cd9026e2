"""The linear encoder: a sum is exactly the sum of its words."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contract import check_layer, check_padding
from vsemb.encoders import LinearSentenceEncoder, WordEmbedding
from vsemb.errors import InvalidArgumentError

IDS = np.array([[2, 3, 3], [5, 0, 0], [4, 1, 0]], np.int32)


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_contract(pooling: str, tmp_path) -> None:
    def make(dtype: str = "float32") -> LinearSentenceEncoder:
        return LinearSentenceEncoder(WordEmbedding(6, 4, dtype=dtype), pooling, dtype=dtype)

    check_layer(make, [IDS], tmp_path, sequence=True)
    check_padding(make(), IDS)


def test_by_hand() -> None:
    words = WordEmbedding(4, 2)
    # Padding has a vector of its own here, to show that it is not counted.
    words.set_vectors(np.array([[9, 9], [0, 1], [1, 2], [3, 5]]))
    ids = np.array([[2, 3, 0]], np.int32)
    assert LinearSentenceEncoder(words, "sum")(ids).numpy().tolist() == [[4, 7]]
    assert LinearSentenceEncoder(words, "mean")(ids).numpy().tolist() == [[2, 3.5]]


def test_unknown_pooling() -> None:
    with pytest.raises(InvalidArgumentError, match="pooling"):
        LinearSentenceEncoder(WordEmbedding(4, 2), "summ")

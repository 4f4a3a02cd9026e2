"""The pooling layer; its arithmetic is tested in `tests/encoders/test_masked_pooling.py`."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tests.contract import check_layer
from tests.raising import raises_argument
from vsemb.encoders import SequencePooling
from vsemb.encoders.pooling import POOLINGS


@pytest.mark.parametrize("pooling", POOLINGS)
def test_contract(pooling: str, tmp_path) -> None:
    states = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32)
    mask = np.arange(5) < np.array([5, 2, 0])[:, None]
    make = functools.partial(SequencePooling, pooling)
    output = check_layer(make, [states, mask], tmp_path, sequence=True)
    assert output.shape == (3, 8 if pooling == "mean+max" else 4)
    assert not output[2].any()


def test_mean_and_max_stand_side_by_side() -> None:
    states = np.array([[[1.0, 4.0], [3.0, 0.0]]], np.float32)
    assert SequencePooling("mean+max")(states, np.ones((1, 2), bool)).numpy().tolist() == [[2, 2, 3, 4]]


def test_unknown_name() -> None:
    with raises_argument("pooling"):
        SequencePooling("meen")

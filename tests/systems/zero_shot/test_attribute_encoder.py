"""Attributes of classes: looked up by the class's id, kept with the model."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from tests.contract import check_layer, check_padding
from tests.raising import raises_argument
from vsemb.systems.zero_shot.text_encoders import AttributeEncoder

IDS = np.array([[2], [4], [1], [0], [3]], np.int32)
VALUES = np.array([[0, 0], [0, 0], [1, 0], [1, 1], [-0.5, 2]], np.float32)


def make_encoder(dtype: str = "float32") -> AttributeEncoder:
    encoder = AttributeEncoder(classes=3, attributes=2, dim=4, dtype=dtype)
    encoder.set_attributes(VALUES)
    return encoder


def test_contract(tmp_path) -> None:
    keras.utils.set_random_seed(0)
    # The reloaded layer gives the same: the table is saved with it.
    check_layer(make_encoder, [IDS], tmp_path, sequence=True)
    check_padding(make_encoder(), IDS[:3])


def test_one_linear_layer_over_the_attributes() -> None:
    encoder = make_encoder()
    kernel, bias = np.arange(8.0).reshape(2, 4), np.array([1.0, 0, 0, -1])
    encoder.affine.set_weights([kernel, bias])
    # Attributes (1, 0), (-0.5, 2), none, none, (1, 1); rows of W (0, 1, 2, 3) and (4, 5, 6, 7).
    expected = [[1, 1, 2, 2], [9, 9.5, 11, 11.5], [1, 0, 0, -1], [1, 0, 0, -1], [5, 6, 8, 9]]
    assert encoder(IDS).numpy().tolist() == expected


def test_attributes_are_not_trained() -> None:
    encoder = make_encoder()
    assert [v.name for v in encoder.non_trainable_variables] == ["table"]
    assert sorted(v.name for v in encoder.trainable_variables) == ["bias", "kernel"]


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((3, 2)),
        np.full((5, 2), np.inf),
        np.ones((5, 2)),
    ],
)
def test_bad_attributes(values) -> None:
    with raises_argument("values"):
        make_encoder().set_attributes(values)


def test_bad_sizes() -> None:
    with raises_argument("classes"):
        AttributeEncoder(classes=0, attributes=2)

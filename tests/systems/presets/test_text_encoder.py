"""A published text network over our ids: what it is given, and that it is stored whole."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb.systems.presets.text_encoder import PresetTextEncoder


def network(dim: int = 4) -> keras.Model:
    ids = keras.Input((None,), dtype="int32")
    vectors = keras.layers.Embedding(20, dim, embeddings_initializer="normal")(ids)
    return keras.Model(ids, keras.layers.GlobalAveragePooling1D()(vectors))


IDS = np.array([[5, 6, 7], [5, 0, 0], [0, 0, 0]], np.int32)


@pytest.mark.parametrize(
    "options, wanted",
    [
        ({"start": 1, "end": 2, "padding": 9}, [[1, 3, 4, 5, 2], [1, 3, 2, 9, 9], [1, 2, 9, 9, 9]]),
        ({"end": 2, "padding": 2}, [[3, 4, 5, 2], [3, 2, 2, 2], [2, 2, 2, 2]]),
        ({}, [[3, 4, 5], [3, 0, 0], [0, 0, 0]]),
    ],
)
def test_what_the_network_is_given(options: dict, wanted: list) -> None:
    encoder = PresetTextEncoder(network(), 5, **options)
    assert keras.ops.convert_to_numpy(encoder.published_ids(IDS)).tolist() == wanted
    fixed = PresetTextEncoder(network(), 7, fixed=True, **options)
    given = keras.ops.convert_to_numpy(fixed.published_ids(IDS))
    assert given.shape == (3, 7)
    width = len(wanted[0])
    assert given[:, :width].tolist() == wanted
    assert (given[:, width:] == options.get("padding", 0)).all()


@pytest.mark.parametrize("number", [-1, -100, 1])
def test_ids_that_name_no_token_are_not_looked_up(number: int) -> None:
    # Below 2, ids of the preset's own tokens would be negative, and count from the end of the table.
    with pytest.raises(tf.errors.InvalidArgumentError):
        PresetTextEncoder(network(), 5)(np.array([[5, number, 7]], np.int32))


def test_long_texts_are_cut_before_their_end() -> None:
    encoder = PresetTextEncoder(network(), 4, start=1, end=2)
    assert keras.ops.convert_to_numpy(encoder.published_ids(IDS)).tolist()[0] == [1, 3, 4, 2]


def test_padding_changes_nothing() -> None:
    encoder = PresetTextEncoder(network(), 9, start=1, end=2, padding=2, fixed=True)
    more = np.pad(IDS, [[0, 0], [0, 3]])
    np.testing.assert_array_equal(encoder(IDS), encoder(more))


def test_an_affine_map_stands_behind_where_sizes_differ() -> None:
    assert PresetTextEncoder(network(4), 9, 4).affine is None
    encoder = PresetTextEncoder(network(4), 9, 6, start=1)
    assert encoder(IDS).shape == (3, 6) == tuple(encoder.compute_output_shape((3, 3)))


def test_it_is_stored_whole(tmp_path) -> None:
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, PresetTextEncoder(network(), 9, 6, start=1, end=2)(ids))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(IDS), model(IDS))


def test_a_length_that_holds_nothing_is_refused() -> None:
    with raises_argument("length"):
        PresetTextEncoder(network(), 2, start=1, end=2)

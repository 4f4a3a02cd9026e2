"""The image encoder that pools the cells of a map: by hand, its errors, and a trained run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import vsemb
from tests.contract import check_layer
from tests.encoders.test_generalized_pooling import slow
from vsemb.encoders.image import ImageEncoder
from vsemb.encoders.pooled_map import PooledMap, PooledMapEncoder
from vsemb.errors import InvalidArgumentError

CELLS, CHANNELS = 4, 3


def maps(count: int = 2) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, CELLS * CHANNELS)).astype(np.float32)


def make(dtype: str = "float32") -> PooledMapEncoder:
    inner = ImageEncoder(CELLS * CHANNELS, projection=False, standardize=True, dtype=dtype)
    return PooledMapEncoder(inner, dim=5, cells=CELLS, dtype=dtype)


def test_contract(tmp_path: Any) -> None:
    check_layer(make, [maps()], tmp_path)


def test_each_cell_is_mapped_alone_and_the_cells_are_pooled() -> None:
    layer, features = make(), maps()
    found = layer(features).numpy()
    kernel, bias = layer.cell_map.get_weights()
    for row, flat in zip(found, features.astype(np.float64), strict=True):
        cells = (flat / np.linalg.norm(flat)).reshape(CELLS, CHANNELS)
        np.testing.assert_allclose(row, slow(layer.pooling, cells @ kernel + bias), atol=1e-5)


def test_the_order_of_cells_does_not_matter() -> None:
    layer, features = make(), maps()
    turned = features.reshape(-1, CELLS, CHANNELS)[:, ::-1].reshape(features.shape)
    # Sums in another order differ by rounding.
    np.testing.assert_allclose(layer(turned), layer(features), atol=1e-6)


def test_gradients_reach_all_weights() -> None:
    layer, features = make(), maps()
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(layer(features) ** 2)
    gradients = tape.gradient(value, layer.trainable_weights)
    assert len(gradients) == 9 and all(np.abs(gradient).max() > 0 for gradient in gradients)


def test_features_that_are_not_whole_cells_are_refused() -> None:
    part = PooledMap(cells=CELLS)
    options = {"dropout": 0.0, "standardize": False, "dtype": "float32"}
    assert part.build(CELLS * CHANNELS, 5, **options)(maps()).shape == (2, 5)
    with pytest.raises(InvalidArgumentError, match="cells=4"):
        part.build(13, 5, **options)(np.ones((1, 13), np.float32))


def test_a_trained_run_opens_again(scenes: Any, tiny_recipe: Any, tmp_path: Any) -> None:
    cells = ["image.projection=pooled-map", "image.projection.cells=2", "training.epochs=1"]
    run = vsemb.train(tiny_recipe.with_overrides(cells), scenes, tmp_path / "run")
    again = vsemb.Run.open(tmp_path / "run")
    assert isinstance(again.model.image_encoder, PooledMapEncoder)
    size = 2 * run.model.image_encoder.cell_map.kernel.shape[0]
    features = np.random.default_rng(0).normal(size=(2, size)).astype(np.float32)
    np.testing.assert_allclose(again.model.encode_images(features), run.model.encode_images(features), rtol=1e-6)

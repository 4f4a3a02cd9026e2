"""Embedding splits: order, batches, and that later weights are seen."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import SAME
from vsemb.data.batches import pad_ids
from vsemb.data.sources import FeatureImages
from vsemb.evaluation import Embedder
from vsemb.models import DualEncoder


@pytest.fixture
def parts(scenes, tiny_run):
    split = scenes.split("val")
    return split, tiny_run.images_of(scenes, split), tiny_run.model, tiny_run.tokenizer


@pytest.mark.parametrize("batch_size", [1, 5, 12, 256])
def test_texts_come_in_their_own_order(parts, batch_size: int) -> None:
    split, _, model, tokenizer = parts
    found = Embedder(model).texts(*tokenizer.encode(split.captions), batch_size=batch_size)
    expected = model.encode_texts(tokenizer(split.captions))
    # The same rows padded to another length.
    np.testing.assert_allclose(found, expected, **SAME)


@pytest.mark.parametrize("batch_size", [5, 12, 256])
def test_images_come_in_their_own_order(parts, scenes, batch_size: int) -> None:
    split, images, model, _ = parts
    assert isinstance(images, FeatureImages)
    found = Embedder(model).images(images, len(split), batch_size=batch_size)
    np.testing.assert_allclose(found, model.encode_images(images.gather(np.arange(len(split)))), **SAME)


def test_later_weights_are_seen(parts) -> None:
    split, images, model, _ = parts
    embedder = Embedder(model)
    before = embedder.images(images, len(split))
    kept = model.get_weights()
    model.image_encoder.affine.kernel.assign(-model.image_encoder.affine.kernel)
    after = embedder.images(images, len(split))
    model.set_weights(kept)
    assert np.abs(after - before).max() > 0.1


class Sets(keras.layers.Layer):
    """A vector an item: what stands there, and twice that."""

    def call(self, items, training=False):
        items = tf.cast(items, tf.float32)
        return tf.stack([items, 2 * items], axis=-1)


class SetImages:
    """Images of one to four regions, of which a batch has as many as it needs."""

    spec = tf.TensorSpec((None,), tf.float32)
    counts = np.array([2, 1, 4, 3, 1, 1, 2])

    def gather(self, rows):
        longest = self.counts[rows].max()
        return np.where(np.arange(longest) < self.counts[rows][:, None], rows[:, None] + 1.0, 0).astype("f4")

    def finish(self, images, seed):
        return images


@pytest.mark.parametrize("batch_size", [1, 3, 256])
def test_sets_are_padded_to_the_longest(batch_size: int) -> None:
    embedder = Embedder(DualEncoder(Sets(), Sets(), "region-word"))
    offsets = np.array([0, 5, 6, 8, 8, 15])
    ids = np.arange(1, 16, dtype=np.int32)
    found = embedder.texts(ids, offsets, batch_size=batch_size)
    padded = pad_ids(ids, offsets, np.arange(5)).astype(np.float32)  # (5, 7)
    np.testing.assert_array_equal(found, np.stack([padded, 2 * padded], -1))
    images = embedder.images(SetImages(), 7, batch_size=batch_size)
    whole = SetImages().gather(np.arange(7))  # (7, 4)
    np.testing.assert_array_equal(images, np.stack([whole, 2 * whole], -1))

"""Embedding splits: order, batches, and that later weights are seen."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contract import SAME
from vsemb.data.sources import FeatureImages
from vsemb.evaluation import Embedder
from vsemb.evaluation.embed import _padded


@pytest.fixture
def parts(scenes, tiny_run):
    split = scenes.split("val")
    return split, tiny_run.images_of(scenes, split), tiny_run.model, tiny_run.tokenizer


@pytest.mark.parametrize("batch_size", [5, 256])
def test_texts_come_in_their_own_order(parts, batch_size: int) -> None:
    split, _, model, tokenizer = parts
    texts = Embedder(model).texts(*tokenizer.encode(split.captions), batch_size=batch_size)
    expected = model.encode_texts(tokenizer(split.captions))
    # The same rows padded to another length.
    np.testing.assert_allclose(texts, expected, **SAME)


@pytest.mark.parametrize("batch_size", [5, 12])
def test_images_come_in_their_own_order(parts, scenes, batch_size: int) -> None:
    split, images, model, _ = parts
    assert isinstance(images, FeatureImages)
    embedded = Embedder(model).images(images, len(split), batch_size=batch_size)
    np.testing.assert_allclose(embedded, model.encode_images(images.gather(np.arange(len(split)))), **SAME)


def test_sets_of_batches_are_padded_and_put_in_order() -> None:
    sets = _padded([np.full((2, 3, 4), 1.0), np.full((1, 5, 4), 2.0)], np.array([2, 0, 1]))
    assert sets.shape == (3, 5, 4)
    # Rows 2 and 0 have three items, row 1 has five.
    np.testing.assert_array_equal(sets[..., 0], [[1, 1, 1, 0, 0], [2] * 5, [1, 1, 1, 0, 0]])


def test_later_weights_are_seen(parts) -> None:
    split, images, model, _ = parts
    embedder = Embedder(model)
    before = embedder.images(images, len(split))
    kept = model.get_weights()
    model.image_encoder.affine.kernel.assign(-model.image_encoder.affine.kernel)
    after = embedder.images(images, len(split))
    model.set_weights(kept)
    assert np.abs(after - before).max() > 0.1


def test_the_next_embedder_of_a_model_compiles_nothing(parts, monkeypatch) -> None:
    split, images, model, tokenizer = parts
    first = Embedder(model).images(images, len(split))
    monkeypatch.setattr("tensorflow.function", None)
    np.testing.assert_array_equal(Embedder(model).images(images, len(split)), first)

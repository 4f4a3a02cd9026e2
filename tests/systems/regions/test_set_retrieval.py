"""Retrieval metrics of sets of vectors: brute force, every protocol, the worst model."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.evaluation.test_retrieval import DOT, check_scored_once, random_split, slow_ranks
from tests.systems.regions.test_similarities import slow_region_word
from vsemb import similarities
from vsemb.data.batches import pad_ids
from vsemb.evaluation import Embedder, evaluate_retrieval, retrieval_ranks
from vsemb.models import DualEncoder


def random_sets(seed: int, dim: int = 3) -> dict[str, np.ndarray]:
    """As `random_split`, of sets of up to 3 regions and 4 words with few values."""
    inputs = random_split(seed)
    generator = np.random.default_rng(seed)
    for name, items in (("images", 3), ("texts", 4)):
        vectors = generator.integers(-1, 2, (len(inputs[name]), items, dim)).astype(np.float32)
        vectors[np.arange(items) >= generator.integers(1, items + 1, (len(vectors), 1))] = 0
        inputs[name] = vectors
    return inputs


@pytest.mark.parametrize("kept", [True, False], ids=["scored once", "scored twice"])
@pytest.mark.parametrize("seed", range(3))
def test_ranks_equal_brute_force_with_ties(seed: int, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, similarity = random_sets(seed), similarities.get("max-sim")
    # Whole numbers: the slow scores are the fast ones, and tie as they do.
    scores = np.array([[slow_region_word(image, text) for text in inputs["texts"]] for image in inputs["images"]])
    own = inputs["image_ids"][:, None] == inputs["text_image_ids"][None]
    monkeypatch.setattr("vsemb.evaluation.retrieval._KEPT", scores.size if kept else scores.size - 1)
    for block in (1, 5, 10_000):
        of_images, of_texts = retrieval_ranks(**inputs, similarity=similarity, block=block)
        assert of_images.tolist() == slow_ranks(scores, own)
        assert of_texts.tolist() == slow_ranks(scores.T, own.T)


def test_each_image_is_scored_once() -> None:
    check_scored_once(random_sets(0), similarities.get("max-sim"))


def test_all_protocols_take_sets() -> None:
    # One item a set scores as a vector does.
    inputs, options = random_split(5), {"folds": 3, "bootstrap": 20, "pairs": 4, "recalls": (1, 2)}
    expected = evaluate_retrieval(**inputs, similarity=DOT, **options)
    texts = np.pad(inputs["texts"][:, None], [(0, 0), (0, 2), (0, 0)])
    as_sets = inputs | {"images": inputs["images"][:, None], "texts": texts}
    # An image or a text of nothing but zeros scores 0 either way.
    metrics = evaluate_retrieval(**as_sets, similarity=similarities.get("max-sim"), **options)
    assert metrics == expected


@pytest.mark.parametrize("name", ["max-sim", "cross-attention"])
def test_a_constant_model_of_sets_is_worst(name: str) -> None:
    similarity, generator = similarities.get(name), np.random.default_rng(0)
    images, texts = (
        np.repeat(np.asarray(similarity.normalize(generator.normal(size=(1, n, 300)))), rows, axis=0)
        for n, rows in ((5, 103), (7, 206))
    )
    ids = np.arange(103)
    of_images, of_texts = retrieval_ranks(images, texts, ids, np.repeat(ids, 2), similarity, block=64)
    assert set(of_images) == {204} and set(of_texts) == {102}


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
    embedder = Embedder(DualEncoder(Sets(), Sets(), "max-sim"))
    offsets = np.array([0, 5, 6, 8, 8, 15])
    ids = np.arange(1, 16, dtype=np.int32)
    embedded = embedder.texts(ids, offsets, batch_size=batch_size)
    padded = pad_ids(ids, offsets, np.arange(5)).astype(np.float32)  # (5, 7)
    np.testing.assert_array_equal(embedded, np.stack([padded, 2 * padded], -1))
    images = embedder.images(SetImages(), 7, batch_size=batch_size)
    whole = SetImages().gather(np.arange(7))  # (7, 4)
    np.testing.assert_array_equal(images, np.stack([whole, 2 * whole], -1))

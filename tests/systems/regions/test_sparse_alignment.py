"""SPARC's alignment against loops over words and regions, its gradient, padding, and its part."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from vsemb import recipes
from vsemb.losses import CombinedLoss
from vsemb.models.in_batch import InBatchObjective
from vsemb.systems.regions.similarities import LateInteraction
from vsemb.systems.regions.sparse_alignment import RankingSparse, SparseAlignment

# Each text has its image; the last two share one.
OWN = np.array([2, 0, 1, 1])


@pytest.fixture(scope="module")
def batch() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(5)
    images, texts = generator.normal(size=(3, 4, 5)), generator.normal(size=(4, 3, 5))
    images[1, 3] = texts[0, 2] = texts[3, 1:] = 0
    return images.astype(np.float32), texts.astype(np.float32)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x)


def slow(images: np.ndarray, texts: np.ndarray, temperature: float) -> np.ndarray:
    """The equations of section 3.2, in float64."""
    losses = []
    for number, text in enumerate(texts.astype(np.float64)):
        words = [word for word in text if word.any()]
        regions = [region for region in images[OWN[number]].astype(np.float64) if region.any()]
        groups = []
        for word in words:
            products = [float(word @ region) for region in regions]
            scaled = [(each - min(products)) / (max(products) - min(products)) for each in products]
            kept = [each if each >= 1 / len(regions) else 0.0 for each in scaled]
            groups.append(sum(each / sum(kept) * region for each, region in zip(kept, regions, strict=True)))
        total = 0.0
        for place, word in enumerate(words):
            by_group = [unit(groups[place]) @ unit(other) / temperature for other in words]
            by_word = [unit(word) @ unit(other) / temperature for other in groups]
            for logits in (by_group, by_word):
                total += (np.log(np.sum(np.exp(logits))) - logits[place]) / 2
        losses.append(total / len(words))
    return np.array(losses)


def found(images, texts, temperature: float = 0.3):
    labels = (OWN[:, None] == np.arange(3)).astype(np.int32)
    return SparseAlignment(temperature).of_items(images, texts, ops.array(labels), ops.array(labels == 1))


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_the_loss_is_that_of_loops(batch, temperature: float) -> None:
    np.testing.assert_allclose(found(*batch, temperature), slow(*batch, temperature), rtol=1e-4)


def test_the_gradient_is_that_of_differences(batch) -> None:
    images, texts = (tf.constant(x) for x in batch)
    with tf.GradientTape() as tape:
        tape.watch([images, texts])
        value = tf.reduce_sum(found(images, texts))
    gradients = [gradient.numpy() for gradient in tape.gradient(value, [images, texts])]
    for side, gradient in enumerate(gradients):
        assert np.isfinite(gradient).all() and not gradient[~batch[side].any(axis=-1)].any()
        for place in [(0, 0, 1), (1, 2, 3), (2, 1, 0)]:
            moved = [x.astype(np.float64) for x in batch]
            values = []
            for step in (1e-4, -1e-4):
                changed = [x.copy() for x in moved]
                changed[side][place] += step
                values.append(slow(*changed, 0.3).sum())
            if not batch[side][place[:2]].any():
                continue
            assert gradient[place] == pytest.approx((values[0] - values[1]) / 2e-4, rel=2e-2, abs=2e-3)


def test_padding_and_empty_sets_change_nothing(batch) -> None:
    images, texts = batch
    wider = np.pad(images, [(0, 0), (0, 2), (0, 0)]), np.pad(texts, [(0, 0), (0, 3), (0, 0)])
    np.testing.assert_allclose(found(*wider), found(*batch), rtol=1e-5)
    nothing = found(np.zeros_like(images), np.zeros_like(texts)).numpy()
    np.testing.assert_array_equal(nothing, 0)
    # A single region is the group of every word.
    assert np.isfinite(found(images[:, :1], texts)).all()


def test_it_is_added_to_the_loss_of_a_recipe(batch) -> None:
    recipe = recipes.get("dvsa").with_overrides(["loss=ranking-sparse", "loss.sparse_weight=2.5"])
    assert recipe.loss == RankingSparse(sparse_weight=2.5)
    similarity, (images, texts) = LateInteraction(), batch
    sides = {"image": similarity.normalize(images[OWN]), "text": similarity.normalize(texts)}
    x = {"image_id": ops.array(OWN)}

    def total(loss: CombinedLoss) -> float:
        return float(InBatchObjective(loss, similarity, None, 1.0, 1.0, None)(x, sides))

    with_it = recipe.loss.build(10)
    without = with_it.losses[0]
    normalized = [np.array(similarity.normalize(x)) for x in (images, texts)]
    expected = slow(*normalized, 0.07).mean()
    assert total(with_it) - total(without) == pytest.approx(2.5 * expected, rel=1e-3)

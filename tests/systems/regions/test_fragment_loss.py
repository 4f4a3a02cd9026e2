"""DeFrag's multiple-instance objective against loops over words and regions, and its part."""

from __future__ import annotations

import numpy as np
import pytest
from keras import ops

from tests.raising import raises_argument
from vsemb import recipes
from vsemb.models.in_batch import InBatchObjective
from vsemb.systems.regions.fragment_loss import FragmentAlignment, RankingFragments
from vsemb.systems.regions.similarities import SumSim

# The last pair is another caption of the first image. Zeros are padding.
IDS = np.array([7, 8, 9, 7])


@pytest.fixture(scope="module")
def batch() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    images, texts = generator.normal(size=(4, 3, 5)), generator.normal(size=(4, 2, 5))
    images[3] = images[0]
    images[1, 2] = texts[2, 1] = 0
    # All products of a word with its image are negative.
    texts[1, 0] = -images[1, :2].sum(axis=0)
    return images.astype(np.float32), texts.astype(np.float32)


def slow_fragments(images: np.ndarray, texts: np.ndarray, margin: float) -> np.ndarray:
    losses = []
    for number, words in enumerate(texts):
        total = 0.0
        for word in words:
            if not word.any():
                continue
            own = [float(region @ word) for region in images[number] if region.any()]
            positives = [product for product in own if product > 0] or [max(own)]
            negatives = [product for product in own if product not in positives]
            for other, regions in enumerate(images):
                if IDS[other] != IDS[number]:
                    negatives += [float(region @ word) for region in regions if region.any()]
            total += np.mean([max(0.0, margin - product) for product in positives])
            total += np.mean([max(0.0, margin + product) for product in negatives])
        losses.append(total)
    return np.array(losses)


@pytest.mark.parametrize("margin", [1.0, 0.25])
def test_the_loss_is_that_of_loops(batch, margin: float) -> None:
    images, texts = batch
    labels = np.eye(4, dtype=int)
    mask = (IDS[:, None] != IDS) | (labels == 1)
    losses = FragmentAlignment(margin).of_items(images, texts, ops.array(labels), ops.array(mask))
    np.testing.assert_allclose(losses, slow_fragments(images, texts, margin), rtol=1e-5)
    assert (texts[1, 0] @ images[1].T <= 0).all()


def test_a_batch_adds_it_to_the_ranking_loss(batch) -> None:
    images, texts = batch
    x, outputs = {"image_id": ops.array(IDS)}, {"image": ops.array(images), "text": ops.array(texts)}

    def total(weight: float) -> float:
        loss = RankingFragments(margin=1.0, fragment_weight=weight).build(10)
        return float(InBatchObjective(loss, SumSim(), None, 1.0, 1.0, None)(x, outputs))

    scores = np.maximum(np.einsum("nid,mtd->nmit", images, texts), 0).sum(axis=(2, 3))
    ranking = sum(
        max(0.0, 1 - scores[k, k] + scores[pair])
        for k in range(4)
        for other in range(4)
        if IDS[k] != IDS[other]
        for pair in ((k, other), (other, k))
    )
    fragments = slow_fragments(images, texts, 1.0).sum()
    assert total(1.0) == pytest.approx(ranking + fragments, rel=1e-5)
    assert total(2.5) == pytest.approx(ranking + 2.5 * fragments, rel=1e-5)


@pytest.mark.parametrize(
    ("recipe", "overrides", "argument"),
    [
        ("vsepp", [], "loss"),
        ("dvsa", ["loss.block_size=8"], "block_size"),
    ],
)
def test_it_needs_sets_and_a_whole_batch(recipe: str, overrides: list[str], argument: str) -> None:
    with raises_argument(argument):
        recipes.get(recipe).with_overrides(["loss=ranking-fragments", *overrides])

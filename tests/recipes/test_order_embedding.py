"""The recipe of Vendrov et al. 2016: its twin, its batches, and its reversed ablation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.tiny import tiny
from vsemb import recipes
from vsemb.data.features.store import FeatureStore
from vsemb.recipes.retrieval import RetrievalJob
from vsemb.runs.indexing import index_source
from vsemb.runs.run import Run
from vsemb.runs.train import train
from vsemb.similarities import OrderViolation, ReversedOrderViolation

SIZES = ["embedding_dim=32", "batches.size=16", "training.seed=1"]


def test_the_twin() -> None:
    order, symmetric = recipes.get("order-embedding"), recipes.get("order-embedding-symmetric")
    # The twin differs in what it compares by, and in nothing else.
    changed = order.with_overrides(["similarity=cosine", "loss.margin=0.2"])
    assert replace(changed, name=symmetric.name, paper=symmetric.paper) == symmetric


def test_no_image_comes_twice_in_a_batch(scenes) -> None:
    split = scenes.split("train")
    batches = RetrievalJob(tiny(recipes.get("order-embedding"), *SIZES), scenes).batches()
    seen = []
    for epoch in range(3):
        plan = batches.plan(epoch)
        for captions in plan:
            assert len(set(split.caption_rows[captions])) == len(captions)
        # Another caption of each image in another epoch.
        seen.append(dict(zip(split.caption_rows[plan.ravel()], plan.ravel(), strict=True)))
    assert any(seen[0][image] != seen[1].get(image, seen[0][image]) for image in seen[0])


@pytest.fixture(scope="module")
def runs(scenes, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    settings = [*SIZES, "training.epochs=10", "optimizer.learning_rate=0.03"]
    folder = tmp_path_factory.mktemp("runs")
    return {
        kind: train(tiny(recipes.get("order-embedding"), *settings, f"similarity={kind}"), scenes, folder / kind)
        for kind in ("order", "order-reversed")
    }


@pytest.mark.slow
def test_pairs_are_ordered_the_way_the_run_is(runs: dict[str, Run], scenes) -> None:
    """Which way is better is a matter of real data, see the README; here, each run learns its own way."""
    split = scenes.split("train")
    store = FeatureStore.find(scenes)
    for name, own, other in (
        ("order", OrderViolation(), ReversedOrderViolation()),
        ("order-reversed", ReversedOrderViolation(), OrderViolation()),
    ):
        model, tokenizer = runs[name].model, runs[name].tokenizer
        images = model.encode_images(store.rows(split.ids)[split.caption_rows])
        captions = model.encode_texts(tokenizer(split.captions))
        scores = [np.diag(np.asarray(kind.scores(images, captions))) for kind in (own, other)]
        # Scores are violations times -1.
        assert scores[0].mean() > 0.8 * scores[1].mean(), (name, scores[0].mean(), scores[1].mean())
        assert (scores[0] > scores[1]).mean() > 0.8, (name, (scores[0] > scores[1]).mean())


@pytest.mark.slow
def test_an_index_knows_the_direction(runs: dict[str, Run], scenes) -> None:
    names = {name: index_source(run, scenes, "val", "image").similarity["kind"] for name, run in runs.items()}
    assert names == {"order": "order", "order-reversed": "order-reversed"}


@pytest.mark.slow
def test_embeddings_are_on_the_positive_unit_sphere(runs: dict[str, Run]) -> None:
    run = runs["order"]
    embeddings = np.asarray(run.model.encode_texts(run.tokenizer(["a red circle", "two shapes"])))
    assert (embeddings >= 0).all()
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, rtol=1e-5)

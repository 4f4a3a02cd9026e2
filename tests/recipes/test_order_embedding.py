"""The recipe of Vendrov et al. 2016: what the paper states, and its reversed ablation."""

from __future__ import annotations

import numpy as np
import pytest

from vsemb import recipes
from vsemb.data.features.store import FeatureStore
from vsemb.errors import InvalidArgumentError
from vsemb.runs import build, texts
from vsemb.runs.indexing import index_source
from vsemb.runs.run import Run
from vsemb.runs.train import train
from vsemb.similarities import Cosine, OrderViolation, ReversedOrderViolation

TINY = ["text.units=16", "text.word_dim=16", "embedding_dim=32", "batches.size=16", "training.seed=1"]


def test_settings_of_section_4() -> None:
    order, symmetric = recipes.get("order-embedding"), recipes.get("order-embedding-symmetric")
    assert (order.similarity, order.loss.margin) == ("order", 0.05)
    assert (symmetric.similarity, symmetric.loss.margin) == ("cosine", 0.2)
    for recipe in (order, symmetric):
        assert recipe.embedding_dim == recipe.text.units == 1024
        assert (recipe.text.encoder, recipe.text.pooling, recipe.text.word_dim) == ("gru", "last", 300)
        assert (recipe.loss.name, recipe.loss.negatives, recipe.image.use_bias) == ("ranking", "all", False)
        assert (recipe.optimizer.name, recipe.optimizer.learning_rate) == ("adam", 1e-3)
        assert (recipe.batches.size, recipe.batches.captions) == (128, "one")
    # The twin differs in what it compares by, and in nothing else.
    changed = order.with_overrides(["similarity=cosine", "loss.margin=0.2"]).to_json()
    named = {"name": "", "paper": ""}
    assert {**changed, **named} == {**symmetric.to_json(), **named}


@pytest.mark.parametrize(
    ("name", "overrides", "kind"),
    [
        ("order-embedding", [], OrderViolation),
        ("order-embedding", ["reversed=true"], ReversedOrderViolation),
        ("order-embedding-symmetric", [], Cosine),
    ],
)
def test_similarities(name: str, overrides: list[str], kind: type) -> None:
    recipe = recipes.get(name).with_overrides([*TINY, *overrides])
    assert type(build.build_model(recipe, 9, 5).similarity) is kind


def test_only_an_order_can_be_reversed() -> None:
    recipe = recipes.get("order-embedding-symmetric").with_overrides([*TINY, "reversed=true"])
    with pytest.raises(InvalidArgumentError, match="reversed"):
        build.build_model(recipe, 9, 5)


def test_no_image_comes_twice_in_a_batch(scenes) -> None:
    recipe = recipes.get("order-embedding").with_overrides(TINY)
    split, store = scenes.split("train"), FeatureStore.find(scenes)
    tokenizer = texts.build_tokenizer(recipe, texts.build_vocabulary(recipe, split.captions))
    batches = build.build_batches(recipe, split, build.build_images(recipe, split, store), tokenizer)
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
    settings = [*TINY, "training.epochs=30", "optimizer.learning_rate=0.01"]
    folder = tmp_path_factory.mktemp("runs")
    return {
        name: train(
            recipes.get("order-embedding").with_overrides([*settings, f"reversed={name == 'reversed'}"]),
            scenes,
            folder / name,
        )
        for name in ("order", "reversed")
    }


def test_pairs_are_ordered_the_way_the_run_is(runs: dict[str, Run], scenes) -> None:
    """Which way is better is a matter of real data, see the README; here, each run learns its own way."""
    split = scenes.split("train")
    store = FeatureStore.find(scenes)
    for name, own, other in (
        ("order", OrderViolation(), ReversedOrderViolation()),
        ("reversed", ReversedOrderViolation(), OrderViolation()),
    ):
        model, tokenizer = runs[name].model, runs[name].tokenizer
        images = model.encode_images(store.rows(split.ids)[split.caption_rows])
        captions = model.encode_texts(tokenizer(split.captions))
        scores = [np.diag(np.asarray(kind.scores(images, captions))) for kind in (own, other)]
        # Scores are violations times -1.
        assert scores[0].mean() > 0.8 * scores[1].mean(), (name, scores[0].mean(), scores[1].mean())
        assert (scores[0] > scores[1]).mean() > 0.8, (name, (scores[0] > scores[1]).mean())


def test_an_index_knows_the_direction(runs: dict[str, Run], scenes) -> None:
    names = {name: index_source(run, scenes, "val", "image").similarity for name, run in runs.items()}
    assert names == {"order": "order", "reversed": "order-reversed"}


def test_embeddings_are_on_the_positive_unit_sphere(runs: dict[str, Run]) -> None:
    run = runs["order"]
    embeddings = np.asarray(run.model.encode_texts(run.tokenizer(["a red circle", "two shapes"])))
    assert (embeddings >= 0).all()
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, rtol=1e-5)

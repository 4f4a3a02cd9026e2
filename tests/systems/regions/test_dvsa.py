"""The recipe `dvsa`: sets of regions and words from a dataset to a run, and what does not go with them."""

from __future__ import annotations

import dataclasses
import json
import shutil

import keras
import numpy as np
import pytest

from vsemb import recipes
from vsemb.data.features.files import CLASSIFIER_NAME
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.runs import build, optimizers, serve
from vsemb.runs import initialization as start
from vsemb.runs import run_directory as entering
from vsemb.runs.measure import evaluate_run
from vsemb.runs.run import Run
from vsemb.runs.train import train
from vsemb.systems.regions.region_encoder import RegionEncoder
from vsemb.systems.regions.regions import RegionStore
from vsemb.systems.regions.similarities import RegionWord
from vsemb.systems.regions.sources import RegionImages
from vsemb.systems.regions.word_sequence import WordSequenceEncoder

VARIANTS = sorted(recipes.RECIPES["dvsa"])


def test_paper_follows_section_3_3() -> None:
    recipe = recipes.get("dvsa", "paper")
    optimizer, loss = optimizers.build_optimizer(recipe, 10), build.build_loss(recipe, 10)
    assert (optimizer.momentum, optimizer.clipvalue, optimizer.global_clipnorm) == (0.9, 5.0, None)
    assert (loss.margin, loss.negatives, recipe.batches.size) == (1.0, "all", 100)
    assert 1000 <= recipe.embedding_dim <= 1600 and 300 <= recipe.text.units <= 600
    model = build.build_model(recipe.with_overrides(["embedding_dim=8", "text.units=4"]), 10, 6)
    assert model.similarity.get_config() == RegionWord("max").get_config()
    assert isinstance(model.image_encoder, RegionEncoder)
    assert isinstance(model.text_encoder, WordSequenceEncoder) and model.text_encoder.cell == "brnn"
    assert model.encode_images(np.ones((2, 5, 6))).shape == (2, 5, 8)
    assert model.encode_texts(np.ones((2, 3), int)).shape == (2, 3, 8)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_trains(variant: str, region_scenes, tmp_path) -> None:
    recipe = recipes.get("dvsa", variant).with_overrides(
        ["embedding_dim=8", "text.word_dim=8", "text.units=8", "text.min_count=1", "batches.size=8"]
        + ["training.epochs=1"]
    )
    run = train(recipe, region_scenes, tmp_path / "run")
    assert run.multi_vector and run.info["status"] == "finished"
    metrics = evaluate_run(run, region_scenes)
    assert run.info["best_recall_sum"] == pytest.approx(metrics.recall_sum)


def test_a_run_keeps_what_embeds_new_images(region_run: Run, region_scenes) -> None:
    store = region_run.regions_of(region_scenes)
    assert isinstance(store, RegionStore) and store.count == 6
    assert region_run.feature_regions == store.regions
    assert region_run.info["features"] == store.fingerprint and region_run.info["feature_dim"] == store.dim


def test_it_learns(region_run: Run, region_scenes) -> None:
    lines = (region_run.path / "metrics.jsonl").read_text().splitlines()
    losses = [float(line.split('"loss": ')[1].split(",")[0]) for line in lines]
    assert losses[-1] < losses[0]


def test_whole_images_alone_are_the_first_region(region_scenes) -> None:
    store, split = RegionStore.find(region_scenes), region_scenes.split("val")
    images = RegionImages(store, split, most=1)
    rows = np.array([3, 0])
    assert images.spec.shape == (1, store.dim)
    np.testing.assert_array_equal(images.gather(rows), store.rows(split.ids[rows])[:, :1])
    assert RegionImages(store, split, most=100).spec.shape == (store.count, store.dim)


def test_features_are_scaled_by_real_regions(region_recipe, region_scenes, monkeypatch) -> None:
    store, split = RegionStore.find(region_scenes), region_scenes.split("train")
    regions = start._features(store, split)
    assert regions.shape == (int((store.boxes(split.ids) > 0).any(-1).sum()), store.dim)
    monkeypatch.setattr(start, "_REGIONS", 100)  # of 48 * 6: every second image
    assert len(start._features(store, split)) == (store.boxes(split.ids[::2]) > 0).any(-1).sum()
    # A model of whole images reads no other region, and all 48 are fewer than 100.
    np.testing.assert_array_equal(start._features(store, split, 1), store.rows(split.ids)[:, 0])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("twin=true", "twin"),
        ("image.backbone=SmallConvNet", "image.backbone"),
        ("image.projection=false", "image.projection"),
        ("image.regions=false", "image.regions"),
        ("text.bag=true", "text.bag"),
        ("text.pooling=mean", "text.pooling"),
        ("text.directions=concat", "text.directions"),
        ("text.encoder=cnn", "brnn, gru, lstm"),
        ("training.start=cca", "training.start"),
        ("training.select=zero-shot", "training.select"),
        ("similarity=cosine", "image.regions"),
    ],
    ids=lambda value: value.split("=")[0],
)
def test_what_does_not_go_with_sets_is_refused(override: str, message: str, region_scenes, tmp_path) -> None:
    recipe = recipes.get("dvsa").with_overrides([override])
    with pytest.raises(InvalidArgumentError, match=message):
        train(recipe, region_scenes, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("override", ["text.encoder=brnn", "image.regions=true", "image.most_regions=1"])
def test_what_only_sets_have_is_refused_elsewhere(override: str) -> None:
    recipe = recipes.get("kiros2014").with_overrides([override])
    with pytest.raises(InvalidArgumentError, match=override.split("=")[0]):
        build.build_model(recipe, 10, 6)


def test_gradients_are_cut_one_way() -> None:
    recipe = recipes.get("dvsa", "paper").with_overrides(["optimizer.clip=2"])
    with pytest.raises(InvalidArgumentError, match="clip_value"):
        optimizers.build_optimizer(recipe, 10)


def test_without_regions_the_command_that_makes_them_is_named(scenes, tiny_run, tmp_path) -> None:
    with pytest.raises(DataError, match="vsemb regions"):
        train(recipes.get("dvsa"), scenes, tmp_path / "run")
    with pytest.raises(DataError, match="dvsa"):
        tiny_run.regions_of(scenes)


def test_a_run_opens_in_another_process(region_run: Run, region_scenes) -> None:
    keras.backend.clear_session()
    again = Run.open(region_run.path)
    ids, offsets = again.encode(["a red circle"])
    assert len(ids) == 3
    images = again.images_of(region_scenes, region_scenes.split("val")).gather(np.arange(2))
    np.testing.assert_array_equal(again.model.encode_images(images), region_run.model.encode_images(images))


def test_a_run_ranks_with_the_classifier_of_its_regions(region_run: Run, tmp_path, monkeypatch) -> None:
    copy = shutil.copytree(region_run.path, tmp_path / "run")
    config = dataclasses.replace(region_run.feature_regions, source="selective-search", rank="confidence")
    (copy / "backbone" / "regions.json").write_text(json.dumps(config.to_json()))
    (copy / "backbone" / CLASSIFIER_NAME).write_text("weights")
    asked = []
    monkeypatch.setattr(serve, "build_classifier", lambda *arguments: asked.append(arguments))
    image_input = serve.image_input(Run.open(copy))
    assert image_input is not None and image_input.regions.regions == config
    assert [path for _, path in asked] == [copy / "backbone" / CLASSIFIER_NAME]
    serve.image_input(region_run)
    assert len(asked) == 1


def test_the_classifier_moves_from_the_regions_to_the_run(region_scenes, tmp_path, monkeypatch) -> None:
    store = RegionStore.find(region_scenes)
    kept = tmp_path / "weights"
    kept.write_text("weights")
    monkeypatch.setattr(RegionStore, "classifier_path", property(lambda _: kept))
    entering._copy_backbone(store, tmp_path / "backbone")
    assert (tmp_path / "backbone" / CLASSIFIER_NAME).read_text() == "weights"

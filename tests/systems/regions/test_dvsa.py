"""The recipe `dvsa`: regions and words from a dataset to a run, and what does not go with them."""

from __future__ import annotations

import dataclasses
import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from tests.tiny import tiny
from vsemb import Run, recipes
from vsemb.data.features.files import CLASSIFIER_NAME
from vsemb.errors import DataError
from vsemb.runs.measure import evaluate_run
from vsemb.runs.train import train
from vsemb.systems.regions import image_tower
from vsemb.systems.regions.dvsa import DVSA
from vsemb.systems.regions.encoders import ContextualTokenEncoder, RegionEncoder
from vsemb.systems.regions.image_tower import RegionImages, Regions, kept_extractor, kept_regions, regions_of
from vsemb.systems.regions.region_store import RegionStore
from vsemb.systems.regions.signature import WholeImageInput
from vsemb.systems.regions.similarities import MaxSim


def test_paper_follows_section_3_3() -> None:
    recipe = recipes.get("dvsa", "paper")
    optimizer, loss = recipe.optimizer.build(10, 15), recipe.loss.build(10)
    assert (optimizer.momentum, optimizer.clipvalue, optimizer.global_clipnorm) == (0.9, 5.0, None)
    assert (loss.margin, loss.negatives, recipe.batches.size) == (1.0, "all", 100)
    assert 1000 <= recipe.embedding_dim <= 1600 and 300 <= recipe.text.encoder.units <= 600
    model = recipe.with_overrides(["embedding_dim=8", "text.encoder.units=4"]).build(10, {"feature_dim": 6}, "float32")
    assert model.similarity == MaxSim()
    assert isinstance(model.image_encoder, RegionEncoder)
    assert isinstance(model.text_encoder, ContextualTokenEncoder) and model.text_encoder.cell == "brnn"
    assert model.encode_images(np.ones((2, 5, 6))).shape == (2, 5, 8)
    assert model.encode_texts(np.ones((2, 3), int)).shape == (2, 3, 8)


VARIANTS = [
    *((variant, ()) for variant in sorted(DVSA)),
    ("paper", ("similarity=sum-sim", "text.encoder.cell=gru", "image.init_scale=null")),
    ("adam", ("similarity=sum-sim", "loss=ranking-fragments")),
    ("cross-attention", ("similarity.attend=words", "text.encoder.cell=lstm", "image.use_bias=false")),
]


@pytest.mark.parametrize(("variant", "changes"), VARIANTS)
def test_a_step_of_every_variant(variant: str, changes: tuple[str, ...]) -> None:
    recipe, generator = tiny(recipes.get("dvsa", variant), *changes), np.random.default_rng(0)
    keras.utils.set_random_seed(1)
    model = recipe.build(10, {"feature_dim": 6}, "float32")
    model.compile(recipe.optimizer.build(10, 15), loss=recipe.loss.build(10), run_eagerly=True)
    before = [variable.numpy() for variable in model.trainable_variables]
    batch = {
        "image": generator.normal(size=(4, 3, 6)).astype(np.float32),
        "text": generator.integers(2, 10, (4, 3)),
        "image_id": np.arange(4),
    }
    # The first step of a schedule may have a rate of 0.
    data = tf.data.Dataset.from_tensors(batch).repeat(2)
    (loss,) = model.fit(data, shuffle=False, verbose=0).history["loss"]
    assert np.isfinite(loss) and loss > 0
    for variable, values in zip(model.trainable_variables, before, strict=True):
        assert (variable.numpy() != values).any(), variable.path


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "changes"), VARIANTS)
def test_every_variant_trains(variant: str, changes: tuple[str, ...], region_scenes, tmp_path) -> None:
    run = train(tiny(recipes.get("dvsa", variant), "training.epochs=1", *changes), region_scenes, tmp_path / "run")
    assert run.multi_vector and run.info["status"] == "finished"
    metrics = evaluate_run(run, region_scenes)
    assert run.info["best_recall_sum"] == pytest.approx(metrics.recall_sum)


def test_a_run_keeps_what_embeds_new_images(region_run: Run, region_scenes) -> None:
    store = regions_of(region_run, region_scenes)
    assert isinstance(store, RegionStore) and store.count == 6
    assert kept_regions(region_run.path) == store.regions
    assert region_run.info["features"] == store.fingerprint and region_run.info["feature_dim"] == store.dim
    assert region_run.info["regions"] == store.network


@pytest.mark.slow
def test_new_images_have_the_regions_of_the_cache(region_run: Run, region_scenes) -> None:
    store, split = regions_of(region_run, region_scenes), region_scenes.split("val")
    encoded = np.array([split.read_image(0)], object)
    wanted = store.rows(split.ids[:1])
    regions = kept_extractor(region_run.path)(encoded)
    np.testing.assert_array_equal(regions.boxes, store.boxes(split.ids[:1]))
    # Stored as float16.
    np.testing.assert_allclose(regions.features, wanted, rtol=2**-10, atol=1e-4)
    tower: Regions = region_run.recipe.image
    # More than there are cannot be read.
    for most, count in ((2, 2), (9, 6)):
        few = dataclasses.replace(tower, max_regions=most).image_input(region_run.path).extractor
        assert dataclasses.replace(few.regions, count=5) == store.regions and few.count == count
    whole, valid = WholeImageInput.of(kept_extractor(region_run.path, 1, source="grid"))(encoded)
    np.testing.assert_allclose(whole, regions.features[:, 0], rtol=1e-5)
    assert valid.numpy().tolist() == [True]
    assert tower.further_inputs(region_run.path, encoded[0], "image") == {}
    assert "of 6 regions at most (grid)" in tower.facts(region_run.path)
    assert "of the whole image alone" in dataclasses.replace(tower, max_regions=1).facts(region_run.path)


def test_it_learns(region_run: Run, region_scenes) -> None:
    assert region_run.multi_vector and region_run.info["status"] == "finished"
    metrics = evaluate_run(region_run, region_scenes)
    assert region_run.info["best_recall_sum"] == pytest.approx(metrics.recall_sum)
    lines = (region_run.path / "metrics.jsonl").read_text().splitlines()
    losses = [float(line.split('"loss": ')[1].split(",")[0]) for line in lines]
    assert losses[-1] < losses[0]


def test_whole_images_alone_are_the_first_region(region_scenes) -> None:
    store, split = RegionStore.find(region_scenes), region_scenes.split("val")
    images = RegionImages(store, split, max_regions=1)
    rows = np.array([3, 0])
    assert images.spec.shape == (1, store.dim)
    np.testing.assert_array_equal(images.gather(rows), store.rows(split.ids[rows])[:, :1])
    assert RegionImages(store, split, max_regions=100).spec.shape == (store.count, store.dim)


def test_features_are_scaled_by_real_regions(region_scenes, monkeypatch) -> None:
    store, split, tower = RegionStore.find(region_scenes), region_scenes.split("train"), Regions()
    regions = tower.features(store, split)
    assert regions.shape == (int((store.boxes(split.ids) > 0).any(-1).sum()), store.dim)
    monkeypatch.setattr(image_tower, "_STATISTICS", 100)  # of 48 * 6: every second image
    assert len(tower.features(store, split)) == (store.boxes(split.ids[::2]) > 0).any(-1).sum()
    # A model of whole images reads no other region, and all 48 are fewer than 100.
    np.testing.assert_array_equal(Regions(max_regions=1).features(store, split), store.rows(split.ids)[:, 0])


@pytest.mark.parametrize(
    ("override", "argument"),
    [
        ("image=pixels", "image"),
        ("image=features", "image"),
        ("image.projection=none", "recipe field"),
        ("text.encoder=sequence-and-bag", "text.encoder"),
        ("text.encoder=projection-mlp", "text.encoder"),
        ("text.encoder.pooling=mean", "recipe field"),
        ("text.encoder.directions=concat", "recipe field"),
        ("text.encoder.cell=rnn", "text.encoder.cell"),
        ("initialization=cca", "initialization"),
        ("validation=zero-shot", "validation"),
        ("similarity=cosine", "image"),
        ("image.max_regions=0", "image.max_regions"),
    ],
)
def test_what_does_not_go_with_regions_is_refused(override: str, argument: str) -> None:
    with raises_argument(argument):
        recipes.get("dvsa").with_overrides([override])


@pytest.mark.parametrize(
    ("override", "argument"),
    [
        ("text.encoder=contextual-tokens", "text.encoder"),
        ("image=regions", "image"),
        ("image.max_regions=1", "recipe field"),
    ],
)
def test_what_only_regions_have_is_refused_elsewhere(override: str, argument: str) -> None:
    with raises_argument(argument):
        recipes.get("kiros2014").with_overrides([override])


@pytest.mark.parametrize("encoder", ["sequence-and-bag.sequence", "projection-mlp.encoder"])
def test_one_vector_is_not_made_of_tokens_of_many(encoder: str) -> None:
    kind, _, field = encoder.partition(".")
    with raises_argument(f"text.encoder.{field}"):
        recipes.get("vsepp").with_overrides([f"text.encoder={kind}", f"text.encoder.{field}=contextual-tokens"])


def test_gradients_are_cut_one_way() -> None:
    with raises_argument("clipvalue"):
        recipes.get("dvsa", "paper").with_overrides(["optimizer.global_clipnorm=2"])


def test_a_data_service_is_refused(region_recipe, region_scenes, tmp_path) -> None:
    with raises_argument("data_service"):
        train(region_recipe, region_scenes, tmp_path / "run", data_service="grpc://localhost:1")


def test_without_regions_the_command_that_makes_them_is_named(scenes, tiny_run, tmp_path) -> None:
    with pytest.raises(DataError, match="vsemb regions"):
        train(recipes.get("dvsa"), scenes, tmp_path / "run")
    with pytest.raises(DataError, match="dvsa"):
        regions_of(tiny_run, scenes)


def test_a_run_opens_in_another_process(region_run: Run, region_scenes) -> None:
    keras.backend.clear_session()
    again = Run.open(region_run.path)
    ids, offsets = again.encode(["a red circle"])
    assert len(ids) == 3
    images = again.images_of(region_scenes, region_scenes.split("val")).gather(np.arange(2))
    np.testing.assert_array_equal(again.model.encode_images(images), region_run.model.encode_images(images))


def test_a_run_ranks_with_the_classifier_of_its_regions(region_run: Run, tmp_path, monkeypatch) -> None:
    copy = shutil.copytree(region_run.path, tmp_path / "run")
    config = dataclasses.replace(kept_regions(region_run.path), source="selective-search", rank="confidence")
    (copy / "backbone" / "regions.json").write_text(json.dumps(config.to_json()))
    (copy / "backbone" / CLASSIFIER_NAME).write_text("weights")
    info = json.loads((copy / "run.json").read_text())
    del info["files"]
    (copy / "run.json").write_text(json.dumps(info))
    asked = []
    monkeypatch.setattr(image_tower, "build_classifier", lambda *arguments: asked.append(arguments))
    image_input = Run.open(copy).image_input
    assert image_input is not None and image_input.extractor.regions == config
    assert [path for _, path in asked] == [copy / "backbone" / CLASSIFIER_NAME]
    assert Run.open(region_run.path).image_input is not None
    assert len(asked) == 1


def test_the_classifier_moves_from_the_regions_to_the_run(region_scenes, tmp_path, monkeypatch) -> None:
    store = RegionStore.find(region_scenes)
    kept = tmp_path / "weights"
    kept.write_text("weights")
    monkeypatch.setattr(RegionStore, "classifier_path", property(lambda _: kept))
    Regions().keep(store, tmp_path)
    assert (tmp_path / "backbone" / CLASSIFIER_NAME).read_text() == "weights"

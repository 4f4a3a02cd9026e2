"""Captions of annotated regions: features, the ranking of snippets and human agreement against slow references."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from vsemb import Dataset
from vsemb.cli.__main__ import main
from vsemb.errors import DataError
from vsemb.image.backbones import build_backbone
from vsemb.image.decode import decode_images
from vsemb.recipes.towers import kept_backbone
from vsemb.systems.captions.protocols import captions_table
from vsemb.systems.captions.recipe import SNIPPETS
from vsemb.systems.captions.region_measure import best_snippets, measure_region_captions, region_features
from vsemb.systems.captions.region_texts import named_region_texts

pytest.importorskip("pycocoevalcap", reason="the extra `captions` is not installed")


@pytest.fixture(scope="module")
def dataset(region_caption_run) -> Dataset:
    return Dataset.open(region_caption_run.data_path)


@pytest.mark.slow
def test_features_are_those_of_the_cache(region_caption_run, dataset) -> None:
    part, store = dataset.split("val"), region_caption_run.features_of(dataset)
    boxes, rows = store.boxes(part.ids[:3]), np.array([0, 0, 2, 2])
    # In any order, and the whole image too.
    chosen = np.array([2, 1, 1, 0])
    features = region_features(region_caption_run, part, rows, boxes[rows, chosen])
    np.testing.assert_allclose(features, store.rows(part.ids[:3])[rows, chosen], rtol=2**-9, atol=1e-3)


def test_a_snippet_is_ranked_by_its_score_with_the_region(region_run) -> None:
    snippets = ["a red circle", "circle", "a blue square"]
    features = np.random.default_rng(0).normal(size=(4, region_run.info["feature_dim"])).astype(np.float32)
    model, wanted = region_run.model, []
    for feature in features:
        regions = model.encode_images(feature[None, None])
        words = [model.encode_texts(region_run.encode([text])[0][None]) for text in snippets]
        scores = [float(np.asarray(model.similarity.scores(regions, each))[0, 0]) for each in words]
        wanted.append(int(np.argmax(scores)))
    assert best_snippets(region_run, features, snippets).tolist() == wanted


@pytest.mark.slow
def test_a_run_on_whole_images_embeds_crops(region_caption_run, caption_run, dataset, tmp_path) -> None:
    path = tmp_path / "run"
    shutil.copytree(region_caption_run.path, path, ignore=shutil.ignore_patterns("regions.json", SNIPPETS))
    run, part = dataclasses.replace(region_caption_run, path=path), dataset.split("val")
    config, weights = kept_backbone(path)
    pixels, _ = decode_images(tf.constant([part.read_image(1)]), config.size)
    wanted = build_backbone(config, weights)(pixels).numpy()[0]
    features = region_features(run, part, np.array([1, 1]), np.array([[0, 0, 1, 1], [0, 0, 0.5, 0.5]], np.float32))
    np.testing.assert_allclose(features[0], wanted, rtol=1e-4, atol=1e-5)
    assert np.abs(features[1] - wanted).max() > 1e-3
    with pytest.raises(DataError, match=re.escape(str(caption_run.path))):
        region_features(caption_run, part, np.array([0]), np.ones((1, 4), np.float32))
    with pytest.raises(DataError, match=re.escape(str(path))):
        measure_region_captions([run], part, named_region_texts(part), alignment=run, limit=1, meteor=False)


@pytest.mark.slow
def test_the_table_has_runs_ranking_and_people(region_caption_run, region_run, dataset) -> None:
    part = dataset.split("val")
    texts = named_region_texts(part)
    references = [each for each in texts.references() if len(each) > 1][:4]
    table = measure_region_captions([region_caption_run], part, texts, alignment=region_run, limit=4, meteor=False)
    assert [row.name for row in table.rows][1:] == ["best training snippet", "a person"]
    assert table.references == references and table.rows[2].captions == [each[0] for each in references]
    assert all(len(row.captions) == 4 and all(row.captions) for row in table.rows)
    # Without the penalty of brevity, unigrams of people by hand: the words that another text of the region has.
    words = [(word, other) for own, *other in references for word in own.split()]
    precision = np.mean([any(word in each.split() for each in other) for word, other in words])
    assert 0 < table.rows[2].metrics.bleu[0] <= 100 * precision + 1e-6
    assert "val: 4 regions" in captions_table(table, "regions")
    assert len(json.loads(json.dumps(table.to_json()))["images"]) == 4


@pytest.mark.slow
def test_the_command_prints_the_table(region_caption_run, opened, capsys) -> None:
    opened(region_caption_run)
    arguments = [
        "evaluate",
        str(region_caption_run.path),
        "--protocol",
        "region-captions",
        "--limit",
        "2",
        "--no-meteor",
    ]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("val: 2 regions") and "a person" in printed
    assert main([*arguments, "--image-list", "images.json"]) == 1
    assert "`image_list`" in capsys.readouterr().err

"""A run of the recipe pcme: it learns, and its export and index give the scores of its model."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from vsemb.models import DualEncoder
from vsemb.runs.measure import embedded, evaluate_run
from vsemb.runs.run import Run
from vsemb.searching.storage import read_index


def test_it_learns(pcme_run, scenes) -> None:
    log = [line for line in (pcme_run.path / "metrics.jsonl").read_text().splitlines() if line]
    assert len(log) == 4
    metrics = evaluate_run(pcme_run, scenes, "val")
    # Twice as much as chance gives with 12 images and five captions each.
    assert metrics.text_to_image["R@1"] > 2 * 100 / 12
    assert float(pcme_run.model.logit_scale.learned_bias) != pytest.approx(5.0)


def test_it_is_read_again(pcme_run, scenes) -> None:
    again = Run.open(pcme_run.path)
    assert isinstance(again.model, DualEncoder) and again.recipe == pcme_run.recipe
    for one, other in zip(embedded(again, scenes, "val"), embedded(pcme_run, scenes, "val"), strict=True):
        np.testing.assert_array_equal(one, other)


def test_its_index_finds_what_its_model_scores_best(pcme_run, scenes, tmp_path) -> None:
    from vsemb.runs.indexing import build_index

    build_index(pcme_run, scenes, "val", out=tmp_path / "index")
    images, texts, _ = embedded(pcme_run, scenes, "val")
    rows, _ = read_index(tmp_path / "index").search(texts[:5], 3)
    scores = np.asarray(pcme_run.model.similarity.scores(images, texts[:5])).T
    found = np.take_along_axis(scores, rows, axis=1)
    np.testing.assert_allclose(found, -np.sort(-scores, axis=1)[:, :3], rtol=1e-5)


def test_its_savedmodel_embeds_and_searches_as_the_run(pcme_run, scenes, tmp_path) -> None:
    from vsemb.runs.indexing import build_index
    from vsemb.runs.serve import export_run

    build_index(pcme_run, scenes, "val", out=tmp_path / "index")
    export_run(pcme_run, tmp_path / "models" / "pcme", index=read_index(tmp_path / "index"))
    signatures = tf.saved_model.load(str(tmp_path / "models" / "pcme" / "1")).signatures
    captions = tf.constant(scenes.split("val").captions[:5])
    images, texts, _ = embedded(pcme_run, scenes, "val")
    np.testing.assert_allclose(signatures["encode_text"](text=captions)["embedding"], texts[:5], atol=1e-5)
    found = signatures["search_text"](text=captions, k=tf.constant([3]))
    scores = np.asarray(pcme_run.model.similarity.scores(images, texts[:5])).T
    np.testing.assert_allclose(found["scores"], -np.sort(-scores, axis=1)[:, :3], rtol=1e-4)

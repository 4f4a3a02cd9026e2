"""The table of captions: runs beside baselines, against slow references, and what data do not have."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.data.features.store import FeatureStore
from vsemb.searching.scan import best_of_blocks
from vsemb.systems.captions import caption_measure
from vsemb.systems.captions.caption_measure import CaptionTable, measure_captions
from vsemb.systems.captions.caption_metrics import evaluate_captions
from vsemb.systems.captions.captioning import CaptionOptions, caption_split
from vsemb.systems.captions.scene_truth import background_of, is_true
from vsemb.systems.captions.training_captions import TrainingCaptions

pytest.importorskip("pycocoevalcap", reason="the extra `captions` is not installed")


@pytest.fixture(scope="module")
def table(caption_run, scenes) -> CaptionTable:
    return measure_captions([caption_run], scenes, "val", meteor=False, references=True)


def test_rows_are_the_runs_then_the_baselines(table, caption_run) -> None:
    names = [str(caption_run.path), "nearest training image", "a person"]
    assert [row.name for row in table.rows] == names
    assert [row.recipe for row in table.rows] == ["multimodal-rnn", None, None]
    assert table.split == "val" and len(table.keys) == 12
    assert any(note.startswith("a person: ") for note in table.notes)


def test_a_run_is_measured_by_its_best_caption(table, caption_run, scenes) -> None:
    written = caption_split(caption_run, scenes, "val", CaptionOptions(n_best=1))
    part = scenes.split("val")
    train = TrainingCaptions(scenes.split("train").captions)
    texts = [best[0][0] for best in written]
    references = list(part.caption_lists())
    assert table.rows[0].captions == texts and table.references == references
    assert table.rows[0].log_probs == pytest.approx([best[0][1] for best in written])
    assert table.rows[0].metrics == evaluate_captions(texts, references, train=train, meteor=False)
    truths = [
        is_true(text, objects, 32, background_of(part.read_image(row)))
        for row, (text, objects) in enumerate(zip(texts, part.objects, strict=True))
    ]
    assert table.rows[0].truths == truths
    assert table.rows[0].true == 100 * sum(truth is True for truth in truths) / 12


def test_the_nearest_image_is_that_of_a_slow_search(table, scenes, monkeypatch, caption_run) -> None:
    store, train, val = FeatureStore.find(scenes), scenes.split("train"), scenes.split("val")
    known = TrainingCaptions(train.captions)
    for row, caption in enumerate(table.rows[1].captions):
        (image,) = store.rows(val.ids[[row]])
        distances = [float(np.linalg.norm(image - other)) for other in store.rows(train.ids)]
        captions = train.captions_of(int(np.argmin(distances)))
        # Of its captions, the one most similar to the others.
        likeness = [known.similarities([one, *captions])[0].sum() for one in captions]
        assert caption == captions[int(np.argmax(likeness))]
    # Blocks change nothing.
    monkeypatch.setattr(caption_measure, "best_of_blocks", functools.partial(best_of_blocks, block=200))
    again = measure_captions([caption_run], scenes, "val", meteor=False)
    assert again.rows[1].captions == table.rows[1].captions
    assert table.rows[1].metrics.novelty == 0


def test_people_are_measured_against_the_other_captions(table, scenes) -> None:
    captions = list(scenes.split("val").caption_lists())
    expected = evaluate_captions([own[0] for own in captions], [own[1:] for own in captions], meteor=False)
    assert table.rows[2].metrics.bleu == expected.bleu
    assert table.rows[2].true == 100


def test_an_image_is_not_its_own_neighbour(caption_run, scenes) -> None:
    table = measure_captions([caption_run], scenes, "train", limit=5, meteor=False)
    own = list(scenes.split("train").caption_lists())[:5]
    assert not any(text in texts for text, texts in zip(table.rows[1].captions, own, strict=True))
    assert len(table.keys) == 5 and "These images were trained on." in table.notes


def test_json_has_images_with_scores_and_nearest_sentences(table) -> None:
    written = json.loads(json.dumps(table.to_json(), allow_nan=False))
    assert [row["name"] for row in written["measured"]] == [row.name for row in table.rows]
    assert all(0 <= row["true"] <= 100 for row in written["measured"])
    assert len(written["images"]) == 12
    first = written["images"][0]
    assert first["references"] == table.references[0] and len(first["captions"]) == 3
    keys = {"name", "text", "log_prob", "rouge_l", "cider", "true", "nearest", "nearest_similarity"}
    assert set(first["captions"][0]) == keys
    assert set(first["captions"][1]) == keys - {"log_prob"}
    # The neighbour's caption is a training sentence.
    assert first["captions"][1]["nearest_similarity"] == pytest.approx(1)


@pytest.mark.slow
def test_regions_take_the_whole_image(region_caption_run, region_scenes) -> None:
    table = measure_captions([region_caption_run], region_scenes, "val", limit=3, meteor=False)
    assert len(table.rows) == 2 and table.rows[1].metrics.novelty == 0


def test_data_without_training_captions_or_truth(caption_run, scenes, monkeypatch) -> None:
    monkeypatch.setattr(caption_measure, "has_truth", lambda objects, size: False)
    monkeypatch.setattr(caption_measure, "_TRAIN", "none")
    table = measure_captions([caption_run], scenes, "val", limit=3, meteor=False)
    (row,) = table.rows
    assert (row.true, row.truths, row.nearest, row.metrics.novelty) == (None, None, None, None)
    assert table.nearest_sentence(row, 0) is None
    assert any("no split `train`" in note for note in table.notes)
    assert set(table.to_json()["images"][0]["captions"][0]) == {
        "name",
        "text",
        "log_prob",
        "rouge_l",
        "cider",
    }


def test_an_image_without_a_caption_scores_nothing(caption_run, scenes, monkeypatch) -> None:
    def silent(run, dataset, split, options, *, rows):
        return [[] for _ in rows]

    monkeypatch.setattr(caption_measure, "caption_split", silent)
    row = measure_captions([caption_run], scenes, "val", meteor=False).rows[0]
    assert row.captions == [""] * 12 and row.metrics.cider == 0 and row.true == 0


@pytest.mark.parametrize(("name", "value"), [("limit", 0), ("split", "vall")])
def test_refusals(caption_run, scenes, name, value) -> None:
    with raises_argument(name):
        measure_captions([caption_run], scenes, meteor=False, **{name: value})
    with raises_argument("runs"):
        measure_captions([], scenes)

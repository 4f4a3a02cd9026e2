"""Measured alignment: a run that knows what words mean against slow references, tokens, choice on val."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from tests.raising import raises_argument
from tests.systems.regions.knowing_run import KnowingRun
from vsemb.data import synthetic
from vsemb.data.records import ImageRecord
from vsemb.data.store import Split, StoredDataset
from vsemb.data.writing.writer import write_dataset
from vsemb.errors import DataError
from vsemb.systems.regions.image_tower import regions_of
from vsemb.systems.regions.pointing import (
    PointingMetrics,
    box_iou,
    named_objects,
    object_nouns,
)
from vsemb.systems.regions.pointing_task import PointingTask, check_affinities, measure_pointing
from vsemb.text import Vocabulary, WordTokenizer

AFFINITIES = [0.0, 0.05, 0.3, 2.0]
SOURCE = {"format": "test", "path_name": "test", "sha256": {}, "options": {}}


@pytest.fixture(scope="module")
def knowing(scenes) -> KnowingRun:
    return KnowingRun(scenes)


@pytest.fixture(scope="module")
def task(knowing, scenes) -> PointingTask:
    return PointingTask(knowing, scenes, "val")


@pytest.fixture(scope="module")
def metrics(task) -> PointingMetrics:
    return task.measure(AFFINITIES)


def slow_path(unaries: list[list[float]], affinity: float) -> list[int]:
    """The best chain by trying every region before every region."""
    best = list(unaries[0])
    steps = []
    for row in unaries[1:]:
        before = [
            max(range(len(row)), key=lambda old, new=new: best[old] + affinity * (old == new))
            for new in range(len(row))
        ]
        best = [row[new] + best[old] + affinity * (old == new) for new, old in enumerate(before)]
        steps.append(before)
    path = [max(range(len(best)), key=best.__getitem__)]
    for before in reversed(steps):
        path.append(before[path[-1]])
    return path[::-1]


def slow_pointing(run: KnowingRun, part: Split, affinity: float) -> dict[str, list[float]]:
    """Word by word: right, chance, whole image, ceiling; nouns apart."""
    found: dict[str, list[float]] = {}
    for entry in part.index.entries():
        (features,), (boxes,) = run.store.rows([entry["id"]]), run.store.boxes([entry["id"]])
        real = int(boxes.any(axis=1).sum())
        objects = np.array([item["box"] for item in entry["objects"]]) / 32
        overlaps = box_iou(boxes, objects) >= 0.5
        for text, pairs in zip(entry["captions"], entry["alignments"], strict=True):
            ids = run.tokenizer([text]).numpy()[0]
            path = slow_path(
                [[float(features[region, number - 1]) for region in range(real)] for number in ids], affinity
            )
            named = named_objects(pairs)
            for word, items in named.items():
                right = [any(overlaps[region, item] for item in items) for region in range(real)]
                values = {
                    "right": right[path[word]],
                    "chance": sum(right) / real,
                    "whole": right[0],
                    "ceiling": any(right),
                }
                for name, value in values.items():
                    found.setdefault(name, []).append(value)
                    if word in object_nouns(named):
                        found.setdefault(f"{name} of nouns", []).append(value)
    return found


@pytest.mark.parametrize("affinity", AFFINITIES, ids=str)
def test_equals_a_slow_reference(knowing, scenes, metrics, affinity) -> None:
    slow = slow_pointing(knowing, scenes.split("val"), affinity)
    means = {name: 100 * float(np.mean(values)) for name, values in slow.items()}
    shares = {"right": metrics.accuracy[affinity], "chance": metrics.chance}
    shares |= {"whole": metrics.whole_image, "ceiling": metrics.ceiling}
    for name, share in shares.items():
        # Means of the same numbers; only their sums round.
        assert (share.words, share.nouns) == pytest.approx((means[name], means[f"{name} of nouns"]), abs=1e-9)
    assert (metrics.images, metrics.words, metrics.nouns, metrics.undecided) == (
        12,
        len(slow["right"]),
        len(slow["right of nouns"]),
        0,
    )


def test_blocks_of_captions_change_nothing(knowing, scenes, task, metrics, monkeypatch) -> None:
    assert len(task._blocks) == 1
    monkeypatch.setattr("vsemb.systems.regions.pointing_task._CAPTIONS", 7)
    parts = PointingTask(knowing, scenes, "val")
    assert len(parts._blocks) == 9
    assert parts.measure(AFFINITIES) == metrics
    # Sums of other parts round otherwise.
    assert parts.spread == pytest.approx(task.spread, rel=1e-12)


def test_words_of_a_phrase_help_one_another(knowing, scenes) -> None:
    metrics, chosen = measure_pointing(knowing, scenes, "val", affinities=AFFINITIES)
    # Of two rings, one is turquoise; by itself "ring" is a guess, and a huge affinity puts all words on one.
    each = {affinity: share.words for affinity, share in metrics.accuracy.items()}
    assert metrics.chance.words < each[2.0] < each[0.0] < each[chosen] <= metrics.ceiling.words
    assert chosen in (0.05, 0.3) and metrics.whole_image.words < 40
    assert chosen == metrics.best_affinity()


def test_a_huge_affinity_puts_all_words_on_one_region(task) -> None:
    chosen = task.chosen(1e6)
    for caption in np.unique(task._words.captions):
        assert len(set(chosen[task._words.captions == caption])) == 1
    # Behind float32's largest number as well.
    assert (task.chosen(1e300) == chosen).all()


def test_spread_is_that_of_the_regions_of_a_word(knowing, scenes, task) -> None:
    deviations = []
    for entry in scenes.split("val").index.entries():
        (features,) = knowing.store.rows([entry["id"]])
        features = features[features.any(axis=1)].astype(float)
        for text in entry["captions"]:
            scores = features[:, knowing.tokenizer([text]).numpy()[0] - 1]  # (regions, words)
            deviations += [*(scores - scores.mean(axis=0)).ravel()]
    # Scores are float32.
    assert task.spread == pytest.approx(math.sqrt(np.mean(np.square(deviations))), rel=1e-5)
    affinities = task.affinities()
    assert affinities[0] == 0 and len(affinities) == 5 and affinities == sorted(affinities)
    assert affinities[3] == float(f"{task.spread:.2g}")


def test_affinity_is_chosen_on_val_whatever_is_measured(knowing, scenes, task, monkeypatch) -> None:
    metrics, chosen = measure_pointing(knowing, scenes, "test")
    test = PointingTask(knowing, scenes, "test")
    assert list(metrics.accuracy) == task.affinities() != test.affinities()
    assert chosen == task.measure(task.affinities()).best_affinity()
    assert metrics == test.measure(task.affinities())
    # Without a validation split there is nothing to choose on.
    monkeypatch.setitem(scenes.manifest["splits"], "val", {"images": 0})
    metrics, chosen = measure_pointing(knowing, scenes, "test")
    assert chosen is None and list(metrics.accuracy) == test.affinities()


def test_intervals_pass_through(knowing, scenes) -> None:
    usual, _ = measure_pointing(knowing, scenes, affinities=[0], bootstrap=50)
    assert usual.ceiling.words == 100
    low, high = usual.accuracy[0.0].intervals["words"]
    assert low < usual.accuracy[0.0].words < high
    json.dumps(usual.to_json(), allow_nan=False)


def write(path, captions, pairs, **changes) -> StoredDataset:
    (scene,) = synthetic.generate({"train": 1}, seed=3, image_size=32)
    boxes = ([0, 0, 8, 8], [16, 16, 8, 8])
    record = ImageRecord(
        key="one.png",
        captions=tuple(captions),
        split="train",
        image=scene.image,
        objects=tuple({"label": "ball", "box": box} for box in boxes),
        alignments=tuple(pairs),
    )
    return write_dataset([dataclasses.replace(record, **changes)], path, name="one", source=SOURCE)


def test_words_between_blanks_and_tokens_are_lined_up(tmp_path) -> None:
    caption = "A big-red dog's ball , here ! And 2nd ball"
    # Tokens: a big red dog 's ball here and 2nd ball.
    pairs = ((1, 0), (2, 0), (3, 0), (4, 0), (8, 1), (9, 1))
    dataset = write(tmp_path / "one", [caption, "no object"], [pairs, ()])
    task = PointingTask(KnowingRun(dataset), dataset, "train")
    assert task._words.tokens.tolist() == [1, 3, 5, -1, 8, 9]
    assert task._words.captions.tolist() == [0] * 6
    # A comma has no letter, so no region.
    assert task.chosen(0.0)[3] == -1 and (np.delete(task.chosen(0.0), 3) >= 0).all()
    metrics = task.measure([0.0])
    assert (metrics.words, metrics.nouns, metrics.undecided, metrics.images) == (6, 2, 1, 1)


def test_words_behind_the_longest_text_are_not_read(tmp_path) -> None:
    dataset = write(tmp_path / "one", ["one ball and two balls"], [((1, 0), (4, 0), (4, 1))])
    read = PointingTask(KnowingRun(dataset, noise=0), dataset, "train").measure([0.0])
    cut = PointingTask(KnowingRun(dataset, noise=0, max_length=4), dataset, "train").measure([0.0])
    assert (read.accuracy[0.0].words, read.undecided) == (100, 0)
    assert (cut.accuracy[0.0].words, cut.undecided, cut.words) == (50, 1, 2)


def test_a_word_that_nobody_knows_points_too(tmp_path) -> None:
    dataset = write(tmp_path / "one", ["one ball"], [((1, 0),)])
    run = KnowingRun(dataset)
    run.tokenizer = WordTokenizer(Vocabulary(["one"]))
    assert PointingTask(run, dataset, "train").measure([0.0]).undecided == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"objects": ()}, "0 of 0"),
        ({"objects": ({"label": "ball", "box": [1, 2, 3]},)}, r"one\.png"),
        ({"objects": ({"label": "ball", "box": [1, 2]},) * 2}, r"one\.png"),
        ({"alignments": (((2, 0),),)}, "'one ball'"),
        ({"alignments": ()}, "vsemb scenes"),
        ({"alignments": ((),)}, "vsemb scenes"),
    ],
    ids=["no objects", "short box", "shorter boxes", "no such word", "no alignments", "nothing aligned"],
)
def test_data_that_cannot_be_measured(tmp_path, changes, said) -> None:
    dataset = write(tmp_path / "one", ["one ball"], [((1, 0),)], **changes)
    run = KnowingRun(write(tmp_path / "good", ["one ball"], [((1, 0),)]))
    with pytest.raises(DataError, match=said):
        PointingTask(run, dataset, "train")


def test_what_is_out_of_range_is_refused_before_anything_is_opened(scenes) -> None:
    for options, name in (
        ({"affinities": []}, "affinity"),
        ({"affinities": [0, -1]}, "affinity"),
        ({"affinities": [math.inf]}, "affinity"),
        ({"affinities": [math.nan]}, "affinity"),
        ({"bootstrap": -1}, "bootstrap"),
        ({"split": "vall"}, "split"),
    ):
        with raises_argument(name):
            measure_pointing(None, scenes, **options)
    assert str(check_affinities([-0.0])) == "[0.0]"


def test_scores_that_are_not_finite_measure_nothing(scenes) -> None:
    run = KnowingRun(scenes)
    run.store._rows[int(scenes.split("val").ids[3])][1, 5] = np.nan
    with pytest.raises(DataError, match="NaN"):
        PointingTask(run, scenes, "val").measure([0.0])


def test_a_run_of_whole_images_is_refused(tiny_run, scenes) -> None:
    with pytest.raises(DataError, match="dvsa"):
        measure_pointing(tiny_run, scenes)


def test_a_trained_run_is_measured(region_run, region_scenes) -> None:
    metrics, chosen = measure_pointing(region_run, region_scenes, "test")
    assert chosen in metrics.accuracy
    assert metrics.words > 100 and 1 < metrics.regions <= 6
    for share in (metrics.chance, *metrics.accuracy.values()):
        assert 0 <= share.words <= metrics.ceiling.words
    # Word by word, as the model scores a caption and its image.
    part, store = region_scenes.split("test"), regions_of(region_run, region_scenes)
    task = PointingTask(region_run, region_scenes, "test")
    regions = region_run.model.encode_images(store.rows(part.ids)).numpy()
    texts = region_run.model.encode_texts(region_run.tokenizer(part.captions)).numpy()
    empty = 0
    for word, region in enumerate(task.chosen(0.0)):
        caption = task._words.captions[word]
        vector = texts[caption, task._words.tokens[word]]
        empty += not vector.any()
        best = np.argmax(regions[part.caption_rows[caption]] @ vector) if vector.any() else -1
        assert region == best
    # A network of rectified units may have nothing to say of a word: a vector of zeros, which is no word.
    assert metrics.undecided == empty


def test_a_run_of_whole_images_chooses_among_all_regions(region_run, region_scenes) -> None:
    # Of another recipe with the same weights.
    recipe = region_run.recipe.with_overrides(["image.max_regions=1"])
    run = dataclasses.replace(region_run, recipe=recipe)
    part = region_scenes.split("val")
    assert run.images_of(region_scenes, part).spec.shape[0] == 1
    results, same = (PointingTask(each, region_scenes, "val").measure([0.0, 1.0]) for each in (run, region_run))
    assert results == same and results.regions > 1

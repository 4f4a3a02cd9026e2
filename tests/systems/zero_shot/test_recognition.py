"""Zero-shot measuring of runs: unseen classes far above chance, disjoint classes checked, typing errors."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.evaluation import Embedder
from vsemb.systems.zero_shot.class_names import ClassTokenizer
from vsemb.systems.zero_shot.recognition import SIDE, ZeroShotTask
from vsemb.text import Vocabulary


def test_unseen_classes_are_recognized_by_their_texts(class_run, class_scenes) -> None:
    metrics = ZeroShotTask(class_run, class_scenes, "test").measure(top=3)
    assert (metrics.classes, metrics.images, metrics.texts, metrics.top) == (15, 48, 240, 3)
    assert metrics.chance == pytest.approx(100 / 15)
    assert metrics.top1 > 30 and metrics.average_precision > 30
    # By hand, class by class.
    part = class_scenes.split("test")
    embedder = Embedder(class_run.model)
    images = embedder.images(class_run.images_of(class_scenes, part), len(part))
    texts = embedder.texts(*class_run.tokenizer.encode(part.captions))
    classes = np.array(part.class_names)
    names = sorted(set(part.class_names))
    means = np.stack([texts[classes[part.caption_rows] == name].mean(axis=0) for name in names])
    right = np.array(names)[(images @ means.T).argmax(axis=1)] == classes
    assert metrics.top1_images == pytest.approx(100 * right.mean())
    assert metrics.top1 == pytest.approx(100 * np.mean([right[classes == name].mean() for name in names]))


def test_classes_that_were_trained_on_are_refused_and_named(tiny_run, scenes, class_run, class_scenes) -> None:
    shared = set(scenes.split("train").class_names) & set(scenes.split("val").class_names)
    with pytest.raises(DataError, match="--seen") as caught:
        ZeroShotTask(tiny_run, scenes, "val").measure()
    assert any(repr(name) in str(caught.value) for name in shared)
    with pytest.raises(DataError, match="'train'"):
        ZeroShotTask(class_run, class_scenes, "train").measure()
    task = ZeroShotTask(tiny_run, scenes, "val", seen=True)
    assert task.seen is True and task.measure().images == 12
    # Allowed and not the case: still zero-shot.
    assert ZeroShotTask(class_run, class_scenes, "test", seen=True).seen is False
    assert ZeroShotTask(class_run, class_scenes, "test").seen is False


def test_what_a_run_has_seen_is_known_on_another_dataset_too(tiny_run, class_scenes) -> None:
    with pytest.raises(DataError, match="--seen"):
        ZeroShotTask(tiny_run, class_scenes, "test")
    # Trained on images without classes: who knows what the captions were about.
    unlabelled = dataclasses.replace(
        tiny_run, info={name: value for name, value in tiny_run.info.items() if name != "classes"}
    )
    task = ZeroShotTask(unlabelled, class_scenes, "test")
    assert task.seen is None and task.measure().classes == 15


def test_curve(class_run, class_scenes) -> None:
    task = ZeroShotTask(class_run, class_scenes, "test")
    metrics = task.measure(curve=True, top=3)
    most = max(np.bincount(task.text_classes))
    assert 16 < most <= 32 and [point.texts for point in metrics.curve] == [1, 2, 4, 8, 16, None]
    assert metrics.curve[-1].top1 == metrics.top1 == task.measure(top=3).top1
    assert metrics.curve[0].top1 < metrics.top1 and metrics.curve[0].top1_deviation > 0
    json.dumps(metrics.to_json(), allow_nan=False)


def test_typing_errors_cost_a_model_of_words_dearly(class_run, class_scenes, monkeypatch) -> None:
    task = ZeroShotTask(class_run, class_scenes, "test")
    clean = task.measure(top=3)
    embedded = []
    monkeypatch.setattr(task._embedder, "images", lambda *args: embedded.append(args))
    mistyped = task.measure(corrupt=0.6, top=3)
    assert mistyped.top1 < clean.top1 - 10 and embedded == []
    assert task.measure(corrupt=0.6, top=3) == mistyped != task.measure(corrupt=0.6, top=3, seed=1)
    # Whatever is left of them: texts with no word in them are measured too.
    assert task.measure(corrupt=1.0).texts == 240


def test_what_does_not_fit_is_refused(class_run, class_scenes, monkeypatch) -> None:
    task = ZeroShotTask(class_run, class_scenes, "test")
    for name, arguments in (
        ("share", {"corrupt": 1.5}),
        ("top", {"top": 0}),
    ):
        with raises_argument(name):
            task.measure(**arguments)
    with raises_argument("split"):
        ZeroShotTask(class_run, class_scenes, "tests")
    monkeypatch.setitem(vars(class_run), "tokenizer", ClassTokenizer(Vocabulary(task.names)))
    with raises_argument("corrupt"):
        task.measure(corrupt=0.1)


def test_texts_are_those_that_the_run_reads(class_run, class_scenes, monkeypatch) -> None:
    part = class_scenes.split("test")
    given = (list(part.class_names), np.arange(len(part)))
    monkeypatch.setattr(type(class_run), "texts_of", lambda self, split: given)
    task = ZeroShotTask(class_run, class_scenes, "test")
    assert task.texts == part.class_names and (task.text_classes == task.image_classes).all()
    assert task.measure().texts == 48


def test_a_dataset_without_classes_is_refused(class_run, class_scenes, monkeypatch) -> None:
    part = class_scenes.split("test")
    monkeypatch.setattr(part, "class_names", [None, *part.class_names[1:]])
    with pytest.raises(DataError, match=part.keys[0]):
        ZeroShotTask(class_run, class_scenes, "test")


def test_picture(class_run, class_scenes, tmp_path) -> None:
    task = ZeroShotTask(class_run, class_scenes, "test")
    first, second = tmp_path / "first.png", tmp_path / "second.png"
    task.draw(first)
    task.draw(second)
    assert first.read_bytes() == second.read_bytes()
    with Image.open(first) as image:
        assert image.size == (SIDE, SIDE) and len(image.getcolors(1 << 20)) > 100
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(DataError, match=r"folder\.png"):
        task.draw(tmp_path / "folder.png")
    with raises_argument("picture"):
        task.draw(tmp_path / "classes.jpg")


def test_sets_are_recognized_by_the_mean_scores_of_their_texts(region_run, region_scenes, tmp_path) -> None:
    task = ZeroShotTask(region_run, region_scenes, "val", seen=True)
    metrics = task.measure(top=3)
    part, similarity = region_scenes.split("val"), region_run.model.similarity
    embedder = Embedder(region_run.model)
    images = embedder.images(region_run.images_of(region_scenes, part), len(part))
    texts = embedder.texts(*region_run.tokenizer.encode(part.captions))
    scores = np.asarray(similarity.scores(images, texts))
    classes = np.array(part.class_names)
    means = [scores[:, classes[part.caption_rows] == name].mean(axis=1) for name in task.names]
    right = np.array(task.names)[np.argmax(means, axis=0)] == classes
    assert metrics.top1_images == pytest.approx(100 * right.mean())
    assert task.measure(corrupt=0.3).texts == metrics.texts == 60
    assert task.measure(curve=True).curve[-1].top1 == pytest.approx(metrics.top1)
    with pytest.raises(DataError, match="--picture"):
        task.draw(tmp_path / "classes.png")
    assert not list(tmp_path.iterdir())

"""Batches of one image a class: who is drawn, how often, and that (seed, epoch, step) decides it."""

from __future__ import annotations

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.raising import raises_argument
from vsemb.data.records import ImageRecord
from vsemb.data.sources import ImageSource
from vsemb.errors import DataError
from vsemb.systems.zero_shot.class_batches import ClassBatches
from vsemb.text import Vocabulary, WordTokenizer

# Class -> images; the classes are as unequal as may be.
SIZES = {"b": 1, "a": 12, "d": 3, "c": 4}


class RowNumbers(ImageSource):
    """An image source whose images are their own row numbers."""

    spec = tf.TensorSpec((1,), tf.int64)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        return rows[:, None]

    def finish(self, images, seed):
        return images


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    from vsemb.data.writing.writer import write_dataset

    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "PNG")
    records = [
        ImageRecord(
            key=f"{label}{number}.png",
            captions=tuple(f"{label} {number} text{place}" for place in range(1 + number % 3)),
            split="train",
            image=buffer.getvalue(),
            class_name=label,
        )
        for label, size in SIZES.items()
        for number in range(size)
    ]
    source = {"format": "test", "path_name": "test", "sha256": {}, "options": {}}
    path = tmp_path_factory.mktemp("data") / "classes"
    return write_dataset(records, path, name="classes", source=source).split("train")


def make(split, **options) -> ClassBatches:
    tokenizer = WordTokenizer(Vocabulary.from_captions(split.captions))
    return ClassBatches(split, RowNumbers(), tokenizer, **{"batch_size": 3, "seed": 4, **options})


def test_one_image_of_each_class_and_one_of_its_captions(split) -> None:
    batches = make(split)
    assert batches.class_names == ["a", "b", "c", "d"]
    assert batches.steps_per_epoch == 6  # 20 images, 3 a batch
    words = batches.split.captions
    for batch in batches.dataset(epoch=2):
        rows, classes = batch["image"].numpy()[:, 0], batch["class_id"].numpy()
        assert len(set(classes)) == 3
        for row, label, number in zip(rows, classes, batch["image_id"].numpy(), strict=True):
            assert split.class_names[row] == batches.class_names[label]
            assert split.ids[row] == number
    for caption, row in zip(batches.plan(2).ravel(), split.caption_rows[batches.plan(2)].ravel(), strict=True):
        assert words[caption] in split.captions_of(row)
    text = next(iter(batches.dataset(2)))["text"].numpy()
    ids, offsets = WordTokenizer(Vocabulary.from_captions(words)).encode(words)
    first = batches.plan(2)[0, 0]
    assert text[0][text[0] > 0].tolist() == ids[offsets[first] : offsets[first + 1]].tolist()


def test_classes_come_up_alike_and_images_alike_within_them(split) -> None:
    batches = make(split)
    plans = np.concatenate([batches.plan(epoch) for epoch in range(200)])
    rows = split.caption_rows[plans]
    labels = np.array(split.class_names)[rows]
    # 1200 batches of 3 of 4 classes: each class in 900, give or take four deviations of 15.
    for label in SIZES:
        assert abs((labels == label).sum() - 900) < 60
    # The 12 images of the class a 75 times each, four deviations of 8.3.
    counts = np.bincount(rows[labels == "a"] - rows[labels == "a"].min(), minlength=12)
    assert len(counts) == 12 and abs(counts - 75).max() < 34
    # All three captions of an image that has three.
    with_three = next(row for row in range(len(split)) if len(split.captions_of(row)) == 3)
    assert len(set(plans[rows == with_three])) == 3


def test_plans_follow_from_seed_and_epoch(split) -> None:
    np.testing.assert_array_equal(make(split).plan(3), make(split).plan(3))
    assert (make(split).plan(3) != make(split).plan(4)).any()
    assert (make(split).plan(3) != make(split, seed=5).plan(3)).any()
    rest = [batch["image_id"].numpy() for batch in make(split).dataset(3, step=2)]
    whole = [batch["image_id"].numpy() for batch in make(split).dataset(3)]
    np.testing.assert_array_equal(rest, whole[2:])


def test_too_few_classes_or_none(split, scenes) -> None:
    with pytest.raises(DataError, match=r"batches\.size=4"):
        make(split, batch_size=5)
    with raises_argument("batch_size"):
        make(split, batch_size=1)
    import copy

    nameless = copy.copy(split)
    nameless.class_names = [*split.class_names[:-1], None]
    with pytest.raises(DataError, match=r"'c3\.png'"):
        make(nameless)

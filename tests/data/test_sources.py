"""Image sources: cached features and pixels, from memory or decoded anew."""

from __future__ import annotations

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from vsemb.data.batches import PairBatches, image_batches
from vsemb.data.features.store import FeatureStore
from vsemb.data.sources import FeatureImages, PixelImages
from vsemb.errors import DataError, reader_errors
from vsemb.image.augmentation import ImageAugmenter
from vsemb.text import Vocabulary, WordTokenizer


def test_features_of_a_split(scenes) -> None:
    store, split = FeatureStore.find(scenes), scenes.split("val")
    images = FeatureImages(store, split)
    rows = np.array([3, 0, 3])
    np.testing.assert_array_equal(images.gather(rows), store.rows(split.ids[rows]))
    assert images.spec == tf.TensorSpec((16,), tf.float32)


@pytest.mark.parametrize(("size", "augment"), [pytest.param(32, False, marks=pytest.mark.slow), (24, True)])
def test_memory_changes_nothing(scenes, size: int, augment: bool) -> None:
    split = scenes.split("train")
    tokenizer = WordTokenizer(Vocabulary.from_captions(split.captions))
    gathered = []
    for memory in (1 << 30, 0):
        images = PixelImages(split, size, augment=augment, memory=memory)
        batches = PairBatches(split, images, tokenizer, batch_size=16, seed=1)
        gathered.append(list(batches.dataset(1).take(3).as_numpy_iterator()))
        gathered[-1] += list(image_batches(images, np.arange(10), 4).as_numpy_iterator())
    assert len(gathered[0]) == len(gathered[1]) == 6
    for cached, decoded in zip(*gathered, strict=True):
        assert cached["image"].shape[1:] == (size, size, 3)
        assert cached["image"].dtype == np.float32
        np.testing.assert_array_equal(cached["image"], decoded["image"])


def test_pixels_are_those_of_the_file(scenes) -> None:
    split = scenes.split("val")
    images = PixelImages(split, 32)
    decoded = images.finish(tf.constant(images.gather(np.array([2, 0]))), None).numpy()
    for pixels, row in zip(decoded, (2, 0), strict=True):
        expected = np.asarray(Image.open(io.BytesIO(split.read_image(row))).convert("RGB"))
        # Stored at 32 x 32 as PNG: nothing is resized or lost.
        np.testing.assert_array_equal(pixels, expected)


def test_augmentation_follows_from_the_epoch_and_step(scenes) -> None:
    split = scenes.split("train")
    tokenizer = WordTokenizer(Vocabulary.from_captions(split.captions))
    batches = PairBatches(split, PixelImages(split, 24, augment=True), tokenizer, batch_size=16, seed=1)
    whole = list(batches.dataset(0).as_numpy_iterator())
    tail = list(batches.dataset(0, 13).as_numpy_iterator())
    for one, other in zip(whole[13:], tail, strict=True):
        np.testing.assert_array_equal(one["image"], other["image"])
    # The same image looks different the next time it comes.
    first = {int(i): p for b in whole for i, p in zip(b["image_id"], b["image"], strict=True)}
    second = batches.dataset(1).as_numpy_iterator()
    changed = [(first[int(i)] != p).any() for b in second for i, p in zip(b["image_id"], b["image"], strict=True)]
    assert np.mean(changed) > 0.9


class Rolled:
    """Stands in for a `ImageAugmenter`, which needs an extra: it rolls images by a draw, and counts."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, pixels: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        self.calls += 1
        return tf.roll(pixels, tf.random.stateless_uniform((), seed, 1, 20, tf.int32), axis=1)


def test_only_training_batches_are_distorted_after_the_crop(scenes) -> None:
    split, rows, seed = scenes.split("train"), np.arange(4), tf.constant([1, 2])
    for augment in (True, False):
        rolled = Rolled()
        images = PixelImages(split, 24, augment=augment, augmenter=rolled)
        plain = PixelImages(split, 24, augment=augment)
        batch = tf.constant(images.gather(rows))
        np.testing.assert_array_equal(images.finish(batch, None), plain.finish(batch, None))
        assert rolled.calls == 0
        np.testing.assert_array_equal(images.finish(batch, seed), Rolled()(plain.finish(batch, seed), seed))


@pytest.mark.slow
def test_distortions_follow_from_the_epoch_and_step(scenes) -> None:
    pytest.importorskip("official", reason="the extra models is not installed")
    split = scenes.split("train")
    tokenizer = WordTokenizer(Vocabulary.from_captions(split.captions))

    def batches() -> PairBatches:
        # Made anew, as by the process that goes on.
        augmenter = ImageAugmenter(24, "randaugment", erasing=0.5)
        images = PixelImages(split, 24, augment=True, augmenter=augmenter, memory=0)
        return PairBatches(split, images, tokenizer, batch_size=16, seed=1)

    whole = list(batches().dataset(1).as_numpy_iterator())
    tail = list(batches().dataset(1, 13).as_numpy_iterator())
    for one, other in zip(whole[13:], tail, strict=True):
        np.testing.assert_array_equal(one["image"], other["image"])
    plain = PairBatches(split, PixelImages(split, 24, augment=True), tokenizer, batch_size=16, seed=1)
    cropped = list(plain.dataset(1).as_numpy_iterator())
    changed = [(a["image"] != b["image"]).any(axis=(1, 2, 3)) for a, b in zip(whole, cropped, strict=True)]
    # Left alone are (2 / 17)^2 of them, and some on which an operation has no effect; never all.
    assert 0.8 < np.mean(changed) < 1


@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_a_flipped_bit_of_an_image_is_noticed(scenes_copy, memory: int) -> None:
    split = scenes_copy.split("val")
    shard = split.shards[0]
    content = bytearray(shard.read_bytes())
    # The colour of a pixel: the image still decodes.
    place = content.index(split.read_image(5)) + len(split.read_image(5)) - 30
    content[place] ^= 1
    shard.write_bytes(content)
    with pytest.raises(DataError, match="scenes"), reader_errors():
        list(image_batches(PixelImages(split, 16, memory=memory), np.arange(12), 4))


class Broken:
    """A split of one good and one broken image."""

    name = "train"
    ids = np.array([0, 1])
    keys = ["good.png", "bad.png"]

    def __init__(self, good: bytes) -> None:
        self.images = [good, good[:40]]

    def encoded_images(self) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices((self.ids, self.images))

    def readable(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        return batches

    def read_image(self, row: int) -> bytes:
        return self.images[row]


def test_a_broken_image_is_named(scenes) -> None:
    with pytest.raises(DataError, match="'bad.png'.*'train'"):
        PixelImages(Broken(scenes.split("train").read_image(0)), 16)

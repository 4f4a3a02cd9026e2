"""Training batches: pairs of an image and a caption, bucketed by caption length.

Everything random in an epoch follows from (seed, epoch), so that training can go on in the middle of
one exactly where it stopped.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from vsemb.data.pixel_service import ServicePixels
from vsemb.data.sources import ImageSource
from vsemb.data.store import Split
from vsemb.errors import DataError, invalid_argument
from vsemb.text.tokenizers import Tokenizer

# Captions are sorted by length inside windows of so many batches: long enough to make batches of
# nearly one length, short enough to keep an epoch's order random.
_WINDOW = 50

CAPTIONS = ("all", "one")
NEGATIVES = ("batch", "sampled")


class PairBatches:
    """Batches of pairs for `DualEncoder.fit`.

    Args:
        split: the split, usually `train`.
        images: its images: `FeatureImages`, `PixelImages` or `ServicePixels`.
        tokenizer: turns captions into ids, once.
        batch_size: pairs a batch; what is left over in an epoch is dropped, each time another part.
        captions: `"all"` captions of an image make a pair each in every epoch, or `"one"`, drawn
            anew each epoch.
        negatives: `"batch"`: a pair's negatives are the other pairs. `"sampled"`: they are drawn from
            the whole split and redrawn each epoch, as many as the batch has pairs (Kiros et al. 2014).
        seed: of all draws.

    Raises:
        InvalidArgumentError: for an option that is not allowed.
        DataError: if the split has fewer captions than a batch.

    Example:

        batches = PairBatches(split, FeatureImages(store, split), tokenizer, batch_size=128)
        model.fit(batches.dataset(), epochs=10)
    """

    def __init__(
        self,
        split: Split,
        images: ImageSource,
        tokenizer: Tokenizer,
        *,
        batch_size: int = 128,
        captions: str = "all",
        negatives: str = "batch",
        seed: int = 0,
    ) -> None:
        if batch_size < 2:
            raise invalid_argument("batch_size", batch_size, "an integer >= 2")
        if captions not in CAPTIONS:
            raise invalid_argument("captions", captions, f"one of {', '.join(CAPTIONS)}")
        if negatives not in NEGATIVES:
            raise invalid_argument("negatives", negatives, f"one of {', '.join(NEGATIVES)}")
        self.split = split
        self.images = images
        self.batch_size = batch_size
        self.captions = captions
        self.negatives = negatives
        self.seed = seed
        self._ids, self._offsets = tokenizer.encode(split.captions)
        self._lengths = np.diff(self._offsets)
        self._first_caption = np.searchsorted(split.caption_rows, np.arange(len(split.ids)))
        self._captions_per_image = np.bincount(split.caption_rows, minlength=len(split.ids))
        pairs = len(split.captions) if captions == "all" else len(split.ids)
        self.steps_per_epoch = pairs // batch_size
        if self.steps_per_epoch == 0:
            raise DataError(
                f"Split {split.name!r} has {pairs} pairs, fewer than batch_size={batch_size}. "
                "Lower the batch size."
            )

    def plan(self, epoch: int) -> np.ndarray:
        """Returns the caption numbers of an epoch's batches, (steps, batch_size) int64."""
        generator = np.random.default_rng([self.seed, epoch])
        if self.captions == "all":
            order = generator.permutation(len(self.split.captions))
        else:
            drawn = generator.random(len(self.split.ids)) * self._captions_per_image
            order = generator.permutation(self._first_caption + drawn.astype(np.int64))
        return self._bucket(order, generator)

    def negative_plan(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns an epoch's sampled negatives: caption numbers and image rows, (steps, batch_size)."""
        generator = np.random.default_rng([self.seed, epoch, 1])
        size = self.steps_per_epoch * self.batch_size
        captions = generator.integers(len(self.split.captions), size=size)
        rows = generator.integers(len(self.split.ids), size=(self.steps_per_epoch, self.batch_size))
        return self._bucket(captions, generator), rows

    def _bucket(self, order: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return bucketed(order, generator, self.batch_size, self._lengths)

    def _texts(self, captions: np.ndarray) -> np.ndarray:
        return pad_ids(self._ids, self._offsets, captions)

    def _epoch(self, epoch: int, start: int) -> Iterator[dict[str, np.ndarray]]:
        split = self.split
        negatives = self.negative_plan(epoch) if self.negatives == "sampled" else None
        plan = self.plan(epoch)[start:]
        images = self._images(split.caption_rows[plan], epoch, start)
        other_images = None if negatives is None else self._images(negatives[1][start:], epoch, start)
        for step, captions in enumerate(plan, start):
            rows = split.caption_rows[captions]
            batch = {
                "image": next(images),
                "text": self._texts(captions),
                "image_id": split.ids[rows],
                "seed": np.array([self.seed + epoch, step], np.int32),
                **self._labels(rows),
            }
            if negatives is not None and other_images is not None:
                other, other_rows = negatives[0][step], negatives[1][step]
                batch["negative_image"] = next(other_images)
                batch["negative_image_id"] = split.ids[other_rows]
                batch["negative_text"] = self._texts(other)
                batch["negative_text_id"] = split.ids[split.caption_rows[other]]
            yield batch

    def _images(self, rows: np.ndarray, epoch: int, start: int) -> Iterator[np.ndarray]:
        """Yields the images of an epoch's batches from step `start` on; `rows` is (steps, batch_size)."""
        if not isinstance(self.images, ServicePixels):
            yield from map(self.images.gather, rows)
            return
        seeds = [(self.seed + epoch, step) for step in range(start, start + len(rows))]
        yield from self.images.stream(rows, np.array(seeds, np.int32))

    def _labels(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns what a batch says of its images besides their ids: int64 (batch_size,) arrays."""
        del rows
        return {}

    def dataset(self, epoch: int = 0, step: int = 0) -> tf.data.Dataset:
        """Returns a dataset that gives the next epoch each time it is iterated.

        Args:
            epoch: the number of the first epoch.
            step: batches of that epoch to leave out, for training that goes on in its middle. Keras
                takes every epoch of a dataset to have the length of the first, so iterate such a
                dataset once, and go on with `dataset(epoch + 1)`.
        """
        epochs = itertools.count(epoch)

        def one_epoch() -> Iterator[dict[str, np.ndarray]]:
            yield from self._epoch(next(epochs), step)

        size, spec = self.batch_size, self.images.spec
        image = tf.TensorSpec((size, *spec.shape), spec.dtype)
        text = tf.TensorSpec((size, None, *self._ids.shape[1:]), tf.int32)
        ids = tf.TensorSpec((size,), tf.int64)
        signature = {"image": image, "text": text, "image_id": ids, "seed": tf.TensorSpec((2,), tf.int32)}
        signature |= dict.fromkeys(self._labels(np.zeros(0, np.int64)), ids)
        if self.negatives == "sampled":
            signature |= {"negative_image": image, "negative_image_id": ids}
            signature |= {"negative_text": text, "negative_text_id": ids}
        dataset = tf.data.Dataset.from_generator(one_epoch, output_signature=signature)
        dataset = dataset.map(self._finish, num_parallel_calls=2, deterministic=True)
        return dataset.apply(tf.data.experimental.assert_cardinality(self.steps_per_epoch - step)).prefetch(2)

    def _finish(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        seed = batch.pop("seed")
        for name in ("image", "negative_image"):
            if name in batch:
                batch[name] = self.images.finish(batch[name], seed)
        return batch


def bucketed(
    order: np.ndarray, generator: np.random.Generator, batch_size: int, *lengths: np.ndarray
) -> np.ndarray:
    """Makes batches of nearly one length out of rows in random order.

    Args:
        order: the rows, shuffled; those left over at the end are dropped.
        generator: shuffles the batches.
        batch_size: rows a batch.
        *lengths: the lengths of all rows; the first decides, the next among equals.

    Returns:
        (steps, batch_size) rows.
    """
    steps, window = len(order) // batch_size, _WINDOW * batch_size
    order = order[: steps * batch_size]
    parts = [order[start : start + window] for start in range(0, len(order), window)]
    # `lexsort` takes the key that decides last.
    sorted_parts = [part[np.lexsort([values[part] for values in reversed(lengths)])] for part in parts]
    batches = np.concatenate(sorted_parts).reshape(steps, batch_size)
    return batches[generator.permutation(steps)]


def pad_ids(ids: np.ndarray, offsets: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Gathers ragged rows of token ids, padded with 0 to the longest, at least one step.

    Args:
        ids: (tokens, ...) int32, all texts one behind the other.
        offsets: (texts + 1,) int64.
        rows: (n,) the texts wanted.

    Returns:
        (n, steps, ...) int32.

    Example:

    >>> pad_ids(np.array([5, 6, 7], np.int32), np.array([0, 2, 3]), np.array([1, 0])).tolist()
    [[7, 0], [5, 6]]
    """
    lengths = offsets[rows + 1] - offsets[rows]
    steps = np.arange(max(int(lengths.max(initial=0)), 1))
    inside = steps < lengths[:, None]  # (n, steps)
    padded = np.zeros((*inside.shape, *ids.shape[1:]), np.int32)
    padded[inside] = ids[(offsets[rows][:, None] + steps)[inside]]
    return padded


def text_batches(
    ids: np.ndarray, offsets: np.ndarray, batch_size: int = 256
) -> tuple[tf.data.Dataset, np.ndarray]:
    """Batches all texts by length, for embedding them.

    Args:
        ids: (tokens, ...) int32, all texts one behind the other, as `Tokenizer.encode` returns them.
        offsets: (texts + 1,) int64.
        batch_size: texts a batch.

    Returns:
        dataset: of {"text": (n, steps, ...) int32}.
        order: (texts,) the text behind each row of the dataset.
    """
    order = np.argsort(np.diff(offsets), kind="stable")

    def batches() -> Iterator[dict[str, np.ndarray]]:
        for start in range(0, len(order), batch_size):
            yield {"text": pad_ids(ids, offsets, order[start : start + batch_size])}

    signature = {"text": tf.TensorSpec((None, None, *ids.shape[1:]), tf.int32)}
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    cardinality = tf.data.experimental.assert_cardinality(-(-len(order) // batch_size))
    return dataset.apply(cardinality).prefetch(2), order


def image_batches(images: ImageSource, rows: int, batch_size: int = 256) -> tf.data.Dataset:
    """Batches a source's first `rows` images in order: a dataset of {"image": (n, ...)}."""

    def batches() -> Iterator[np.ndarray]:
        for start in range(0, rows, batch_size):
            yield images.gather(np.arange(start, min(start + batch_size, rows)))

    spec = tf.TensorSpec((None, *images.spec.shape), images.spec.dtype)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=spec)
    dataset = dataset.map(lambda batch: {"image": images.finish(batch, None)})
    return dataset.apply(tf.data.experimental.assert_cardinality(-(-rows // batch_size))).prefetch(2)

"""Training batches: shuffled rows, bucketed by length, that can be resumed at any step.

All random draws depend only on (seed, epoch, purpose). Training can therefore resume in the middle of an epoch, and
different purposes, seeds and epochs have independent draws.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import keras
import numpy as np

from vsemb.console import say
from vsemb.data.sources import ImageSource
from vsemb.data.store import Split
from vsemb.data.tokens import encoded_captions
from vsemb.errors import DataError
from vsemb.ops.tensorflow import tf
from vsemb.parts import Count, Part, at_least, require
from vsemb.text.tokenizers import Tokenizer

# Rows are sorted by length in windows of this many batches: long enough for batches of nearly equal lengths, short
# enough to keep an epoch's order random.
_WINDOW = 50
# Lengths of texts are rounded up to a multiple of this on backends that compile a model per length.
_COMPILED = 8

#: Purposes of random draws: the order of rows, sampled negatives, and the augmentation of each.
ORDER, NEGATIVES, IMAGES, NEGATIVE_IMAGES = range(4)


def stream(seed: int, epoch: int, purpose: int) -> np.random.Generator:
    """Return the random generator of one purpose in one epoch.

    Example: seed 1 does not replay seed 0 one epoch later.

    >>> bool(stream(1, 0, ORDER).integers(1 << 30) == stream(0, 1, ORDER).integers(1 << 30))
    False
    """
    return np.random.default_rng(np.random.SeedSequence([seed, epoch, purpose]))


class RaggedLengths:
    """Lengths of ragged rows, computed on access, so that memory-mapped offsets stay on disk.

    Args:
        offsets: (rows + 1,) int64.

    Example:

    >>> RaggedLengths(np.array([0, 2, 3]))[np.array([1, 0])].tolist()
    [1, 2]
    """

    def __init__(self, offsets: np.ndarray) -> None:
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, rows: Any) -> Any:
        return self._offsets[1:][rows] - self._offsets[:-1][rows]


#: Size of a batch that has negatives.
BatchSize: TypeAlias = Annotated[int, at_least(2)]
Captions: TypeAlias = Literal["all", "one"]
Negatives: TypeAlias = Literal["batch", "sampled"]
#: A length of every row.
Lengths: TypeAlias = np.ndarray | RaggedLengths


class BatchSource:
    """Base of all training batches: shuffles rows, buckets them by length, and builds a `tf.data.Dataset` per epoch.

    A subclass defines the tensors of a batch with `gather` and `signature`, and can change the rows with `rows`.

    Args:
        lengths: one or more lengths of all rows, each (n,). Rows of a batch have similar first lengths; rows with equal
            first lengths have similar second ones.
        batch_size: rows per batch; a smaller training set lowers it. Rows that do not fill a batch are dropped; they
            differ between epochs.
        seed: seed of all draws.
        unit: name of a row in errors.
        rows: rows of an epoch; None for all.

    Raises:
        InvalidArgumentError: for a batch size < 1.
        DataError: if there are fewer rows than `fewest`.

    Class attributes:
        fewest: minimum number of rows for training.
    """

    fewest: ClassVar[int] = 1

    def __init__(
        self,
        lengths: Sequence[Lengths],
        *,
        batch_size: int,
        seed: int = 0,
        unit: str = "rows",
        rows: int | None = None,
    ) -> None:
        require("batch_size", batch_size, Count)
        self.lengths = tuple(lengths)
        self.seed = seed
        count = len(self.lengths[0]) if rows is None else rows
        if count < self.fewest:
            raise DataError(f"Training must have at least {self.fewest} {unit}; got {count}.")
        if count < batch_size:
            say(f"The batch size is lowered from {batch_size} to {count}, the number of {unit}.")
        self.batch_size = min(batch_size, count)
        self.steps_per_epoch = count // self.batch_size

    @property
    def units(self) -> int:
        """Number of units of a batch that devices divide among them: rows, or groups of rows that belong together."""
        return self.batch_size

    @property
    def tokens(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Ids and offsets of the texts, as `vsemb.text.Tokenizer.encode` returns them; None without texts."""
        return None

    def rows(self, generator: np.random.Generator) -> np.ndarray:
        """Return the rows of an epoch in random order, as a new array."""
        count = len(self.lengths[0])
        rows = np.arange(count, dtype=np.int32 if count < np.iinfo(np.int32).max else np.int64)
        generator.shuffle(rows)
        return rows

    def plan(self, epoch: int) -> np.ndarray:
        """Return the rows of an epoch's batches, (steps, batch_size) int32, or int64 for more than 2 billion rows."""
        generator = stream(self.seed, epoch, ORDER)
        return bucketed(self.rows(generator), generator, self.batch_size, *self.lengths)

    def named(self, epoch: int, step: int) -> str:
        """Name the rows of a batch, up to five: `rows 7, 3`."""
        rows = self.plan(epoch)[step]
        more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
        return f"rows {', '.join(map(str, rows[:5]))}{more}"

    def gather(self, rows: np.ndarray) -> Any:
        """Return a batch: arrays in the structure of `signature`, for (batch_size,) rows."""
        raise NotImplementedError

    def signature(self) -> Any:
        """Return the specification of a batch, nested `tf.TensorSpec`."""
        raise NotImplementedError

    def epoch(self, epoch: int, start: int) -> Iterator[Any]:
        """Yield the batches of an epoch, beginning at step `start`."""
        yield from map(self.gather, self.plan(epoch)[start:])

    def finish(self, batch: Any) -> Any:
        """Convert a batch to the model's input, in graph."""
        return batch

    def dataset(self, epoch: int = 0, step: int = 0) -> tf.data.Dataset:
        """Return a dataset whose iterations yield successive epochs.

        Args:
            epoch: number of the first epoch.
            step: number of batches to skip in the first epoch, to resume in its middle. Keras assumes that all epochs
                have the length of the first, so iterate such a dataset once, and continue with `dataset(epoch + 1)`.
        """
        epochs = itertools.count(epoch)

        def one_epoch() -> Iterator[Any]:
            yield from self.epoch(next(epochs), step)

        # Converting Python's `if` and `for` takes longer than the rest of the tracing, and no `finish` needs it.
        @tf.autograph.experimental.do_not_convert
        def finish(*batch: Any) -> Any:
            return self.finish(batch if len(batch) > 1 else batch[0])

        dataset = _generated(one_epoch, self.signature())
        dataset = dataset.map(finish, num_parallel_calls=2)
        return dataset.apply(tf.data.experimental.assert_cardinality(self.steps_per_epoch - step)).prefetch(2)

    def arrays(self, epoch: int = 0, step: int = 0) -> Iterator[tuple[Any, ...]]:
        """Yield the batches of successive epochs without end, in NumPy, for `fit` on backends other than TensorFlow.

        Ids are replaced by their places among the sorted ids of the batch, since JAX has no int64 by default.

        Args:
            epoch: number of the first epoch.
            step: number of batches to skip in the first epoch.
        """
        for number in itertools.count(epoch):
            for batch in self.epoch(number, step if number == epoch else 0):
                batch = self.finish(batch)
                yield batch if isinstance(batch, tuple) else (_with_places(batch),)


class PairBatches(BatchSource):
    """Batches of image-caption pairs, for `DualEncoder.fit`.

    Args:
        split: the split, usually `train`.
        images: images of the split.
        tokenizer: converts all captions to ids once.
        batch_size: pairs per batch.
        captions: `"all"`: each caption is a pair, once per epoch. `"one"`: one random caption per image and epoch.
        negatives: `"batch"`: a pair's negatives are the other pairs of the batch. `"sampled"`: each batch gets as many
            negatives as pairs, drawn from the whole split in each epoch (Kiros et al. 2014).
        seed: seed of all draws.

    Raises:
        InvalidArgumentError: for an option that is not allowed.
        DataError: if the split has fewer than two pairs, since they would have no negatives.

    Example:

        batches = PairBatches(split, FeatureImages(store, split), tokenizer, batch_size=128)
        model.fit(batches.dataset(), epochs=10)
    """

    fewest = 2

    def __init__(
        self,
        split: Split,
        images: ImageSource,
        tokenizer: Tokenizer,
        *,
        batch_size: int = 128,
        captions: Captions = "all",
        negatives: Negatives = "batch",
        seed: int = 0,
    ) -> None:
        require("batch_size", batch_size, BatchSize)
        require("captions", captions, Captions)
        require("negatives", negatives, Negatives)
        self.split = split
        self.images = images
        self.captions = captions
        self.negatives = negatives
        self._ids, self._offsets = encoded_captions(split, tokenizer)
        super().__init__(
            [RaggedLengths(self._offsets)],
            batch_size=batch_size,
            seed=seed,
            unit=f"pairs of the split {split.name!r}",
            rows=None if captions == "all" else len(split.ids),
        )

    @property
    def tokens(self) -> tuple[np.ndarray, np.ndarray]:
        return self._ids, self._offsets

    def rows(self, generator: np.random.Generator) -> np.ndarray:
        """Return the captions of an epoch in random order."""
        if self.captions == "all":
            return super().rows(generator)
        offsets = self.split.caption_offsets
        drawn = generator.random(len(self.split))
        drawn *= np.diff(offsets)
        rows = offsets[:-1] + drawn.astype(np.int64)
        generator.shuffle(rows)
        return rows

    def named(self, epoch: int, step: int) -> str:
        """Name the images of a batch, up to five."""
        rows = np.unique(self.split.rows_of(self.plan(epoch)[step]))
        shown = [f"{self.split.keys[row]} (id {self.split.ids[row]})" for row in rows[:5].tolist()]
        more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
        return f"images {', '.join(shown)}{more}"

    def negative_plan(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return an epoch's sampled negatives: caption numbers and image rows, (steps, batch_size)."""
        generator = stream(self.seed, epoch, NEGATIVES)
        size = self.steps_per_epoch * self.batch_size
        captions = generator.integers(len(self.split.captions), size=size)
        rows = generator.integers(len(self.split.ids), size=(self.steps_per_epoch, self.batch_size))
        return bucketed(captions, generator, self.batch_size, *self.lengths), rows

    def images_of(self, captions: np.ndarray) -> np.ndarray:
        """Return the rows of a batch's images."""
        return self.split.rows_of(captions)

    def gather(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the texts of a batch, and the ids of its images."""
        return {"text": pad_ids(self._ids, self._offsets, rows), "image_id": self.split.ids[self.images_of(rows)]}

    def epoch(self, epoch: int, start: int) -> Iterator[dict[str, np.ndarray]]:
        """Yield the batches of an epoch, beginning at step `start`."""
        plan = self.plan(epoch)[start:]
        images = self._images(map(self.images_of, plan), epoch, start, IMAGES)
        pairs = (self.gather(captions) | image for captions, image in zip(plan, images, strict=True))
        if self.negatives == "batch":
            yield from pairs
            return
        plan, rows = (part[start:] for part in self.negative_plan(epoch))
        images = self._images(rows, epoch, start, NEGATIVE_IMAGES)
        for pair, captions, row, image in zip(pairs, plan, rows, images, strict=True):
            texts = self.gather(captions)
            negatives = {"image_id": self.split.ids[row], "text": texts["text"], "text_id": texts["image_id"], **image}
            yield pair | {f"negative_{name}": value for name, value in negatives.items()}

    def _images(
        self, rows: Iterable[np.ndarray], epoch: int, start: int, purpose: int
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yield the images of an epoch's batches from step `start` on, by their rows, and their seeds."""
        key = int(stream(self.seed, epoch, purpose).integers(1 << 31))
        steps = np.arange(start, self.steps_per_epoch, dtype=np.int32)
        seeds = np.stack([np.full_like(steps, key), steps], axis=1)
        for image, seed in zip(self.images.stream(rows, seeds), seeds, strict=True):
            batch = {"image": image}
            if self.images.finishes:
                batch["seed"] = seed
            yield batch

    def signature(self) -> dict[str, tf.TensorSpec]:
        """Return the specification of a batch."""
        size, spec = self.batch_size, self.images.spec
        image = tf.TensorSpec((size, *spec.shape), spec.dtype)
        text = tf.TensorSpec((size, None, *self._ids.shape[1:]), tf.int32)
        ids = tf.TensorSpec((size,), tf.int64)
        signature = {"image": image, "text": text, "image_id": ids}
        if self.images.finishes:
            signature["seed"] = tf.TensorSpec((2,), tf.int32)
        if self.negatives == "sampled":
            signature |= {f"negative_{name}": spec for name, spec in signature.items()} | {"negative_text_id": ids}
        return signature

    def finish(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Augment and decode the images of a batch, in graph."""
        batch = dict(batch)
        for name, seed in (("image", "seed"), ("negative_image", "negative_seed")):
            if seed in batch:
                batch[name] = self.images.finish(batch[name], batch.pop(seed))
        return batch


@dataclass(frozen=True)
class BatchesPart(Part, family="batches"):
    """Batches of image-caption pairs; base of the family `batches`.

    Attributes:
        size: pairs per batch, over all devices.
        captions_per_image: use only the first N captions of each training image; null for all.

    Class attributes:
        in_batch: whether a pair's negatives are the other pairs of its batch.
    """

    in_batch: ClassVar[bool] = True

    size: BatchSize = 128
    captions_per_image: Count | None = None

    def build(self, split: Split, images: ImageSource, tokenizer: Tokenizer, seed: int) -> PairBatches:
        """Return the batches of a split.

        Raises:
            DataError: if the split has too few pairs.
        """
        raise NotImplementedError

    def advice(self, views: int) -> str | None:
        """Return a line about stored features that do not suit the batches.

        Args:
            views: stored views of each training image.
        """
        return None


@dataclass(frozen=True)
class Pairs(BatchesPart, kind="pairs"):
    """Pairs of an image and one of its captions.

    Attributes:
        captions: `all` captions of an image in an epoch, or `one` random caption.
        negatives: `batch` (the other pairs), or `sampled` from the whole training set in each epoch.
    """

    captions: Captions = "all"
    negatives: Negatives = "batch"

    @property
    def in_batch(self) -> bool:  # type: ignore[override]
        return self.negatives == "batch"

    def build(self, split: Split, images: ImageSource, tokenizer: Tokenizer, seed: int) -> PairBatches:
        options: dict[str, Any] = {"captions": self.captions, "negatives": self.negatives}
        return PairBatches(split, images, tokenizer, batch_size=self.size, seed=seed, **options)


def bucketed(order: np.ndarray, generator: np.random.Generator, batch_size: int, *lengths: Lengths) -> np.ndarray:
    """Arrange shuffled rows to batches of nearly equal lengths, in place.

    Args:
        order: the shuffled rows; rows that do not fill a batch are dropped. The array is overwritten, because it can
            be too large for a copy.
        generator: shuffles the batches.
        batch_size: rows per batch.
        *lengths: lengths of all rows; rows are sorted by the first, and equal ones by the next.

    Returns:
        (steps, batch_size) rows.
    """
    steps, window = len(order) // batch_size, _WINDOW * batch_size
    order = order[: steps * batch_size]
    for start in range(0, len(order), window):
        part = order[start : start + window]
        # The last key of `lexsort` is the primary one.
        part[:] = part[np.lexsort([values[part] for values in reversed(lengths)])]
    batches = order.reshape(steps, batch_size)
    generator.shuffle(batches)
    return batches


def pad_ids(ids: np.ndarray, offsets: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Gather ragged rows of token ids, padded with 0 to the longest and to at least one step.

    On backends other than TensorFlow, the number of steps is rounded up, since XLA compiles a model for each.

    Args:
        ids: (tokens, ...) int32, the concatenated texts.
        offsets: (texts + 1,) int64.
        rows: (n,) positions of the selected texts.

    Returns:
        (n, steps, ...) int32.

    Example:

    >>> pad_ids(np.array([5, 6, 7], np.int32), np.array([0, 2, 3]), np.array([1, 0])).tolist()
    [[7, 0], [5, 6]]
    """
    lengths = offsets[rows + 1] - offsets[rows]
    longest = max(int(lengths.max(initial=0)), 1)
    if keras.backend.backend() != "tensorflow":
        longest += -longest % _COMPILED
    steps = np.arange(longest)
    inside = steps < lengths[:, None]  # (n, steps)
    padded = np.zeros((*inside.shape, *ids.shape[1:]), np.int32)
    padded[inside] = ids[(offsets[rows][:, None] + steps)[inside]]
    return padded


def _with_places(batch: dict[str, Any]) -> dict[str, np.ndarray]:
    batch = {name: np.asarray(values) for name, values in batch.items()}
    names = [name for name in batch if name.endswith("_id")]
    if not names:
        return batch
    places = np.unique(np.concatenate([batch[name] for name in names]), return_inverse=True)[1].astype(np.int32)
    ends = np.cumsum([len(batch[name]) for name in names])[:-1]
    return batch | dict(zip(names, np.split(places, ends), strict=True))


def text_batches(ids: np.ndarray, offsets: np.ndarray, batch_size: int = 256) -> tuple[Any, np.ndarray]:
    """Batch all texts by length, to embed them.

    Args:
        ids: (tokens, ...) int32, the concatenated texts, as `Tokenizer.encode` returns them.
        offsets: (texts + 1,) int64.
        batch_size: texts per batch.

    Returns:
        dataset: of {"text": (n, steps, ...) int32}.
        order: (texts,) the position in `offsets` of each row of the dataset.
    """
    order = np.argsort(np.diff(offsets), kind="stable")

    def signature() -> dict[str, tf.TensorSpec]:
        return {"text": tf.TensorSpec((None, None, *ids.shape[1:]), tf.int32)}

    return row_batches(order, lambda rows: {"text": pad_ids(ids, offsets, rows)}, signature, batch_size), order


def _generated(batches: Callable[[], Iterator[Any]], signature: Any) -> tf.data.Dataset:
    """Return a dataset of generated batches, which frees them with the dataset.

    TensorFlow's `from_generator` keeps what it is given, and so the features of all trainings, until the process ends.
    """
    # In a graph, as in `interleave`, the dataset is gone before it is read.
    held = weakref.ref(batches) if tf.executing_eagerly() else lambda: batches

    def made() -> Iterator[Any]:
        batches = held()
        # Iterators and datasets made of this one hold it.
        assert batches is not None
        return batches()

    dataset = tf.data.Dataset.from_generator(made, output_signature=signature)
    dataset._vsemb_batches = batches
    return dataset


def image_batches(images: ImageSource, rows: np.ndarray, batch_size: int = 256) -> Any:
    """Batch some rows of an image source: a dataset of {"image": (n, ...)}."""

    def signature() -> dict[str, tf.TensorSpec]:
        return {"image": tf.TensorSpec((None, *images.spec.shape), images.spec.dtype)}

    return row_batches(rows, lambda rows: {"image": images.gather(rows)}, signature, batch_size, images)


@dataclass(frozen=True, eq=False)
class _Repeated:
    make: Callable[[], Iterator[dict[str, np.ndarray]]]

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return self.make()


def row_batches(
    rows: np.ndarray,
    gather: Callable[[np.ndarray], dict[str, np.ndarray]],
    signature: Callable[[], dict[str, tf.TensorSpec]],
    batch_size: int,
    images: ImageSource | None = None,
) -> Iterable[dict[str, Any]]:
    """Batch rows in the given order, for embedding and evaluation; the result can be iterated repeatedly.

    It is a `tf.data.Dataset`, or an iterable of NumPy arrays on backends other than TensorFlow.

    Args:
        rows: (n,) the rows.
        gather: returns the batch of some rows.
        signature: returns the specification of a batch.
        batch_size: rows per batch; the last may have fewer.
        images: image source whose `finish` converts `image` of a batch in graph; None for batches without images.
    """

    def batches() -> Iterator[dict[str, np.ndarray]]:
        for start in range(0, len(rows), batch_size):
            yield gather(rows[start : start + batch_size])

    if keras.backend.backend() != "tensorflow":
        return _Repeated(batches)
    dataset = _generated(batches, signature())
    if images is not None:

        @tf.autograph.experimental.do_not_convert
        def finish(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return {**batch, "image": images.finish(batch["image"], None)}

        dataset = dataset.map(finish)
    return dataset.apply(tf.data.experimental.assert_cardinality(-(-len(rows) // batch_size))).prefetch(2)

"""Training batches of one image per class, for losses over classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vsemb.data.batches import ORDER, BatchesPart, BatchSize, PairBatches, stream
from vsemb.data.sources import ImageSource
from vsemb.data.store import Split
from vsemb.errors import DataError
from vsemb.ops.tensorflow import tf
from vsemb.text.tokenizers import Tokenizer

# Crops of a training image in the paper.
_VIEWS = 10


class ClassBatches(PairBatches):
    """Batches with one image of each of `batch_size` classes, and one of its captions.

    "In each mini-batch we first sample an image from each class, and then sample one of its ten
    corresponding captions" (Reed et al. 2016, section 3). Classes are drawn uniformly, without replacement within a
    batch. Images are drawn uniformly within their class, captions within their image. An epoch has
    images // `batch_size` batches. A batch has the entries of `PairBatches` and `class_id` int64 (batch_size,), the
    alphabetical index of the class.

    Args:
        split: the split, usually `train`; each image has a class.
        images: images of the split.
        tokenizer: converts captions to ids, once.
        batch_size: classes per batch; default 40.
        seed: seed of all draws; seed and epoch determine an epoch.

    Raises:
        DataError: for an image without a class, or fewer classes than `batch_size`.
        InvalidArgumentError: for a batch size below 2.

    Example:

        batches = ClassBatches(split, FeatureImages(store, split, augment=True), tokenizer)
        model.fit(batches.dataset(), epochs=10)
    """

    def __init__(
        self,
        split: Split,
        images: ImageSource,
        tokenizer: Tokenizer,
        *,
        batch_size: int = 40,
        seed: int = 0,
    ) -> None:
        self.class_names, self._class_ids = split.class_ids()
        if len(self.class_names) < batch_size:
            raise DataError(
                f"Split {split.name!r} must have at least batch_size={batch_size} classes, one per image of a "
                f"batch; got {len(self.class_names)}. Lower it: batches.size={len(self.class_names)}."
            )
        # With captions="one", the number of images defines the length of an epoch.
        super().__init__(split, images, tokenizer, batch_size=batch_size, captions="one", seed=seed)
        self._sizes = np.bincount(self._class_ids)
        self._by_class = np.argsort(self._class_ids, kind="stable")
        self._first_of_class = np.cumsum(self._sizes) - self._sizes

    def plan(self, epoch: int) -> np.ndarray:
        """Return the caption numbers of an epoch's batches, (steps, batch_size) int64."""
        generator = stream(self.seed, epoch, ORDER)
        keys = generator.random((self.steps_per_epoch, len(self.class_names)))
        classes = np.argsort(keys, axis=1)[:, : self.batch_size]
        place = (generator.random(classes.shape) * self._sizes[classes]).astype(np.int64)
        rows = self._by_class[self._first_of_class[classes] + place]
        offsets = self.split.caption_offsets
        drawn = (generator.random(classes.shape) * np.diff(offsets)[rows]).astype(np.int64)
        return offsets[rows] + drawn

    def gather(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the texts of a batch with the ids of images and classes."""
        return {**super().gather(rows), "class_id": self._class_ids[self.split.rows_of(rows)]}

    def signature(self) -> dict[str, tf.TensorSpec]:
        """Return the specification of a batch."""
        return {**super().signature(), "class_id": tf.TensorSpec((self.batch_size,), tf.int64)}


@dataclass(frozen=True)
class Classes(BatchesPart, kind="classes"):
    """Batches of one image per class, with one of its captions (Reed et al. 2016).

    Attributes:
        size: classes per batch, over all devices.
    """

    size: BatchSize = 40

    def build(self, split: Split, images: ImageSource, tokenizer: Tokenizer, seed: int) -> ClassBatches:
        return ClassBatches(split, images, tokenizer, batch_size=self.size, seed=seed)

    def advice(self, views: int) -> str | None:
        if views >= _VIEWS:
            return None
        return f"training on {max(views, 1)} view(s) per image; `vsemb features --training-crops` makes the paper's ten"

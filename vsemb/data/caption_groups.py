"""Batches in which each image has several of its captions, so that it is embedded once for all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vsemb.data.batches import ORDER, BatchesPart, BatchSize, PairBatches, bucketed, stream
from vsemb.data.sources import ImageSource
from vsemb.data.store import Split
from vsemb.ops.tensorflow import tf
from vsemb.parts import Count, require
from vsemb.text.tokenizers import Tokenizer


class GroupBatches(PairBatches):
    """Batches of images with several captions each, for `DualEncoder.fit`.

    An epoch divides the captions of an image into groups. Groups are runs of captions in cyclic order, and begin at a
    random one. If the number of captions is not a multiple of the group, some captions occur twice.

    Args:
        split: the split, usually `train`.
        images: images of the split.
        tokenizer: converts all captions to ids once.
        batch_size: images per batch, each with `group_size` captions.
        group_size: captions of an image that are in a batch together; at most the captions of an image.
        seed: seed of all draws.

    Raises:
        InvalidArgumentError: for a group smaller than 1.
        DataError: if the split has fewer than two pairs.

    Example:

        batches = GroupBatches(split, FeatureImages(store, split), tokenizer, batch_size=64, group_size=5)
        model.fit(batches.dataset(), epochs=10)
    """

    def __init__(
        self,
        split: Split,
        images: ImageSource,
        tokenizer: Tokenizer,
        *,
        batch_size: int = 64,
        group_size: int = 5,
        seed: int = 0,
    ) -> None:
        require("group_size", group_size, Count)
        count = np.diff(split.caption_offsets)
        self.group_size = min(group_size, int(count.max(initial=1)))
        super().__init__(split, images, tokenizer, batch_size=batch_size * self.group_size, seed=seed)
        self._groups = -(-count // self.group_size)
        self.batch_size = self.units * self.group_size
        self.steps_per_epoch = int(self._groups.sum()) // self.units

    @property
    def units(self) -> int:
        """Number of images of a batch."""
        return self.batch_size // self.group_size

    def plan(self, epoch: int) -> np.ndarray:
        """Return the captions of an epoch's batches, (steps, batch_size); captions of an image stand side by side."""
        generator = stream(self.seed, epoch, ORDER)
        first, count = self.split.caption_offsets[:-1], np.diff(self.split.caption_offsets)
        slots = self._groups * self.group_size
        image = np.repeat(np.arange(len(first)), slots)
        place = np.arange(len(image)) - np.repeat(np.cumsum(slots) - slots, slots)
        start = (generator.random(len(first)) * count).astype(np.int64)
        captions = (first[image] + (start[image] + place) % count[image]).reshape(-1, self.group_size)
        longest = self.lengths[0][captions].max(axis=1)
        order = bucketed(generator.permutation(len(captions)), generator, self.units, longest)
        return captions[order].reshape(len(order), self.batch_size)

    def images_of(self, captions: np.ndarray) -> np.ndarray:
        """Return the rows of a batch's images, each once."""
        return super().images_of(captions[:: self.group_size])

    def gather(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the texts of a batch, the ids of their images, and the ids of all images."""
        batch = super().gather(rows)
        return batch | {"text_image_id": np.repeat(batch["image_id"], self.group_size)}

    def signature(self) -> dict[str, tf.TensorSpec]:
        """Return the specification of a batch."""
        signature = super().signature()
        image, ids = signature["image"], signature["image_id"]
        return signature | {
            "image": tf.TensorSpec((self.units, *image.shape[1:]), image.dtype),
            "image_id": tf.TensorSpec((self.units,), tf.int64),
            "text_image_id": ids,
        }


@dataclass(frozen=True)
class Groups(BatchesPart, kind="groups"):
    """Images with several of their captions each; an image is embedded once for all of them.

    Attributes:
        size: images per batch, over all devices.
        group_size: captions per image and batch; at most the captions of an image.
    """

    size: BatchSize = 64
    group_size: Count = 5

    def build(self, split: Split, images: ImageSource, tokenizer: Tokenizer, seed: int) -> GroupBatches:
        sizes = {"batch_size": self.size, "group_size": self.group_size}
        return GroupBatches(split, images, tokenizer, seed=seed, **sizes)

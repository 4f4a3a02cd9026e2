"""Sentences in memory, and batches of sentences for next-word models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vsemb.data.batches import BatchSource, pad_ids, row_batches
from vsemb.data.sources import ImageSource
from vsemb.errors import invalid_argument
from vsemb.ops.tensorflow import tf


@dataclass(frozen=True, eq=False)
class Sentences:
    """Sentences in memory, with the inputs that models are conditioned on.

    Attributes:
        ids: int32 (tokens,), the words of all sentences, concatenated, see `Tokenizer.encode`.
        offsets: int64 (sentences + 1,), sentence i is `ids[offsets[i]:offsets[i + 1]]`.
        content: float32 (sentences, dim), one vector per sentence; None if not needed.
        tags: int32 (tokens,), part of speech of each word, from 1 on; None if not needed.
        images: images of the sentences; None if not needed.
        image_rows: (sentences,) row of each sentence's image; None if not needed.

    Raises:
        InvalidArgumentError: if the lengths do not match.

    Example:

    >>> sentences = Sentences(np.array([5, 6, 7], np.int32), np.array([0, 2, 3]))
    >>> sentences.batch(np.array([1, 0]))["text"].tolist()
    [[7, 0], [5, 6]]
    """

    ids: np.ndarray
    offsets: np.ndarray
    content: np.ndarray | None = None
    tags: np.ndarray | None = None
    images: ImageSource | None = None
    image_rows: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.content is not None and len(self.content) != len(self):
            raise invalid_argument("content", f"{len(self.content)} vectors", f"{len(self)}, one per sentence")
        if self.tags is not None and self.tags.shape != self.ids.shape:
            raise invalid_argument("tags", f"{len(self.tags)} tags", f"{len(self.ids)}, one per word")

    @classmethod
    def joined(cls, parts: Sequence[Sentences]) -> Sentences:
        """Concatenate sentences without images, which all have the same other inputs."""
        offsets = np.cumsum(np.concatenate([np.zeros(1, np.int64), *(part.lengths for part in parts)]))
        content = [part.content for part in parts if part.content is not None]
        tags = [part.tags for part in parts if part.tags is not None]
        return cls(
            np.concatenate([part.ids for part in parts]),
            offsets,
            np.concatenate(content) if content else None,
            np.concatenate(tags) if tags else None,
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Number of words of each sentence, int64 (sentences,)."""
        return np.diff(self.offsets)

    def word_counts(self, vocabulary_size: int) -> np.ndarray:
        """Count each id among the targets, int64 (vocabulary_size,); id 0 is the end."""
        counts = np.bincount(self.ids, minlength=vocabulary_size)
        counts[0] = len(self)
        return counts

    def batch(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return sentences as model inputs: `text`, and `content`, `tags` and `image` if present."""
        batch = {"text": pad_ids(self.ids, self.offsets, rows)}
        if self.content is not None:
            batch["content"] = self.content[rows]
        if self.tags is not None:
            batch["tags"] = pad_ids(self.tags, self.offsets, rows)
        if self.images is not None and self.image_rows is not None:
            batch["image"] = self.images.gather(self.image_rows[rows])
        return batch

    def signature(self, rows: int | None) -> dict[str, tf.TensorSpec]:
        """Return the specification of a batch of `rows` sentences; None for any number."""
        text = tf.TensorSpec((rows, None), tf.int32)
        signature = {"text": text}
        if self.content is not None:
            signature["content"] = tf.TensorSpec((rows, self.content.shape[1]), tf.float32)
        if self.tags is not None:
            signature["tags"] = text
        if self.images is not None:
            signature["image"] = tf.TensorSpec((rows, *self.images.spec.shape), self.images.spec.dtype)
        return signature


class SentenceBatches(BatchSource):
    """Batches of sentences for `NextWordModel.fit`, bucketed by length.

    Args:
        sentences: sentences of the training split.
        batch_size: sentences per batch; default 100. Sentences after the last full batch of an epoch are dropped; they
            differ between epochs.
        seed: seed of the order; default 0.
        unit: name of the sentences in errors.

    Raises:
        InvalidArgumentError: if `batch_size` < 1.
        DataError: if there are fewer sentences than `batch_size`.

    Example:

        batches = SentenceBatches(sentences, batch_size=100)
        model.fit(batches.dataset(), epochs=10)
    """

    def __init__(self, sentences: Sentences, *, batch_size: int = 100, seed: int = 0, unit: str = "sentences") -> None:
        super().__init__([sentences.lengths], batch_size=batch_size, seed=seed, unit=unit)
        self.sentences = sentences

    @property
    def tokens(self) -> tuple[np.ndarray, np.ndarray]:
        return self.sentences.ids, self.sentences.offsets

    def gather(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the sentences of a batch, see `Sentences.batch`."""
        return self.sentences.batch(rows)

    def signature(self) -> dict[str, tf.TensorSpec]:
        """Return the specification of a batch."""
        return self.sentences.signature(self.batch_size)


def sentence_batches(sentences: Sentences, batch_size: int = 256) -> tf.data.Dataset:
    """Batch all sentences by length, for evaluation.

    Args:
        sentences: the sentences.
        batch_size: sentences per batch; default 256. The last batch may have fewer.

    Returns:
        Batches of `Sentences.batch`; may be iterated several times.
    """
    order = np.argsort(sentences.lengths, kind="stable")
    return row_batches(order, sentences.batch, lambda: sentences.signature(None), batch_size, sentences.images)

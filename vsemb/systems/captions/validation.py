"""Measuring models of the next word on a validation split while `fit` runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from vsemb.data.batches import image_batches, pad_ids
from vsemb.data.sources import ImageSource
from vsemb.data.store import Split
from vsemb.errors import DataError
from vsemb.parts import Part
from vsemb.systems.captions.caption_metrics import cider
from vsemb.systems.captions.captioner import NeuralCaptioner
from vsemb.systems.captions.perplexity import Likelihood, LikelihoodMeasure, perplexity
from vsemb.text.tokenizers import Tokenizer
from vsemb.training.averaging import averaged_weights


class PerplexityValidation(keras.callbacks.Callback):
    """Measures how well a `NextWordModel` foresees the words of a split, after every epoch.

    Later callbacks see `val_log2_likelihood`, the mean of the base-2 logarithm of the probability of each
    word and each end of a sentence, and `val_perplexity`, 2 to the power of minus that. Put this callback
    before those.

    Args:
        batches: of the split, each mapping what the model reads; iterated once an epoch. See
            `likelihood_batches`.

    Raises:
        DataError: at the end of an epoch, if there are no sentences or a likelihood is NaN.

    Example:

        batches = likelihood_batches(images.gather, split.caption_rows, *tokenizer.encode(split.captions))
        model.fit(train_batches.dataset(), epochs=5, callbacks=[PerplexityValidation(batches)])
    """

    def __init__(self, batches: tf.data.Dataset) -> None:
        super().__init__()
        self.batches = batches
        self._measure: LikelihoodMeasure | None = None

    def measure(self) -> Likelihood:
        """Measures the model as it is now.

        Raises:
            DataError: if there are no sentences, or a likelihood is NaN.
        """
        if self._measure is None or self._measure.model is not self.model:
            self._measure = LikelihoodMeasure(self.model)
        with averaged_weights(self.model):
            found = self._measure(self.batches)
        if not found.count:
            raise DataError("There are no sentences to validate on.")
        return found

    def shown(self, logs: dict[str, Any]) -> str:
        """Returns the metrics of an epoch as text."""
        return f"val perplexity {logs['val_perplexity']:.2f}"

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        found = self.measure()
        logs = {} if logs is None else logs
        logs["val_log2_likelihood"] = found.log2_likelihood
        logs["val_perplexity"] = found.perplexity


class CiderValidation(PerplexityValidation):
    """Measures the captions that a model writes too, each the likeliest word by word.

    Later callbacks see `val_cider`, CIDEr-D times 100, beside what `PerplexityValidation` gives.

    Args:
        batches: see `PerplexityValidation`.
        split: the validation split, whose captions are the references.
        images: its images.
        tokenizer: the model's tokenizer.
        max_words: longest caption that is written.

    Raises:
        MissingExtraError: if `pycocoevalcap` is not installed.

    Example:

        model.fit(data, callbacks=[CiderValidation(batches, split, images, tokenizer)])
    """

    def __init__(
        self,
        batches: tf.data.Dataset,
        split: Split,
        images: ImageSource,
        tokenizer: Tokenizer,
        *,
        max_words: int = 20,
    ) -> None:
        super().__init__(batches)
        cider(["a"], [["a"]])  # What is missing is better missed now than after an epoch.
        self.split = split
        self.images = images
        self.tokenizer = tokenizer
        self.max_words = max_words
        self._captioner: NeuralCaptioner | None = None

    def captions(self) -> list[str]:
        """Writes a caption of each image of the split with the model as it is now."""
        if self._captioner is None or self._captioner.model is not self.model:
            vocabulary = self.tokenizer.vocabulary
            self._captioner = NeuralCaptioner(self.model, vocabulary, beam=1, n_best=1, max_words=self.max_words)
        texts: list[str] = []
        with averaged_weights(self.model):
            for batch in image_batches(self.images, len(self.split)):
                found = self._captioner(batch["image"]).texts.numpy()[:, 0]
                texts += [text.decode() for text in found.tolist()]
        return texts

    def shown(self, logs: dict[str, Any]) -> str:
        """Returns the metrics of an epoch as text."""
        return f"{super().shown(logs)}  val CIDEr {logs['val_cider']:.1f}"

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        logs = {} if logs is None else logs
        super().on_epoch_end(epoch, logs)
        references = [entry["captions"] for entry in self.split.entries]
        logs["val_cider"] = 100 * cider(self.captions(), references)[0]


def likelihood_batches(
    gather: Callable[[np.ndarray], np.ndarray],
    rows: np.ndarray,
    ids: np.ndarray,
    offsets: np.ndarray,
    *,
    finish: Callable[[tf.Tensor, Any], tf.Tensor] | None = None,
    batch_size: int = 256,
) -> tf.data.Dataset:
    """Batches sentences with their images, by length.

    Args:
        gather: the images of some rows, such as `ImageSource.gather`.
        rows: (sentences,) the row of each sentence's image.
        ids: (tokens,) int32, all sentences one behind the other, as `Tokenizer.encode` returns them.
        offsets: (sentences + 1,) int64.
        finish: what is left to do to images in graph, such as `ImageSource.finish`.
        batch_size: sentences a batch.

    Returns:
        A dataset of {"image": (n, ...), "text": (n, steps) int32}.
    """
    order = np.argsort(np.diff(offsets), kind="stable")

    def batches() -> Iterator[dict[str, np.ndarray]]:
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            yield {"image": gather(rows[chosen]), "text": pad_ids(ids, offsets, chosen)}

    one = gather(np.zeros(0, np.int64))
    image = tf.TensorSpec((None, *one.shape[1:]), tf.string if one.dtype == object else one.dtype)
    signature = {"image": image, "text": tf.TensorSpec((None, None), tf.int32)}
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    if finish is not None:
        dataset = dataset.map(lambda batch: {**batch, "image": finish(batch["image"], None)})
    return dataset.apply(tf.data.experimental.assert_cardinality(-(-len(order) // batch_size))).prefetch(2)


@dataclass(frozen=True)
class CaptionValidation(Part, family="caption validation"):
    """What a model that writes captions is measured by after every epoch; base of the family `caption validation`.

    Class attributes:
        monitor: name in the logs that decides which epoch is kept; the highest value is best.
    """

    monitor: ClassVar[str]

    def build(
        self, batches: tf.data.Dataset, split: Split, images: ImageSource, tokenizer: Tokenizer, max_words: int
    ) -> PerplexityValidation:
        """Returns the callback that adds `monitor` to an epoch's logs.

        Args:
            batches: of the split, see `likelihood_batches`.
            split: the validation split.
            images: its images.
            tokenizer: the model's tokenizer.
            max_words: longest caption that is written.
        """
        raise NotImplementedError

    def describe(self, info: Mapping[str, Any]) -> str:
        """Returns the best value as a phrase, from `run.json`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Perplexity(CaptionValidation, kind="perplexity"):
    """How well the words of the validation captions are foreseen."""

    monitor: ClassVar[str] = "val_log2_likelihood"

    def build(
        self, batches: tf.data.Dataset, split: Split, images: ImageSource, tokenizer: Tokenizer, max_words: int
    ) -> PerplexityValidation:
        return PerplexityValidation(batches)

    def describe(self, info: Mapping[str, Any]) -> str:
        return f"perplexity {perplexity(info['best_log2_likelihood'] * math.log(2), 1):.2f}"


@dataclass(frozen=True)
class Cider(CaptionValidation, kind="cider"):
    """CIDEr-D of the captions that are written for the validation images."""

    monitor: ClassVar[str] = "val_cider"

    def build(
        self, batches: tf.data.Dataset, split: Split, images: ImageSource, tokenizer: Tokenizer, max_words: int
    ) -> CiderValidation:
        return CiderValidation(batches, split, images, tokenizer, max_words=max_words)

    def describe(self, info: Mapping[str, Any]) -> str:
        return f"CIDEr {info['best_cider']:.1f}"

"""Measuring models of the next word on a validation split while `fit` runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from vsemb.data.batches import image_batches
from vsemb.data.sources import ImageSource
from vsemb.data.store import Split
from vsemb.parts import Part
from vsemb.systems.captions.caption_metrics import cider
from vsemb.systems.captions.captioner import NeuralCaptioner
from vsemb.systems.captions.decoding import SearchOptions
from vsemb.systems.captions.perplexity import Likelihood, LikelihoodMeasure
from vsemb.text.tokenizers import Tokenizer
from vsemb.training.callbacks import averaged_weights
from vsemb.training.validation import Validation


class PerplexityValidation(Validation):
    """Measures how well a `NextWordModel` foresees the words of a split, after every epoch.

    Later callbacks see `val_log2_likelihood`, the mean of the base-2 logarithm of the probability of each
    word and each end of a sentence, and `val_perplexity`, 2 to the power of minus that. Put this callback
    before those.

    Args:
        batches: of the split, each mapping what the model reads; iterated once an epoch. See
            `vsemb.systems.captions.sentences.sentence_batches`.

    Raises:
        DataError: at the end of an epoch, if there are no sentences or a likelihood is NaN.

    Example:

        batches = sentence_batches(Sentences(*tokenizer.encode(captions), images=images, image_rows=rows))
        model.fit(train_batches.dataset(), epochs=5, callbacks=[PerplexityValidation(batches)])
    """

    measured_by = LikelihoodMeasure

    def __init__(self, batches: tf.data.Dataset) -> None:
        super().__init__()
        self.batches = batches

    def measure(self) -> Likelihood:
        """Measures the model as it is now.

        Raises:
            DataError: if there are no sentences, or a likelihood is NaN.
        """
        with self.measures() as measure:
            return measure(self.batches)

    def shown(self, logs: dict[str, Any]) -> str:
        return f"val perplexity {logs['val_perplexity']:.2f}"

    def metrics(self) -> dict[str, float]:
        found = self.measure()
        return {"val_log2_likelihood": found.log2_likelihood, "val_perplexity": found.perplexity}


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
            self._captioner = NeuralCaptioner(self.model, vocabulary, SearchOptions(beam=1, max_words=self.max_words))
        texts: list[str] = []
        with averaged_weights(self.model):
            for batch in image_batches(self.images, np.arange(len(self.split))):
                found = self._captioner(batch["image"]).texts.numpy()[:, 0]
                texts += [text.decode() for text in found.tolist()]
        return texts

    def shown(self, logs: dict[str, Any]) -> str:
        return f"{super().shown(logs)}  val CIDEr {logs['val_cider']:.1f}"

    def metrics(self) -> dict[str, float]:
        references = [entry["captions"] for entry in self.split.entries]
        return {**super().metrics(), "val_cider": 100 * cider(self.captions(), references)[0]}


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
            batches: of the split, see `PerplexityValidation`.
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
        return f"perplexity {Likelihood(info['best_log2_likelihood'] * math.log(2), 1).perplexity:.2f}"


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

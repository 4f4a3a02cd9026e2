"""What the tasks of next-word models share: captions of images, captions of regions, and language models."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError, invalid_argument
from vsemb.parts import Count, NonNegative, Part
from vsemb.recipes.retrieval import described, first_captions
from vsemb.recipes.schema import Job, Recipe
from vsemb.runs.run import Run
from vsemb.systems.captions.decoding import Captioner, CaptionOptions
from vsemb.systems.captions.next_word import NextWordCrossEntropy
from vsemb.systems.captions.sentences import Sentences
from vsemb.systems.captions.signature import ServedCaptioner
from vsemb.systems.captions.validation import Likelihood, Perplexity
from vsemb.text.tokenizers import Words


@dataclass(frozen=True)
class WordText(Part):
    """The texts.

    Attributes:
        tokenizer: turns texts into words.
    """

    tokenizer: Words = field(default_factory=Words)


@dataclass(frozen=True)
class WordBatches(Part):
    """How texts become batches.

    Attributes:
        size: texts per batch, over all devices.
    """

    size: Count = 100

    def training_split(self, dataset: Dataset) -> Split:
        """Return the split `train` of a dataset, with the captions that are used."""
        return dataset.split("train")


@dataclass(frozen=True)
class CaptionBatches(WordBatches):
    """How the captions of images become batches.

    Attributes:
        captions_per_image: how many captions of a training image are used, the first ones; null for all.
    """

    captions_per_image: Count | None = None

    def training_split(self, dataset: Dataset) -> Split:
        return first_captions(super().training_split(dataset), self.captions_per_image)


@dataclass(frozen=True)
class NextWordTask(Recipe):
    """A model of the next word; base of the tasks that train one.

    Attributes:
        text: the texts.
        batches: how they become batches.
        l2: this much times half the sum of squares of all trained matrices is added to the loss, word vectors left
            out.

    Class attributes:
        ranks_candidates: whether many captions of an image are written and the best are chosen.
    """

    ranks_candidates: ClassVar[bool] = False

    text: WordText = field(default_factory=WordText)
    batches: WordBatches = field(default_factory=WordBatches)
    l2: NonNegative = 0.0

    @property
    def model_name(self) -> str:
        """What the kind of model is called in tables."""
        raise NotImplementedError

    @property
    def how_written(self) -> str:
        """How captions are looked for, as a phrase; "" where the model writes none."""
        raise NotImplementedError

    def open_data(self, path: str | os.PathLike[str]) -> Dataset:
        return Dataset.open(path)

    def refusal(self) -> str | None:
        """Return why the trained model writes no captions, as a phrase; None where it does."""
        return None

    def captioner(self, run: Run, options: CaptionOptions) -> Captioner:
        """Return what writes captions of images, as rows of what `image_run` gives.

        Args:
            run: a run of this recipe.
            options: how captions are looked for.

        Raises:
            InvalidArgumentError: for an option out of range, or one that is not read.
        """
        raise NotImplementedError

    def served(
        self, run: Any, *, images: bool = True, corpus: Any = None, extras: Any = (), **options: Any
    ) -> ServedCaptioner:
        asked: CaptionOptions = options.pop("options", None) or CaptionOptions()
        for name, value in {"corpus": corpus, "extras": extras or None, **options}.items():
            if value is not None:
                raise invalid_argument(name, value, "nothing for a run that writes captions")
        # The image network first: what a captioner needs takes long to read.
        image_input = self.image_run(run).image_input
        if image_input is None:
            raise DataError(
                f"{run.path} must hold an image network; it was trained on precomputed features, so it cannot look at "
                "images. Make features with a backbone, and train on them: vsemb features"
            )
        captioner = self.captioner(run, asked)
        return ServedCaptioner(captioner, image_input, {"words": len(run.vocabulary.words), **captioner.facts})

    def image_run(self, run: Run) -> Run:
        """Return the run that says how images become what the captioner reads: itself, or its encoder.

        Raises:
            DataError: if there is none.
        """
        raise NotImplementedError

    def likelihood(self, run: Run, dataset: Dataset, split: str) -> tuple[Sentences, Likelihood]:
        """Measure how well a run foresees the captions of a split.

        Args:
            run: a run of this recipe.
            dataset: the dataset.
            split: name of the split.

        Returns:
            The captions as the run reads them, and how likely they are.
        """
        raise NotImplementedError

    def summary(self, info: Mapping[str, Any], out: str, data: str) -> list[str]:
        return [
            f"best epoch   {info['best_epoch'] + 1}, validation {self.best(info)}",
            f"next         vsemb evaluate {out} --{self.evaluation}",
        ]

    def best(self, info: Mapping[str, Any]) -> str:
        """Return what was selected on validation, as a phrase."""
        return Perplexity().describe(info)


class NextWordJob(Job):
    """What a task makes of a dataset.

    Args:
        recipe: the recipe.
        dataset: with splits `train` and `val`.
    """

    monitor = Perplexity.monitor

    def __init__(self, recipe: Any, dataset: Dataset) -> None:
        self.recipe = recipe
        self.dataset = dataset
        self.train = recipe.batches.training_split(dataset)
        self.val = dataset.split("val")
        self.vocabulary = recipe.text.tokenizer.learn(self.train.captions)
        self.info = described(dataset)

    def loss(self, steps_per_epoch: int) -> NextWordCrossEntropy:
        """Return the loss."""
        return NextWordCrossEntropy()

"""Base of the tasks of next-word models: captions of images, captions of regions, and language models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from vsemb.data.store import Split, StoredDataset
from vsemb.errors import DataError, invalid_argument
from vsemb.parts import Count, NonNegative, Part
from vsemb.recipes.retrieval import described
from vsemb.recipes.schema import Job, Recipe
from vsemb.runs.run import Run
from vsemb.systems.captions.captioner import Captioner, CaptionOptions
from vsemb.systems.captions.next_word import NextWordCrossEntropy
from vsemb.systems.captions.sentences import Sentences
from vsemb.systems.captions.signature import ServedCaptioner
from vsemb.systems.captions.validation import Likelihood, Perplexity
from vsemb.text.tokenizers import Words

if TYPE_CHECKING:
    import numpy as np

    from vsemb.exporting import Corpus, ServedModel, Signature
    from vsemb.recipes.info import RunInfo
    from vsemb.runs.run import Run


@dataclass(frozen=True)
class WordText(Part):
    """The texts.

    Attributes:
        tokenizer: tokenizer of the texts.
    """

    tokenizer: Words = field(default_factory=Words)

    def check(self) -> None:
        if self.tokenizer.words_of is not None:
            fix = "The model writes words, and would have to learn when to write added ones."
            raise invalid_argument("text.tokenizer.words_of", self.tokenizer.words_of, "null for this recipe", fix)


@dataclass(frozen=True)
class WordBatches(Part):
    """Batches of texts.

    Attributes:
        size: texts per batch, over all devices.
    """

    size: Count = 100

    def training_split(self, dataset: StoredDataset) -> Split:
        """Return the training split of a dataset, with the captions that are used."""
        return dataset.split("train")


@dataclass(frozen=True)
class CaptionBatches(WordBatches):
    """Batches of the captions of images.

    Attributes:
        captions_per_image: number of captions used per training image, the first ones; null for all.
    """

    captions_per_image: Count | None = None

    def training_split(self, dataset: StoredDataset) -> Split:
        return super().training_split(dataset).first_captions(self.captions_per_image)


@dataclass(frozen=True)
class NextWordTask(Recipe):
    """A next-word model; base of the tasks that train one.

    Attributes:
        text: the texts.
        batches: the batches.
        l2: weight of the L2 penalty, half the sum of squares of all trained matrices except word vectors.

    Class attributes:
        ranks_candidates: whether the run writes many candidates per image and returns the best.
    """

    ranks_candidates: ClassVar[bool] = False
    rounds: ClassVar[bool] = False

    text: WordText = field(default_factory=WordText)
    batches: WordBatches = field(default_factory=WordBatches)
    l2: NonNegative = 0.0

    @property
    def model_name(self) -> str:
        """Name of the model in tables."""
        raise NotImplementedError

    @property
    def how_written(self) -> str:
        """The search for captions, as a phrase; "" if the model writes no captions."""
        raise NotImplementedError

    def open_data(self, path: str | os.PathLike[str]) -> StoredDataset:
        return StoredDataset.open(path)

    def refusal(self) -> str | None:
        """Return the reason why the trained model writes no captions, as a phrase; None if it writes captions."""
        return None

    def captioner(self, run: Run, options: CaptionOptions) -> Captioner:
        """Return the captioner, whose inputs are image rows of `image_run`.

        Args:
            run: a run of this recipe.
            options: options of the search.

        Raises:
            InvalidArgumentError: if an option is out of range or not supported.
        """
        raise NotImplementedError

    def region_inputs(self, regions: np.ndarray) -> np.ndarray:
        """Return the captioner's inputs for the regions of one image; by default their features.

        Args:
            regions: float32 (regions, dim), features of the regions, the whole image first.

        Returns:
            float32 (regions, size).
        """
        return regions

    def served(
        self,
        run: Run,
        *,
        images: bool = True,
        corpus: Corpus | None = None,
        extras: Sequence[Callable[[ServedModel], Signature]] = (),
        **options: Any,
    ) -> ServedCaptioner:
        asked: CaptionOptions = options.pop("options", None) or CaptionOptions()
        for name, value in {"index": corpus, "extras": extras or None, **options}.items():
            if value is not None:
                raise invalid_argument(name, value, "omitted for a run that writes captions")
        # The image network first, since loading a captioner takes long.
        image_input = self.image_run(run).image_input
        if image_input is None:
            raise DataError(
                f"{run.path} must hold an image network; it was trained on precomputed features, so it cannot look at "
                "images. Make features with a backbone, and train on them: vsemb features"
            )
        captioner = self.captioner(run, asked)
        return ServedCaptioner(captioner, image_input, {"words": len(run.vocabulary.words), **captioner.facts})

    def image_run(self, run: Run) -> Run:
        """Return the run that converts images to the captioner's input: the run itself, or its encoder.

        Raises:
            DataError: if the encoder is missing.
        """
        raise NotImplementedError

    def likelihood(self, run: Run, dataset: StoredDataset, split: str) -> tuple[Sentences, Likelihood]:
        """Measure the likelihood of the captions of a split.

        Args:
            run: a run of this recipe.
            dataset: the dataset.
            split: name of the split.

        Returns:
            The captions as token ids of the run, and their likelihood.
        """
        raise NotImplementedError

    def summary(self, info: RunInfo, out: str) -> list[str]:
        return [
            f"best epoch   {info['best_epoch'] + 1}, validation {self.best(info)}",
            f"next         vsemb evaluate {out}",
        ]

    def best(self, info: RunInfo) -> str:
        """Return the best validation result, as a phrase."""
        return Perplexity().describe(info)


class NextWordJob(Job):
    """Training job of a next-word task.

    Args:
        recipe: the recipe.
        dataset: a dataset with splits `train` and `val`.
    """

    monitor = Perplexity.monitor

    def __init__(self, recipe: Any, dataset: StoredDataset) -> None:
        self.recipe = recipe
        self.dataset = dataset
        self.train = recipe.batches.training_split(dataset)
        self.val = dataset.split("val")
        self.vocabulary = recipe.text.tokenizer.learn(self.training_texts())
        self.info = described(dataset)

    def training_texts(self) -> Iterable[str]:
        """Return the training texts, from which the vocabulary is learned."""
        return self.train.captions

    def loss(self, steps_per_epoch: int) -> NextWordCrossEntropy:
        """Return the loss."""
        return NextWordCrossEntropy()

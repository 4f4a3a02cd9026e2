"""Perplexity: how well models of the next word foresee the captions of a split, here and while `fit` runs.

While `fit` runs, CIDEr of the captions that they write may be measured too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from vsemb.data.batches import image_batches
from vsemb.data.sources import ImageSource
from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError
from vsemb.parts import Part
from vsemb.runs.run import Run
from vsemb.systems.captions.caption_metrics import cider
from vsemb.systems.captions.decoding import NeuralCaptioner, SearchOptions
from vsemb.systems.captions.next_word import NextWordModel
from vsemb.systems.captions.sentences import Sentences
from vsemb.text.tokenizers import Tokenizer
from vsemb.training.callbacks import averaged_weights
from vsemb.training.validation import Validation


@dataclass(frozen=True)
class Likelihood:
    """The likelihood of sentences under a model.

    Attributes:
        total: natural logarithm of the probability of all of them.
        count: the number of targets, the words of all sentences and an end of each; at least 1.

    Raises:
        DataError: if the logarithm is NaN.

    Example:

    >>> round(Likelihood(math.log(0.5 * 0.25 * 0.125 * 0.5), count=4).perplexity, 3)
    3.364
    """

    total: float
    count: int

    def __post_init__(self) -> None:
        if math.isnan(self.total):
            raise DataError("The likelihoods hold NaN. The model is broken; nothing was measured.")

    @property
    def log2_likelihood(self) -> float:
        """Mean over targets of log2 p: minus the bits per word, at most 0; larger is better."""
        return self.total / math.log(2) / self.count

    @property
    def perplexity(self) -> float:
        """2 ** (-(sum of log2 p) / count), pooled over all targets, ends of sentences included.

        Kiros et al. 2014 and the multimodal models before it report it; a model that gives each of V words the
        same probability has perplexity V. Infinity if a target has probability 0.
        """
        bits = -self.log2_likelihood
        return 2**bits if bits < 1024 else math.inf


class LikelihoodMeasure:
    """Measures the likelihood of sentences in batches, compiled once.

    Args:
        model: the model; weights that change later are seen.

    Example:

        LikelihoodMeasure(model)(sentence_batches(sentences)).perplexity
    """

    def __init__(self, model: NextWordModel) -> None:
        self.model = model
        self._log_likelihoods: Any = None

    def __call__(self, batches: tf.data.Dataset) -> Likelihood:
        """Measure all sentences.

        Args:
            batches: what the model's `log_likelihoods` takes, always of one `element_spec`, as
                `vsemb.systems.captions.sentences.sentence_batches` makes them.

        Raises:
            DataError: if there are no sentences, or a likelihood is NaN.
        """
        if self._log_likelihoods is None:
            self._log_likelihoods = self.model.log_likelihoods
            if keras.backend.backend() == "tensorflow":
                self._log_likelihoods = tf.function(self._log_likelihoods, input_signature=[batches.element_spec])
        total, count = 0.0, 0
        for batch in batches:
            found = keras.ops.convert_to_numpy(self._log_likelihoods(batch))
            total += float(found.sum(dtype=np.float64))
            count += int(np.count_nonzero(batch["text"])) + len(batch["text"])
        if not count:
            raise DataError("There are no sentences to measure.")
        return Likelihood(total, count)


def uniform_likelihood(counts: np.ndarray) -> Likelihood:
    """Return the likelihood of targets that are all equally likely.

    Args:
        counts: (vocabulary_size,) how often each word is a target, of id 0 the end of a sentence.

    Example:

    >>> uniform_likelihood(np.array([2, 0, 3, 5])).perplexity
    4.0
    """
    count = int(np.sum(counts))
    return Likelihood(-count * math.log(len(counts)), count)


def unigram_likelihood(counts: np.ndarray, training_counts: np.ndarray) -> Likelihood:
    """Return the likelihood of targets by how frequent each is in training, whatever stands before it.

    Args:
        counts: (vocabulary_size,) how often each word is a target, of id 0 the end of a sentence.
        training_counts: the same of the training sentences; a word that is not there counts one half.

    Example:

    >>> round(unigram_likelihood(np.array([1, 0, 1]), np.array([2, 0, 1])).perplexity, 3)
    2.475
    """
    frequencies = np.maximum(np.asarray(training_counts, np.float64), 0.5)
    logarithms = np.log(frequencies / frequencies.sum())
    return Likelihood(float(np.sum(counts * logarithms)), int(np.sum(counts)))


@dataclass(frozen=True)
class PerplexityRow:
    """One line of the table.

    Attributes:
        name: the run's directory, or `uniform` or `unigram`.
        decoder: what the run's recipe calls its model; "" for a baseline.
        perplexity: see `Likelihood.perplexity`.
        bits: base-2 logarithm of it, what a word takes.
        words: the number of targets: words and ends of sentences.
        unknown: share of the words that the vocabulary does not have, in [0, 1]; each counts as the same
            word, so more of them make the task easier.
        vocabulary_size: number of ids, from which targets are chosen.
        vocabulary: its fingerprint.
    """

    name: str
    decoder: str
    perplexity: float
    bits: float
    words: int
    unknown: float
    vocabulary_size: int
    vocabulary: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values; a perplexity without bounds is null."""
        plain = asdict(self)
        return {name: None if value == math.inf else value for name, value in plain.items()}


def measure_perplexities(runs: Sequence[Run], dataset: Dataset, split: str = "val") -> list[PerplexityRow]:
    """Measure how well runs foresee the captions of a split, given what they are conditioned on.

    Language models are given the vector of the caption itself, as the paper trains them, and networks that
    write about images the image; so a lower perplexity of the first is no better caption.

    Args:
        runs: of recipes whose task foresees words; the first decides the vocabulary of the baselines.
        dataset: the captions; with parts of speech, where a run reads them.
        split: name of the split.

    Returns:
        A row a run, in order; then the baselines: `uniform`, all words equally likely, and, where the dataset
        has a split `train`, `unigram`, each as likely as it is frequent there.

    Raises:
        DataError: if there is no run, or a run cannot be measured on the dataset.
        InvalidArgumentError: if the dataset has no such split.

    Example:

        rows = measure_perplexities([Run.open("runs/lbl"), Run.open("runs/sc-nlm")], dataset)
        print(difference_of(rows))
    """
    if not runs:
        raise DataError("There is no run whose perplexity is to be measured.")
    rows = []
    for run in runs:
        sentences, likelihood = run.recipe.likelihood(run, dataset, split)
        rows.append(_row(run, sentences, likelihood, str(run.path), run.recipe.model_name))
    return rows + _baselines(runs[0], dataset, split)


def difference_of(rows: Sequence[PerplexityRow]) -> str | None:
    """Says why rows must not be compared: they foresee other words; None where they may be.

    Args:
        rows: what `measure_perplexities` returned.
    """
    first = rows[0]
    for row in rows[1:]:
        if row.vocabulary != first.vocabulary:
            return (
                f"{row.name} has another vocabulary than {first.name} ({row.vocabulary_size:,} and "
                f"{first.vocabulary_size:,} ids), so their perplexities cannot be compared. Train both with "
                "the same text.tokenizer.min_count and text.tokenizer.vocabulary_size on the same captions."
            )
        if row.words != first.words:
            return (
                f"{row.name} foresees {row.words:,} words and {first.name} {first.words:,}, so their "
                "perplexities cannot be compared. Train both with the same text.tokenizer.max_length."
            )
    return None


def _row(run: Run, sentences: Sentences, likelihood: Likelihood, name: str, decoder: str = "") -> PerplexityRow:
    return PerplexityRow(
        name=name,
        decoder=decoder,
        perplexity=likelihood.perplexity,
        bits=-likelihood.log2_likelihood,
        words=likelihood.count,
        unknown=float(np.count_nonzero(sentences.ids == 1)) / max(len(sentences.ids), 1),
        vocabulary_size=len(run.vocabulary),
        vocabulary=run.vocabulary.fingerprint,
    )


def _baselines(run: Run, dataset: Dataset, name: str) -> list[PerplexityRow]:
    sentences = Sentences(*run.tokenizer.encode(dataset.split(name).captions))
    size = len(run.vocabulary)
    counts = sentences.word_counts(size)
    found = {"uniform": uniform_likelihood(counts)}
    if "train" in dataset.splits:
        training = Sentences(*run.tokenizer.encode(run.recipe.batches.training_split(dataset).captions))
        found["unigram"] = unigram_likelihood(counts, training.word_counts(size))
    return [_row(run, sentences, likelihood, name) for name, likelihood in found.items()]


class PerplexityValidation(Validation):
    """Measure how well a `NextWordModel` foresees the words of a split, after every epoch.

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
        """Measure the model as it is now.

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
    """Measure the captions that a model writes too, each the likeliest word by word.

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
        """Write a caption of each image of the split with the model as it is now."""
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
        """Return the callback that adds `monitor` to an epoch's logs.

        Args:
            batches: of the split, see `PerplexityValidation`.
            split: the validation split.
            images: its images.
            tokenizer: the model's tokenizer.
            max_words: longest caption that is written.
        """
        raise NotImplementedError

    def describe(self, info: Mapping[str, Any]) -> str:
        """Return the best value as a phrase, from `run.json`."""
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

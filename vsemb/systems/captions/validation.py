"""Perplexity of next-word models on the captions of a split, also as validation during `fit`.

During `fit`, the CIDEr of generated captions can be measured too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import keras
import numpy as np

from vsemb.data.batches import image_batches
from vsemb.data.sources import ImageSource
from vsemb.data.store import Split, StoredDataset
from vsemb.data.tokens import encoded_captions
from vsemb.errors import DataError
from vsemb.ops.tensorflow import tf
from vsemb.parts import Part
from vsemb.recipes.info import untyped
from vsemb.runs.run import Run
from vsemb.systems.captions.caption_metrics import cider
from vsemb.systems.captions.captioner import NeuralCaptioner
from vsemb.systems.captions.decoding import SearchOptions
from vsemb.systems.captions.next_word import NextWordModel
from vsemb.systems.captions.sentences import Sentences
from vsemb.text.tokenizers import Tokenizer
from vsemb.training.callbacks import averaged_weights
from vsemb.training.validation import Validation

if TYPE_CHECKING:
    from vsemb.recipes.info import RunInfo


@dataclass(frozen=True)
class Likelihood:
    """The likelihood of sentences under a model.

    Attributes:
        total: natural logarithm of the probability of all sentences.
        count: number of targets, all words and the end of each sentence; at least 1.

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
        """Mean of log2 p over targets, which is minus the bits per word; at most 0, larger is better."""
        return self.total / math.log(2) / self.count

    @property
    def perplexity(self) -> float:
        """2 ** (-(sum of log2 p) / count), over all targets, including the ends of sentences.

        The perplexity of a uniform model of V words is V. It is infinite if a target has probability 0.

        Reference:
            Kiros et al. 2014, who report it as earlier multimodal models do.
        """
        bits = -self.log2_likelihood
        return 2**bits if bits < 1024 else math.inf


class LikelihoodMeasure:
    """Measure of the likelihood of sentences in batches, compiled once.

    Args:
        model: the model; each measurement uses its current weights.

    Example:

        LikelihoodMeasure(model)(sentence_batches(sentences)).perplexity
    """

    def __init__(self, model: NextWordModel) -> None:
        self.model = model
        self._log_likelihoods: Any = None

    def __call__(self, batches: tf.data.Dataset) -> Likelihood:
        """Measure all sentences.

        Args:
            batches: inputs of the model's `log_likelihoods`, always with the same `element_spec`, see
                `vsemb.systems.captions.sentences.sentence_batches`.

        Raises:
            DataError: if `batches` is empty, or a likelihood is NaN.
        """
        if self._log_likelihoods is None:
            self._log_likelihoods = self.model.log_likelihoods
            if keras.backend.backend() == "tensorflow":
                self._log_likelihoods = tf.function(self._log_likelihoods, [batches.element_spec], autograph=False)
        total, count = 0.0, 0
        for batch in batches:
            log_likelihoods = keras.ops.convert_to_numpy(self._log_likelihoods(batch))
            total += float(log_likelihoods.sum(dtype=np.float64))
            count += int(np.count_nonzero(batch["text"])) + len(batch["text"])
        if not count:
            raise DataError("Perplexity needs at least one sentence; got none.")
        return Likelihood(total, count)


def uniform_likelihood(counts: np.ndarray) -> Likelihood:
    """Compute the likelihood of targets under a uniform distribution.

    Args:
        counts: (vocabulary_size,) number of times that each id is a target; id 0 is the end of a sentence.

    Example:

    >>> uniform_likelihood(np.array([2, 0, 3, 5])).perplexity
    4.0
    """
    count = int(np.sum(counts))
    return Likelihood(-count * math.log(len(counts)), count)


def unigram_likelihood(counts: np.ndarray, training_counts: np.ndarray) -> Likelihood:
    """Compute the likelihood of targets under the unigram distribution of the training sentences.

    Args:
        counts: (vocabulary_size,) number of times that each id is a target; id 0 is the end of a sentence.
        training_counts: (vocabulary_size,) the counts of the training sentences; zeros are replaced by one half.

    Example:

    >>> round(unigram_likelihood(np.array([1, 0, 1]), np.array([2, 0, 1])).perplexity, 3)
    2.475
    """
    frequencies = np.maximum(np.asarray(training_counts, np.float64), 0.5)
    logarithms = np.log(frequencies / frequencies.sum())
    return Likelihood(float(np.sum(counts * logarithms)), int(np.sum(counts)))


@dataclass(frozen=True)
class PerplexityRow:
    """One row of the perplexity table.

    Attributes:
        name: run directory, `uniform` or `unigram`.
        decoder: name of the model in the recipe; "" for a baseline.
        perplexity: see `Likelihood.perplexity`.
        bits: bits per word, the base-2 logarithm of the perplexity.
        words: number of targets: words and ends of sentences.
        unknown: share of words outside the vocabulary, in [0, 1]. All count as the same word, so a larger share makes
            the task easier.
        vocabulary_size: number of ids.
        vocabulary: fingerprint of the vocabulary.
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
        """Return plain values; infinity becomes null."""
        plain = asdict(self)
        return {name: None if value == math.inf else value for name, value in plain.items()}


def measure_perplexities(runs: Sequence[Run], dataset: StoredDataset, split: str = "val") -> list[PerplexityRow]:
    """Measure the perplexity of runs on the captions of a split.

    Language models are conditioned on the vector of the caption itself, as in the paper. Captioning networks are
    conditioned on the image. So a lower perplexity of a language model does not mean better captions.

    Args:
        runs: runs of next-word recipes. The vocabulary of the first run is used for the baselines.
        dataset: the captions, with parts of speech if a run reads them.
        split: name of the split; default `val`.

    Returns:
        One row per run, in order, then the baselines: `uniform`, and, if the dataset has a split `train`, `unigram`
        with the word frequencies of that split.

    Raises:
        DataError: if `runs` is empty, or a run cannot be measured on the dataset.
        InvalidArgumentError: if the split is missing.

    Example:

        rows = measure_perplexities([Run.open("runs/lbl"), Run.open("runs/sc-nlm")], dataset)
        print(difference_of(rows))
    """
    if not runs:
        raise DataError("Perplexity needs at least one run; got none.")
    rows = []
    for run in runs:
        sentences, likelihood = run.recipe.likelihood(run, dataset, split)
        rows.append(_row(run, sentences, likelihood, str(run.path), run.recipe.model_name))
    return rows + _baselines(runs[0], dataset, split)


def difference_of(rows: Sequence[PerplexityRow]) -> str | None:
    """Return the reason why the rows cannot be compared: different targets. None if they can be compared.

    Args:
        rows: rows of `measure_perplexities`.
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
                f"{row.name} predicts {row.words:,} words and {first.name} {first.words:,}, so their "
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


def _baselines(run: Run, dataset: StoredDataset, name: str) -> list[PerplexityRow]:
    sentences = Sentences(*encoded_captions(dataset.split(name), run.tokenizer))
    size = len(run.vocabulary)
    counts = sentences.word_counts(size)
    likelihoods = {"uniform": uniform_likelihood(counts)}
    if "train" in dataset.splits:
        training = Sentences(*encoded_captions(run.recipe.batches.training_split(dataset), run.tokenizer))
        likelihoods["unigram"] = unigram_likelihood(counts, training.word_counts(size))
    return [_row(run, sentences, likelihood, name) for name, likelihood in likelihoods.items()]


class PerplexityValidation(Validation):
    """Callback that measures the perplexity of a `NextWordModel` on a split after every epoch.

    It adds two values to the logs of later callbacks. `val_log2_likelihood` is the mean of log2 p over all words and
    ends of sentences. `val_perplexity` is 2 ** -val_log2_likelihood. Put this callback before callbacks that read them.

    Args:
        batches: batches of the split with the inputs of the model, iterated once per epoch; see
            `vsemb.systems.captions.sentences.sentence_batches`.

    Raises:
        DataError: at the end of an epoch, if the split is empty or a likelihood is NaN.

    Example:

        batches = sentence_batches(Sentences(*tokenizer.encode(captions), images=images, image_rows=rows))
        model.fit(train_batches.dataset(), epochs=5, callbacks=[PerplexityValidation(batches)])
    """

    measured_by = LikelihoodMeasure

    def __init__(self, batches: tf.data.Dataset) -> None:
        super().__init__()
        self.batches = batches

    def measure(self) -> Likelihood:
        """Measure the model with its current weights.

        Raises:
            DataError: if `batches` is empty, or a likelihood is NaN.
        """
        with self.measures() as measure:
            return measure(self.batches)

    def shown(self, logs: dict[str, Any]) -> str:
        return f"val perplexity {logs['val_perplexity']:.2f}"

    def metrics(self) -> dict[str, float]:
        likelihood = self.measure()
        return {"val_log2_likelihood": likelihood.log2_likelihood, "val_perplexity": likelihood.perplexity}


class CiderValidation(PerplexityValidation):
    """Callback that measures perplexity, and the CIDEr-D of captions written by greedy search.

    It adds `val_cider`, CIDEr-D times 100, to the logs, in addition to the values of `PerplexityValidation`.

    Args:
        batches: see `PerplexityValidation`.
        split: the validation split, whose captions are the references.
        images: images of the split.
        tokenizer: tokenizer of the model.
        max_words: maximum number of words per caption; default 20.

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
        cider(["a"], [["a"]])  # Reports a missing extra now, not after an epoch.
        self.split = split
        self.images = images
        self.tokenizer = tokenizer
        self.max_words = max_words
        self._captioner: NeuralCaptioner | None = None

    def captions(self) -> list[str]:
        """Write a caption of each image of the split with the current weights."""
        if self._captioner is None or self._captioner.model is not self.model:
            vocabulary = self.tokenizer.vocabulary
            self._captioner = NeuralCaptioner(self.model, vocabulary, SearchOptions(beam=1, max_words=self.max_words))
        texts: list[str] = []
        with averaged_weights(self.model):
            for batch in image_batches(self.images, np.arange(len(self.split))):
                captions = self._captioner(batch["image"])
                texts += [text.decode() for text in captions.texts.numpy()[:, 0].tolist()]
        return texts

    def shown(self, logs: dict[str, Any]) -> str:
        return f"{super().shown(logs)}  val CIDEr {logs['val_cider']:.1f}"

    def metrics(self) -> dict[str, float]:
        references = list(self.split.caption_lists())
        return {**super().metrics(), "val_cider": 100 * cider(self.captions(), references)[0]}


@dataclass(frozen=True)
class CaptionValidation(Part, family="caption validation"):
    """Validation measure of a captioning model after every epoch; base of the family `caption validation`.

    Class attributes:
        monitor: name of the logged value that selects the best epoch; larger is better.
    """

    monitor: ClassVar[str]

    def build(
        self, batches: tf.data.Dataset, split: Split, images: ImageSource, tokenizer: Tokenizer, max_words: int
    ) -> PerplexityValidation:
        """Return the callback that adds `monitor` to the logs of an epoch.

        Args:
            batches: batches of the split, see `PerplexityValidation`.
            split: the validation split.
            images: images of the split.
            tokenizer: tokenizer of the model.
            max_words: maximum number of words per caption.
        """
        raise NotImplementedError

    def describe(self, info: RunInfo) -> str:
        """Return the best value as a phrase, from `run.json`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Perplexity(CaptionValidation, kind="perplexity"):
    """Perplexity of the validation captions."""

    monitor: ClassVar[str] = "val_log2_likelihood"

    def build(
        self, batches: tf.data.Dataset, split: Split, images: ImageSource, tokenizer: Tokenizer, max_words: int
    ) -> PerplexityValidation:
        return PerplexityValidation(batches)

    def describe(self, info: RunInfo) -> str:
        return f"perplexity {Likelihood(untyped(info)['best_log2_likelihood'] * math.log(2), 1).perplexity:.2f}"


@dataclass(frozen=True)
class Cider(CaptionValidation, kind="cider"):
    """CIDEr-D of captions generated for the validation images."""

    monitor: ClassVar[str] = "val_cider"

    def build(
        self, batches: tf.data.Dataset, split: Split, images: ImageSource, tokenizer: Tokenizer, max_words: int
    ) -> CiderValidation:
        return CiderValidation(batches, split, images, tokenizer, max_words=max_words)

    def describe(self, info: RunInfo) -> str:
        return f"CIDEr {untyped(info)['best_cider']:.1f}"

"""The perplexity of runs on the captions of a split, side by side: `vsemb evaluate RUN --perplexity`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vsemb.data.store import Dataset
from vsemb.errors import DataError
from vsemb.runs import texts
from vsemb.systems.captions.caption_run import CaptionRun
from vsemb.systems.captions.perplexity import (
    Likelihood,
    LikelihoodMeasure,
    uniform_likelihood,
    unigram_likelihood,
)
from vsemb.systems.captions.validation import likelihood_batches
from vsemb.systems.language.language_batches import Sentences, sentence_batches
from vsemb.systems.language.language_data import read_sentences
from vsemb.systems.language.language_run import LanguageRun, reads_tags


@dataclass(frozen=True)
class PerplexityRow:
    """One line of the table.

    Attributes:
        name: the run's directory, or `uniform` or `unigram`.
        decoder: what the run's recipe calls its model; "" for a baseline.
        perplexity: see `vsemb.systems.captions.perplexity.perplexity`.
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
        """Returns plain values; a perplexity without bounds is null."""
        plain = asdict(self)
        return {name: None if value == math.inf else value for name, value in plain.items()}


def measure_perplexities(
    runs: Sequence[LanguageRun | CaptionRun], dataset: Dataset, split: str = "val"
) -> list[PerplexityRow]:
    """Measures how well runs foresee the captions of a split, given what they are conditioned on.

    Language models are given the vector of the caption itself, as the paper trains them, and networks that
    write about images the image; so a lower perplexity of the first is no better caption.

    Args:
        runs: of the tasks `language` and `captions`; the first decides the vocabulary of the baselines.
        dataset: the captions; with parts of speech, where a run reads them.
        split: name of the split.

    Returns:
        A row a run, in order; then the baselines: `uniform`, all words equally likely, and, where the dataset
        has a split `train`, `unigram`, each as likely as it is frequent there.

    Raises:
        DataError: if there is no run, or a run cannot be measured on the dataset.
        InvalidArgumentError: if the dataset has no such split.

    Example:

        rows = measure_perplexities([LanguageRun.open("runs/lbl"), LanguageRun.open("runs/sc-nlm")], dataset)
        print(difference_of(rows))
    """
    if not runs:
        raise DataError("There is no run whose perplexity is to be measured.")
    rows = []
    for run in runs:
        sentences, likelihood = _measure(run, dataset, split)
        rows.append(_row(run, sentences, likelihood, str(run.path), run.recipe.caption.decoder))
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
                "the same text.min_count and text.max_words on the same captions."
            )
        if row.words != first.words:
            return (
                f"{row.name} foresees {row.words:,} words and {first.name} {first.words:,}, so their "
                "perplexities cannot be compared. Train both with the same text.max_length."
            )
    return None


def _row(
    run: LanguageRun | CaptionRun, sentences: Sentences, likelihood: Likelihood, name: str, decoder: str = ""
) -> PerplexityRow:
    words = max(len(sentences.ids), 1)
    return PerplexityRow(
        name=name,
        decoder=decoder,
        perplexity=likelihood.perplexity,
        bits=-likelihood.log2_likelihood,
        words=likelihood.count,
        unknown=float(np.count_nonzero(sentences.ids == 1)) / words,
        vocabulary_size=len(run.vocabulary),
        vocabulary=run.vocabulary.fingerprint,
    )


def _measure(run: LanguageRun | CaptionRun, dataset: Dataset, name: str) -> tuple[Sentences, Likelihood]:
    split = dataset.split(name)
    measure = LikelihoodMeasure(run.model)
    if isinstance(run, LanguageRun):
        tags = run.tags if reads_tags(run.recipe) else None
        sentences = read_sentences(split, run.tokenizer, encoder=run.encoder, names=tags)
        return sentences, measure(sentence_batches(sentences))
    images = run.images_of(dataset, split)
    sentences = read_sentences(split, run.tokenizer)
    batches = likelihood_batches(
        lambda rows: run.model_rows(images.gather(rows)),
        split.caption_rows,
        sentences.ids,
        sentences.offsets,
        finish=images.finish,
    )
    return sentences, measure(batches)


def _baselines(run: LanguageRun | CaptionRun, dataset: Dataset, name: str) -> list[PerplexityRow]:
    sentences = read_sentences(dataset.split(name), run.tokenizer)
    size = len(run.vocabulary)
    counts = sentences.word_counts(size)
    found = {"uniform": uniform_likelihood(counts)}
    if "train" in dataset.splits:
        split = texts.read_texts(run.recipe, dataset.split("train"), training=True)
        training = read_sentences(split, run.tokenizer)
        found["unigram"] = unigram_likelihood(counts, training.word_counts(size))
    return [_row(run, sentences, likelihood, name) for name, likelihood in found.items()]

"""The perplexity of runs on the captions of a split, side by side: `vsemb evaluate RUN --perplexity`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vsemb.data.store import Dataset
from vsemb.errors import DataError
from vsemb.recipes.retrieval import first_captions
from vsemb.runs.run import Run
from vsemb.systems.captions.perplexity import Likelihood, uniform_likelihood, unigram_likelihood
from vsemb.systems.captions.sentences import Sentences


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


def measure_perplexities(runs: Sequence[Run], dataset: Dataset, split: str = "val") -> list[PerplexityRow]:
    """Measures how well runs foresee the captions of a split, given what they are conditioned on.

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


def _baselines(run: Run, dataset: Dataset, name: str) -> list[PerplexityRow]:
    sentences = Sentences(*run.tokenizer.encode(dataset.split(name).captions))
    size = len(run.vocabulary)
    counts = sentences.word_counts(size)
    found = {"uniform": uniform_likelihood(counts)}
    if "train" in dataset.splits:
        count = getattr(run.recipe.batches, "captions_per_image", None)
        training = Sentences(*run.tokenizer.encode(first_captions(dataset.split("train"), count).captions))
        found["unigram"] = unigram_likelihood(counts, training.word_counts(size))
    return [_row(run, sentences, likelihood, name) for name, likelihood in found.items()]

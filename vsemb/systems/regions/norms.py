"""Norms of the embeddings of words and regions.

A score is a sum of inner products, so embeddings with larger norms weigh more (Karpathy and Fei-Fei 2015, section
6.1, table 4 and figure 8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from vsemb.data.store import Dataset
from vsemb.errors import DataError, invalid_argument
from vsemb.evaluation import Embedder
from vsemb.runs.run import Run
from vsemb.systems.regions.image_tower import regions_of, require_regions
from vsemb.systems.regions.region_search import FoundRegion, best_regions

# Captions embedded at once.
_BLOCK = 2048


@dataclass(frozen=True)
class WordNorm:
    """A word of a run's vocabulary.

    Attributes:
        word: it.
        norm: the mean norm of its vectors, over all its occurrences in the captions.
        count: of these.
    """

    word: str
    norm: float
    count: int


@dataclass(frozen=True)
class Norms:
    """Of one split.

    Attributes:
        smallest: the words of smallest norm, the smallest first.
        largest: the words of largest norm, the largest first.
        regions: the regions of largest norm, the largest first; the score is the norm.
    """

    smallest: list[WordNorm]
    largest: list[WordNorm]
    regions: list[FoundRegion]

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        words = {name: [dict(vars(word)) for word in getattr(self, name)] for name in ("smallest", "largest")}
        return {**words, "regions": [region.to_json() for region in self.regions]}


def word_norms(run: Run, dataset: Dataset, split: str, min_count: int = 5) -> list[WordNorm]:
    """Measures the words of a split's captions.

    The vector of a word depends on its sentence, so that the mean over its occurrences is measured. Words that the
    run does not know share one vector and are left out.

    Args:
        run: the run, whose texts are sequences of word vectors.
        dataset: the dataset.
        split: name of the split.
        min_count: words with fewer occurrences are left out.

    Returns:
        The smallest norm first.

    Raises:
        InvalidArgumentError: if no word has so many occurrences, or there is no such split.
        DataError: if a norm is not finite.
    """
    if min_count < 1:
        raise invalid_argument("min_count", min_count, "an integer >= 1")
    ids, offsets = run.encode(run.texts_of(dataset.split(split))[0])
    embedder = Embedder(run.model)
    sums, counts = (np.zeros(len(run.vocabulary.tokens), kind) for kind in (np.float64, np.int64))
    texts = len(offsets) - 1
    with tqdm(total=texts, desc="captions", unit="caption", disable=None, leave=False) as bar:
        for start in range(0, texts, _BLOCK):
            bounds = offsets[start : start + _BLOCK + 1]
            tokens = ids[bounds[0] : bounds[-1]]
            vectors = embedder.texts(tokens, bounds - bounds[0])  # (captions, words, dim)
            real = np.arange(vectors.shape[1]) < np.diff(bounds)[:, None]
            sums += np.bincount(tokens, np.linalg.norm(vectors, axis=2)[real], len(sums))
            counts += np.bincount(tokens, minlength=len(counts))
            bar.update(len(bounds) - 1)
    # The first two are padding and words that are not known.
    counts[:2] = 0
    rows = np.flatnonzero(counts >= min_count)
    if not len(rows):
        fix = f"The most frequent word of the split {split!r} has {counts.max()}."
        raise invalid_argument("min_count", min_count, "a number of occurrences that some word has", fix)
    means = sums[rows] / counts[rows]
    if not np.isfinite(means).all():
        raise DataError("The vectors of words hold NaN or infinity. The model is broken; nothing was measured.")
    order = np.argsort(means, kind="stable")
    words = run.vocabulary.tokens
    return [WordNorm(words[rows[at]], float(means[at]), int(counts[rows[at]])) for at in order]


def measure_norms(
    run: Run,
    dataset: Dataset,
    split: str = "val",
    *,
    k: int = 40,
    min_count: int = 5,
    every: bool = False,
    parts: bool = False,
) -> Norms:
    """Finds the words and regions of a split that weigh most, and the words that weigh least.

    Args:
        run: the run, whose images are sets of regions.
        dataset: the dataset.
        split: name of the split.
        k: words of each kind, and regions.
        min_count: as for `word_norms`.
        every, parts: as for `vsemb.systems.regions.region_search.search_regions`.

    Raises:
        DataError: if the run has no regions, or its embeddings are unit vectors.
        VsembError: as `word_norms` and `search_regions`.

    Example:

        found = measure_norms(Run.open("runs/dvsa"), Dataset.open("data/flickr8k"))
        print([word.word for word in found.largest])
    """
    require_regions(run)
    if run.recipe.similarity.unit_length:
        raise DataError(
            f"{run.path} must be a run whose embeddings have norms; its similarity {run.recipe.similarity.kind!r} "
            "compares unit vectors. Train one with norms: vsemb train dvsa --variant paper"
        )
    if k < 1:
        raise invalid_argument("k", k, "an integer >= 1")
    # Opened first: what the dataset lacks is said before the work of embedding.
    regions_of(run, dataset)
    words = word_norms(run, dataset, split, min_count)
    regions = best_regions(
        run, dataset, [split], lambda vectors: np.linalg.norm(vectors, axis=2), k, every=every, parts=parts
    )
    return Norms(words[:k], words[: -k - 1 : -1], regions)

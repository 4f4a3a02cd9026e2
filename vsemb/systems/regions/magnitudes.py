"""How long the vectors of words and regions are: what a run finds worth saying, and worth looking at.

A score is a sum of inner products, so that longer vectors weigh more (Karpathy and Fei-Fei 2015, section 6.1,
table 4 and figure 8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from vsemb.data.store import Dataset
from vsemb.errors import DataError, invalid_argument
from vsemb.evaluation import Embedder
from vsemb.runs.build import similarity_name
from vsemb.runs.run import Run
from vsemb.systems.regions.region_search import FoundRegion, best_regions

# Captions embedded at once.
_BLOCK = 2048


@dataclass(frozen=True)
class WordMagnitude:
    """A word of a run's vocabulary.

    Attributes:
        word: it.
        magnitude: the mean length of its vectors, over all its places in the captions.
        count: of these.
    """

    word: str
    magnitude: float
    count: int


@dataclass(frozen=True)
class Magnitudes:
    """Of one split.

    Attributes:
        smallest: the words of smallest magnitude, the smallest first.
        largest: those of largest magnitude, the largest first.
        regions: those of largest magnitude, the largest first; the score is the length of the vector.
    """

    smallest: list[WordMagnitude]
    largest: list[WordMagnitude]
    regions: list[FoundRegion]

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        words = {name: [dict(vars(word)) for word in getattr(self, name)] for name in ("smallest", "largest")}
        return {**words, "regions": [region.to_json() for region in self.regions]}


def word_magnitudes(run: Run, dataset: Dataset, split: str, min_count: int = 5) -> list[WordMagnitude]:
    """Measures the words of a split's captions.

    The vector of a word depends on its sentence, so that the mean over its places is measured. Words that the
    run does not know share one vector and are left out.

    Args:
        run: the run, whose texts are sequences of word vectors.
        dataset: the dataset.
        split: name of the split.
        min_count: words with fewer places are left out.

    Returns:
        The smallest magnitude first.

    Raises:
        InvalidArgumentError: if no word has so many places, or there is no such split.
        DataError: if the run has no regions, lengths of vectors say nothing in it, or they are not finite.
    """
    _check(run)
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
            lengths = np.diff(bounds)
            real = np.arange(vectors.shape[1]) < lengths[:, None]
            sums += np.bincount(tokens, np.linalg.norm(vectors, axis=2)[real], len(sums))
            counts += np.bincount(tokens, minlength=len(counts))
            bar.update(len(lengths))
    known = np.arange(len(counts)) >= 2
    if not np.any(known & (counts >= min_count)):
        most = int(counts[known].max(initial=0))
        fix = f"The most frequent word of the split {split!r} has {most}."
        raise invalid_argument("min_count", min_count, "a number of places that some word has", fix)
    rows = np.flatnonzero(known & (counts >= min_count))
    means = sums[rows] / counts[rows]
    if not np.isfinite(means).all():
        raise DataError("The vectors of words hold NaN or infinity. The model is broken; nothing was measured.")
    order = np.argsort(means, kind="stable")
    words = run.vocabulary.tokens
    return [WordMagnitude(words[rows[place]], float(means[place]), int(counts[rows[place]])) for place in order]


def measure_magnitudes(
    run: Run,
    dataset: Dataset,
    split: str = "val",
    *,
    k: int = 40,
    min_count: int = 5,
    every: bool = False,
    parts: bool = False,
) -> Magnitudes:
    """Finds the words and regions of a split that weigh most, and the words that weigh least.

    Args:
        run: the run, whose images are sets of regions.
        dataset: the dataset.
        split: name of the split.
        k: words of each kind, and regions.
        min_count: as for `word_magnitudes`.
        every, parts: as for `vsemb.systems.regions.region_search.search_regions`.

    Raises:
        VsembError: as `word_magnitudes` and `search_regions`.

    Example:

        found = measure_magnitudes(Run.open("runs/dvsa"), Dataset.open("data/flickr8k"))
        print([word.word for word in found.largest])
    """
    _check(run)
    if k < 1:
        raise invalid_argument("k", k, "an integer >= 1")
    # Opened first: what the dataset lacks is said before the work of embedding.
    run.regions_of(dataset)
    words = word_magnitudes(run, dataset, split, min_count)
    regions = best_regions(
        run, dataset, [split], lambda vectors: np.linalg.norm(vectors, axis=2), k, every=every, parts=parts
    )
    return Magnitudes(words[:k], words[: -k - 1 : -1], regions)


def _check(run: Run) -> None:
    run.need_regions()
    name = similarity_name(run.recipe)
    if not name.startswith("region-word"):
        raise DataError(
            f"{run.path} compares directions alone (similarity {name!r}), so the lengths of its vectors say "
            "nothing. A run with similarity 'region-word' has lengths: vsemb train dvsa --variant paper"
        )

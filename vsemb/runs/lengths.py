"""Comparing runs on captions of very different lengths (Vendrov et al. 2016, section 4.6 and figure 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from vsemb.data.store import Dataset
from vsemb.errors import invalid_argument
from vsemb.evaluation import Embedder
from vsemb.evaluation.lengths import LengthAnalysis, analyse_lengths, length_pairs
from vsemb.runs.indexing import captions_read
from vsemb.runs.run import Run
from vsemb.text.normalize import split_words

_TEXTS = 8192


@dataclass(frozen=True, eq=False)
class LengthComparison:
    """The result of `compare_lengths`.

    Attributes:
        split: name of the split.
        keys: (images,) names of the images ranked.
        captions: (captions,) their captions.
        caption_rows: (captions,) int64, the row of each caption's image.
        words: (captions,) int64, their lengths.
        pairs: (pairs, 2) int64, rows of the shorter and of the longer caption.
        runs: one analysis a run.
    """

    split: str
    keys: list[str]
    captions: list[str]
    caption_rows: np.ndarray
    words: np.ndarray
    pairs: np.ndarray
    runs: list[LengthAnalysis]

    @property
    def differences(self) -> np.ndarray:
        """(pairs,) by how many words the captions of each pair differ."""
        return self.words[self.pairs[:, 1]] - self.words[self.pairs[:, 0]]

    def examples(self, count: int) -> list[dict[str, Any]]:
        """Returns the most dramatic pairs, as figure 3 shows some.

        Those where the runs differ most in the rank that the shorter caption gives its image, whichever run
        is the better one; for a single run, where the ranks of the two captions differ most. An image is
        shown once.
        """
        shorter, longer = (np.stack([run.image_ranks[side] for run in self.runs]) for side in self.pairs.T)
        spread = np.ptp(shorter, axis=0) if len(self.runs) > 1 else np.abs(shorter - longer)[0]
        order = np.argsort(-spread, kind="stable")
        rows = self.caption_rows[self.pairs[order, 0]]
        order = order[np.sort(np.unique(rows, return_index=True)[1])]
        return [
            {
                "key": self.keys[self.caption_rows[self.pairs[place, 0]]],
                "longer": self.captions[self.pairs[place, 1]],
                "shorter": self.captions[self.pairs[place, 0]],
                "longer_ranks": longer[:, place].tolist(),
                "shorter_ranks": shorter[:, place].tolist(),
            }
            for place in order[:count]
        ]


def compare_lengths(
    runs: Sequence[Run], dataset: Dataset, split: str = "val", *, pairs: int = 100, images: int | None = None
) -> LengthComparison:
    """Measures how runs cope with captions of very different lengths for one image.

    Args:
        runs: the runs.
        dataset: a dataset that fits all of them.
        split: name of the split.
        pairs: see `length_pairs`.
        images: take only so many images of the split, the first, with their captions; None takes all.

    Raises:
        InvalidArgumentError: for no runs, pairs < 1, or images < 1 or more than there are.
        VsembError: if a run and the dataset do not fit, or the split is not there.

    Example:

        order, symmetric = Run.open("runs/order"), Run.open("runs/symmetric")
        found = compare_lengths([order, symmetric], Dataset.open("data/flickr8k"), images=1000)
        print(found.runs[0].to_json()["image_pairs"], found.runs[1].to_json()["image_pairs"])
    """
    if not runs:
        raise invalid_argument("runs", [], "at least one run")
    part = dataset.split(split)
    count = len(part) if images is None else images
    if not 1 <= count <= len(part):
        raise invalid_argument("images", images, f"an integer from 1 to {len(part)}, the images of {split!r}")
    rows = part.caption_rows[part.caption_rows < count]
    captions = part.captions[: len(rows)]
    words = _count_words(captions)
    ids = part.ids[:count]
    chosen = length_pairs(words, ids[rows], pairs)
    analyses = []
    for run in runs:
        embedder = Embedder(run.model)
        embedded = embedder.images(run.images_of(dataset, part), count)
        texts = embedder.texts(*run.encode(captions_read(run, part)[: len(rows)]))
        analyses.append(analyse_lengths(embedded, texts, ids, ids[rows], chosen, run.model.similarity))
    return LengthComparison(part.name, part.keys[:count], captions, rows, words, chosen, analyses)


def _count_words(captions: list[str]) -> np.ndarray:
    """Counts words as the tokenizer splits them, of whole captions even where it cuts them."""
    blocks = [captions[start : start + _TEXTS] for start in range(0, len(captions), _TEXTS)]
    return np.concatenate([split_words(tf.constant(block)).row_lengths().numpy() for block in blocks])

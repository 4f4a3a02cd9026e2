"""Whether composed phrases find the scenes that show both things; used by a quick test and a slow one."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from vsemb.data.store import Split
from vsemb.runs.run import Run


class Scenes:
    """The embedded images of a split of scenes, and what they show.

    Args:
        run: the run.
        images: (n, dim) their embeddings.
        split: the split.
        shown: the labels ("red circle") of the objects of each image.
    """

    def __init__(self, run: Run, images: np.ndarray, split: Split, shown: list[set[str]]) -> None:
        assert len(images) == len(split) == len(shown)
        self.run, self.images, self.shown = run, images, shown
        self.labels = sorted(set().union(*shown))
        #: Every two things that some image shows together, and which images do: (pairs, n).
        self.pairs = [
            pair for pair in itertools.combinations(self.labels, 2) if any(set(pair) <= labels for labels in shown)
        ]
        self.both = np.array([[set(pair) <= labels for labels in shown] for pair in self.pairs])

    def embed(self, texts: list[str]) -> np.ndarray:
        """Embeds texts."""
        return self.run.model.encode_texts(self.run.tokenizer(tf.constant(texts))).numpy()

    def found(self, query: Callable[[np.ndarray, np.ndarray], np.ndarray], within: int = 1) -> float:
        """The share of the pairs for which one of the first `within` images shows both things.

        Args:
            query: from the embeddings of the two phrases, (pairs, dim) each, to those of the queries.
            within: images looked at.
        """
        phrases = dict(zip(self.labels, self.embed([f"a {label}" for label in self.labels]), strict=True))
        one, other = (np.stack([phrases[label] for label in side]) for side in zip(*self.pairs, strict=True))
        return self._found(query(one, other), within)

    def found_by_sentences(self, within: int = 1) -> float:
        """The same for sentences that name both things."""
        return self._found(self.embed([f"a {one} and a {other}" for one, other in self.pairs]), within)

    def _found(self, queries: np.ndarray, within: int) -> float:
        scores = np.asarray(self.run.model.similarity.scores(self.images, queries)).T  # (pairs, n)
        first = np.argsort(-scores, axis=1, kind="stable")[:, :within]
        return float(np.take_along_axis(self.both, first, axis=1).any(axis=1).mean())

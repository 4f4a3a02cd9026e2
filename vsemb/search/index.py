"""An index: embeddings on disk, searched block by block, or among candidates that a backend finds.

It fits its run and dataset or it is refused: embeddings of other weights are not comparable, and nothing
would show it. Its files are described in `vsemb.search.storage`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from vsemb.errors import invalid_argument, unknown_name
from vsemb.search.arithmetic import resort_by_mean
from vsemb.search.backends import Backend
from vsemb.search.best import BLOCK, best_of, best_of_blocks
from vsemb.search.candidates import check_candidates, default_candidates
from vsemb.search.scan import FEWEST_QUERIES, Rounding, rounding, scan
from vsemb.search.source import KINDS, IndexSettings, IndexSource, Item, items_are_images
from vsemb.search.storage import read_parts

_BLOCK = BLOCK
# Fewer are scored faster than their rounding is measured.
_FEWEST_ITEMS = 10_000


@dataclass(frozen=True, eq=False)
class SearchIndex:
    """Embeddings of images or texts, and the search for the nearest to a query.

    Attributes:
        embeddings: (items, dim) float32 or float16.
        ids: (items,) int64, the image of each item; not distinct for texts.
        keys: names of the items.
        source: what it was made from.
        items: what the rows stand for, where that is known.
        settings: how it is stored and searched.
        backend: what finds candidates; None scores every item.
        recorded: what was kept with it, such as where run and dataset were.

    Example:

    >>> source = IndexSource("run", "data", ("val",), "image", "dot")
    >>> index = SearchIndex(np.eye(3, dtype=np.float32), np.arange(3), ["a", "b", "c"], source)
    >>> rows, scores = index.search(np.array([[0.1, 0.9, 0.5]], np.float32), k=2)
    >>> rows.tolist()
    [[1, 2]]
    """

    embeddings: np.ndarray
    ids: np.ndarray
    keys: list[str]
    source: IndexSource
    items: list[Item] | None = None
    settings: IndexSettings = field(default_factory=IndexSettings)
    backend: Backend | None = None
    recorded: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def open(cls, directory: str | os.PathLike[str], expected: IndexSource | None = None) -> SearchIndex:
        """Opens an index and verifies all of its files.

        Args:
            directory: where it lies.
            expected: what it must have been made from; None takes it as it is.

        Raises:
            StaleIndexError: if it was made from something else.
            DataError: if it is missing, damaged or of another version.
            MissingExtraError: if its backend is not installed.
        """
        return cls(**read_parts(Path(directory), expected))

    @property
    def dim(self) -> int:
        """Size of an embedding."""
        return int(self.embeddings.shape[1])

    def embedding(self, row: int) -> np.ndarray:
        """Returns the embedding of an item: (dim,) float32."""
        return np.array(self.embeddings[row], np.float32)

    def resorted(self, rows: np.ndarray) -> np.ndarray:
        """Returns the order of items by how near they are to their mean, see `resort_by_mean`."""
        return resort_by_mean(self.embeddings[rows])

    def close(self) -> None:
        """Frees what its backend holds beside memory, as an embedded server."""
        if self.backend is not None:
            self.backend.close()

    def search(
        self,
        queries: np.ndarray,
        k: int,
        *,
        exclude: Sequence[int] = (),
        query_kind: str | None = None,
        candidates: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds the k best items for each query; nothing but blocks of scores is held.

        Whatever finds the candidates, they are ranked by their exact scores.

        Which of the two is scored as the image matters where the similarity has a direction, as an order
        has. Images are, and so are the captions of a text index when the query is a text: it finds those
        that say what the query says and perhaps more. Only an image that looks for captions is scored as
        the image itself; one that looks for images stands in for a text.

        Args:
            queries: (queries, dim) float32, normalised.
            k: items wanted.
            exclude: rows never to return.
            query_kind: what the queries are, `"image"` or `"text"`; None for the other kind than the items.
            candidates: score exactly only so many items for each query, those with the largest inner
                product, see `vsemb.search.candidates`. None scores all, or with a backend that is not exact
                ten for each result and at least 100, where inner products find candidates.

        Returns:
            rows: (queries, k) int64, best first, equal scores in the order of the rows. There are
                fewer than k columns where there are fewer items.
            scores: (queries, k) float32.

        Raises:
            InvalidArgumentError: for k < 1, fewer candidates than k, candidates that
                `check_candidates` refuses, or queries of another size or not finite.
        """
        if k < 1:
            raise invalid_argument("k", k, "an integer >= 1")
        if query_kind not in (None, *KINDS):
            raise unknown_name("query_kind", str(query_kind), KINDS)
        queries = np.asarray(queries, np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.dim or not np.isfinite(queries).all():
            raise invalid_argument("queries", queries.shape, f"finite numbers of shape (queries, {self.dim})")
        excluded = np.unique(np.asarray(exclude, np.int64))
        similarity = self.source.scored_by
        if candidates is not None:
            check_candidates(candidates, k, similarity, approximate=self.backend is not None)
        elif self.backend is not None and similarity.candidates_by_inner_product:
            candidates = default_candidates(k)
        if candidates is None:
            if similarity.inner_product:
                return self._nearest(queries, k, excluded)
            return self._best(queries, k, excluded, lambda items: self._scores(items, queries, query_kind))
        rows = self._candidates(queries, min(candidates, len(self) - len(excluded)), excluded)
        few = np.flatnonzero((rows >= 0).sum(axis=1) < min(k, len(self) - len(excluded)))
        rows, scores = self._rescored(queries, np.sort(rows, axis=1), k, query_kind)
        if len(few):  # A backend may find less than is wanted, and says so.
            some = queries[few]
            rows[few], scores[few] = self._best(
                some, rows.shape[1], excluded, lambda items: self._scores(items, some, query_kind)
            )
        return rows, scores

    def scores_of(self, queries: np.ndarray, rows: np.ndarray, *, query_kind: str | None = None) -> np.ndarray:
        """Scores some items exactly for each query.

        Args:
            queries: (queries, dim) float32, normalised.
            rows: (queries, n) int64, the items of each query; -1 for none.
            query_kind: see `search`.

        Returns:
            (queries, n) float32, -inf where the row is -1.
        """
        exact = np.zeros(rows.shape, np.float32)
        block = max(1, _BLOCK // max(1, rows.shape[1] * queries.shape[1]))
        for start in range(0, len(queries), block):
            here = slice(start, start + block)
            items = np.asarray(self.embeddings[rows[here]], np.float32)
            exact[here] = self._pair_scores(items, queries[here, None], query_kind)
        return np.where(rows < 0, -np.inf, exact)

    def _candidates(self, queries: np.ndarray, count: int, excluded: np.ndarray) -> np.ndarray:
        """Returns `count` rows for each query, in any order, -1 in place of those not found."""
        if self.backend is None or not count:
            return self._nearest(queries, count, excluded)[0]
        rows, _ = self.backend.search(queries, min(count + len(excluded), len(self)))
        if not len(excluded):
            return rows
        rows = np.where(np.isin(rows, excluded), -1, rows)
        # Those that are left, in their order, before those that are not.
        order = np.argsort(rows < 0, axis=1, kind="stable")
        return np.take_along_axis(rows, order, axis=1)[:, :count]

    @cached_property
    def _rounding(self) -> Rounding:
        return rounding(self.embeddings)

    def _nearest(self, queries: np.ndarray, k: int, excluded: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Finds the k largest inner products."""
        k = min(k, len(self) - len(excluded))
        if k and len(queries) >= FEWEST_QUERIES and len(self) >= _FEWEST_ITEMS:
            found = scan(self.embeddings, queries, k, excluded, self._rounding)
            if found is not None:
                return found
        return self._best(queries, k, excluded, lambda items: queries @ items.T)

    def _best(
        self, queries: np.ndarray, k: int, excluded: np.ndarray, score: Callable[[np.ndarray], np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        def block(start: int, stop: int) -> np.ndarray:
            found = score(np.asarray(self.embeddings[start:stop], np.float32))  # (queries, rows)
            here = excluded[(excluded >= start) & (excluded < stop)]
            found[:, here - start] = -np.inf
            return found

        k = min(k, len(self) - len(excluded))
        return best_of_blocks(block, len(self), len(queries), k, queries.shape[1], _BLOCK)

    def _rescored(
        self, queries: np.ndarray, rows: np.ndarray, k: int, query_kind: str | None
    ) -> tuple[np.ndarray, np.ndarray]:
        where, scores = best_of(self.scores_of(queries, rows, query_kind=query_kind), k)
        return np.take_along_axis(rows, where, axis=1), scores

    def _scores(self, items: np.ndarray, queries: np.ndarray, query_kind: str | None) -> np.ndarray:
        similarity = self.source.scored_by
        if similarity.inner_product:
            # The same sum for either side, without a copy of the items.
            return queries @ items.T
        item_tensor, query_tensor = ops.convert_to_tensor(items), ops.convert_to_tensor(queries)
        if items_are_images(self.source.kind, query_kind):
            scores = ops.transpose(similarity.scores(item_tensor, query_tensor))
        else:
            scores = similarity.scores(query_tensor, item_tensor)
        return np.array(ops.convert_to_numpy(scores))  # (queries, items)

    def _pair_scores(self, items: np.ndarray, queries: np.ndarray, query_kind: str | None) -> np.ndarray:
        similarity = self.source.scored_by
        pair = (items, queries) if items_are_images(self.source.kind, query_kind) else (queries, items)
        return ops.convert_to_numpy(similarity.pair_scores(*map(ops.convert_to_tensor, pair)))

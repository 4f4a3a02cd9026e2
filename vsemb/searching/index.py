"""An index: embeddings that are searched block by block, or among candidates from a backend or from inner products.

Order violations cannot be computed by a matrix product, and cost several times as much. For embeddings of unit length,
E(x, y) + E(y, x) = ||x - y||² = 2 - 2 x·y, so an item with a small violation has a large inner product. Candidates are
therefore found by inner product. On Flickr8k's validation split with the recipe `order-embedding`, `vsemb index RUN
--split val --candidates 50` finds 100.0 % of the exact ten best of 1,000 images for a caption. With `--captions`, it
finds 99.9 % of the ten best of 5,000 captions. Using the L1 norms of items, or a quadratic fit per dimension, finds
slightly more, but is not worth its cost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from keras import ops

from vsemb import similarities
from vsemb.errors import DataError, invalid_argument, unknown_name
from vsemb.evaluation.rounding import Rounding
from vsemb.parts import Count, require
from vsemb.quantization import dequantize
from vsemb.searching.arithmetic import resort_by_mean
from vsemb.searching.backends.backend import Finder, SearchBackend
from vsemb.searching.backends.exact import Exact
from vsemb.searching.scan import BLOCK, FEWEST_QUERIES, best_of, best_of_blocks, rounding, scan
from vsemb.similarities import Similarity

KINDS = ("image", "text")


def items_are_images(kind: str, query_kind: str | None) -> bool:
    """Return whether items are scored as images and queries as texts, see `SearchIndex.search`."""
    return kind == "image" or query_kind == "text"


class StaleIndexError(DataError):
    """The index was made from other weights, another dataset or other splits."""


@dataclass(frozen=True)
class IndexSource:
    """The source of an index.

    Attributes:
        run: fingerprint of the run: its weights and recipe.
        dataset: fingerprint of the dataset.
        splits: names of the splits, in order.
        kind: kind of the items: `"image"` or `"text"`.
        similarity: similarity of items and queries, as returned by `Similarity.to_json`, or its kind, for default
            fields.
    """

    run: str
    dataset: str
    splits: tuple[str, ...]
    kind: str
    similarity: dict[str, Any] | str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown_name("kind", self.kind, KINDS)
        object.__setattr__(self, "similarity", self.scored_by.to_json())

    @cached_property
    def scored_by(self) -> Similarity:
        """The similarity as an object."""
        if isinstance(self.similarity, str):
            return similarities.get(self.similarity)
        return Similarity.from_json(self.similarity)


@dataclass(frozen=True)
class Item:
    """The item of one row of an index.

    Attributes:
        id: id of the image.
        key: key of the image; for a caption, the key of its image with `#` and the number of the caption, from 0.
        split: name of the split.
        image_key: key of the image.
        caption: the caption; for an image, its longest caption.
    """

    id: int
    key: str
    split: str
    image_key: str
    caption: str


# Below this number of items, scoring all is faster than measuring their rounding.
_FEWEST_ITEMS = 10_000


#: Default number of candidates per result of a backend, and their minimum.
EACH, FEWEST = 10, 100


@dataclass(frozen=True, eq=False)
class SearchIndex:
    """Searchable embeddings of images or texts.

    Attributes:
        embeddings: (items, dim) float32 or float16.
        ids: (items,) int64, the image of each item; not distinct for texts.
        keys: names of the items.
        source: source of the embeddings.
        items: the items of the rows, if known.
        backend: the search backend.
        finder: the opened files of the backend, which find candidates; None to score every item.
        recorded: further stored facts, such as the paths of run and dataset.
        stamps: (items, 2) int64, sizes in bytes and modification times in nanoseconds of image files; None for others.

    Example:

    >>> source = IndexSource("run", "data", ("val",), "image", "dot")
    >>> index = SearchIndex(np.eye(3, dtype=np.float32), np.arange(3), ["a", "b", "c"], source)
    >>> rows, scores = index.search(np.array([[0.1, 0.9, 0.5]], np.float32), k=2)
    >>> rows.tolist()
    [[1, 2]]
    """

    embeddings: np.ndarray
    ids: np.ndarray
    keys: Sequence[str]
    source: IndexSource
    items: Sequence[Item] | None = None
    backend: SearchBackend = field(default_factory=Exact)
    finder: Finder | None = None
    recorded: Mapping[str, Any] = field(default_factory=dict)
    stamps: np.ndarray | None = None

    @classmethod
    def from_arrays(
        cls,
        embeddings: Any,
        keys: Sequence[str] | None = None,
        *,
        similarity: str | Similarity = "cosine",
        kind: str = "image",
    ) -> SearchIndex:
        """Make an index from your own embeddings.

        Args:
            embeddings: (items, dim) float; normalized if necessary. For cosine similarity also int8 or packed bits, see
                `vsemb.quantization`.
            keys: names of the items; None for row numbers.
            similarity: a kind such as `"cosine"`, or a `Similarity` of single vectors.
            kind: kind of the items: `"image"` or `"text"`.

        Returns:
            The index, in memory.

        Raises:
            InvalidArgumentError: for embeddings of another shape or that are not finite, another number of keys, or
                an unknown kind or similarity.

        Example:

        >>> SearchIndex.from_arrays([[1.0, 0.0], [3.0, 4.0]], ["a", "b"]).search([[0.0, 2.0]], k=1)[0].tolist()
        [[1]]
        """
        scored_by = similarities.get(similarity)
        vectors = dequantize(embeddings) if scored_by.compares_directions else np.asarray(embeddings, np.float32)
        if vectors.ndim != 2 or not len(vectors) or not np.isfinite(vectors).all():
            raise invalid_argument("embeddings", vectors.shape, "finite numbers of shape (items, dim)")
        names = [str(row) for row in range(len(vectors))] if keys is None else list(keys)
        if len(names) != len(vectors):
            raise invalid_argument("keys", f"{len(names)} names", f"{len(vectors)} names, one for each embedding")
        source = IndexSource("", "", (), kind, scored_by.to_json())
        return cls(scored_by.normalized_array(vectors), np.arange(len(vectors)), names, source)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dim(self) -> int:
        """Size of an embedding."""
        return int(self.embeddings.shape[1])

    def embedding(self, row: int) -> np.ndarray:
        """Return the embedding of an item: (dim,) float32."""
        return np.array(self.embeddings[row], np.float32)

    def resorted(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sort items by their distance to their mean, see `resort_by_mean`."""
        return resort_by_mean(self.embeddings[rows])

    def close(self) -> None:
        """Close resources of the finder, such as an embedded server."""
        if self.finder is not None:
            self.finder.close()

    def search(
        self,
        queries: np.ndarray,
        k: int,
        *,
        exclude: Sequence[int] = (),
        query_kind: str | None = None,
        candidates: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the k best items for each query, with one block of scores in memory.

        Candidates are ranked by their exact scores.

        An order similarity is not symmetric, so it matters which side is scored as the image. Images are scored as
        images. A text query against captions scores the captions as images, and so finds captions that imply the query.
        An image query is scored as an image against captions, and as a text against images.

        Args:
            queries: (queries, dim) float32, normalized.
            k: number of results.
            exclude: rows to exclude.
            query_kind: kind of the queries, `"image"` or `"text"`; None for the kind that differs from the items.
            candidates: number of items to score exactly per query, with the largest inner products. None for all items;
                with an approximate finder, for ten per result and at least 100 if inner products find candidates.

        Returns:
            rows: (queries, k) int64, best first; equal scores in the order of the rows. Fewer columns if the index has
                fewer items.
            scores: (queries, k) float32.

        Raises:
            InvalidArgumentError: for k < 1, fewer candidates than k, candidates that
                `check_candidates` refuses, or queries of another size or not finite.
        """
        require("k", k, Count)
        if query_kind not in (None, *KINDS):
            raise unknown_name("query_kind", str(query_kind), KINDS)
        queries = np.asarray(queries, np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.dim or not np.isfinite(queries).all():
            raise invalid_argument("queries", queries.shape, f"finite numbers of shape (queries, {self.dim})")
        excluded = np.unique(np.asarray(exclude, np.int64))
        left = len(self) - len(excluded)
        similarity = self.source.scored_by
        score = functools.partial(self._scores, query_kind=query_kind)
        if candidates is not None:
            check_candidates(candidates, k, similarity, approximate=self.finder is not None)
        elif self.finder is not None and similarity.candidates_by_inner_product:
            candidates = max(EACH * k, FEWEST)
        k = min(k, left)
        if candidates is None:
            if similarity.inner_product:
                return self._nearest(queries, k, excluded)
            return self._best(queries, k, excluded, score)
        rows = self._candidates(queries, min(candidates, left), excluded)
        few = np.flatnonzero((rows >= 0).sum(axis=1) < k)
        rows = np.sort(rows, axis=1)
        where, scores = best_of(self.scores_of(queries, rows, query_kind=query_kind), k)
        rows = np.take_along_axis(rows, where, axis=1)
        if len(few):  # The finder returned fewer than k rows (-1 in their place), so score all items.
            rows[few], scores[few] = self._best(queries[few], rows.shape[1], excluded, score)
        return rows, scores

    def scores_of(self, queries: np.ndarray, rows: np.ndarray, *, query_kind: str | None = None) -> np.ndarray:
        """Compute exact scores of some items for each query.

        Args:
            queries: (queries, dim) float32, normalized.
            rows: (queries, n) int64, the items of each query; -1 for none.
            query_kind: see `search`.

        Returns:
            (queries, n) float32; -inf for row -1.
        """
        similarity, exact = self.source.scored_by, np.zeros(rows.shape, np.float32)
        block = max(1, BLOCK // max(1, rows.shape[1] * queries.shape[1]))
        for start in range(0, len(queries), block):
            here = slice(start, start + block)
            items = np.asarray(self.embeddings[rows[here]], np.float32)
            pair = self._directed(items, queries[here, None], query_kind)
            exact[here] = ops.convert_to_numpy(similarity.pair_scores(*pair))
        return np.where(rows < 0, -np.inf, exact)

    def _candidates(self, queries: np.ndarray, count: int, excluded: np.ndarray) -> np.ndarray:
        """Return `count` rows per query, in any order; -1 if fewer are found."""
        if self.finder is None or not count:
            return self._nearest(queries, count, excluded)[0]
        rows, _ = self.finder.search(queries, min(count + len(excluded), len(self)))
        if not len(excluded):
            return rows
        rows = np.where(np.isin(rows, excluded), -1, rows)
        # Move the excluded rows (-1) behind the others, which keep their order.
        order = np.argsort(rows < 0, axis=1, kind="stable")
        return np.take_along_axis(rows, order, axis=1)[:, :count]

    @cached_property
    def _rounding(self) -> Rounding:
        return rounding(self.embeddings)

    def _nearest(self, queries: np.ndarray, k: int, excluded: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find the k largest inner products."""
        if k and len(queries) >= FEWEST_QUERIES and len(self) >= _FEWEST_ITEMS:
            best = scan(self.embeddings, queries, k, excluded, self._rounding)
            if best is not None:
                return best
        return self._best(queries, k, excluded, lambda items, queries: queries @ items.T)

    def _best(
        self, queries: np.ndarray, k: int, excluded: np.ndarray, score: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        def block(start: int, stop: int) -> np.ndarray:
            scores = score(np.asarray(self.embeddings[start:stop], np.float32), queries)  # (queries, rows)
            here = excluded[(excluded >= start) & (excluded < stop)]
            scores[:, here - start] = -np.inf
            return scores

        return best_of_blocks(block, len(self), len(queries), k, queries.shape[1], BLOCK)

    def _scores(self, items: np.ndarray, queries: np.ndarray, query_kind: str | None) -> np.ndarray:
        similarity = self.source.scored_by
        if similarity.inner_product:
            # The sum is the same for both sides, and this needs no copy of the items.
            return queries @ items.T
        scores = similarity.scores(*self._directed(items, queries, query_kind))
        if items_are_images(self.source.kind, query_kind):
            scores = ops.transpose(scores)
        return np.array(ops.convert_to_numpy(scores))  # (queries, items)

    def _directed(self, items: np.ndarray, queries: np.ndarray, query_kind: str | None) -> tuple[Any, Any]:
        """Return (images, texts): the sides that are scored as images and as texts."""
        pair = (items, queries) if items_are_images(self.source.kind, query_kind) else (queries, items)
        return ops.convert_to_tensor(pair[0]), ops.convert_to_tensor(pair[1])


def check_candidates(candidates: int, k: int, similarity: str | Similarity, *, approximate: bool = False) -> None:
    """Check a number of candidates.

    Args:
        candidates: number of items scored exactly per query.
        k: number of results.
        similarity: the similarity, or its kind.
        approximate: whether a finder chooses the candidates, instead of exact inner products.

    Raises:
        InvalidArgumentError: for fewer candidates than k, or a similarity that does not use candidates: inner products
            do not predict its scores, or they are its scores and no finder is used.
    """
    similarity = similarities.get(similarity)
    why = None
    if not similarity.candidates_by_inner_product:
        why = "Inner products find no candidates for it, and all items are scored: leave it out."
    elif similarity.inner_product and not approximate:
        why = "Its scores are inner products, by which candidates would be chosen: leave it out."
    if why is not None:
        raise invalid_argument("candidates", candidates, f"omitted with the similarity {similarity.kind!r}", why)
    if candidates < k:
        raise invalid_argument(
            "candidates", candidates, f"an integer >= {k}, the number of results that are found or ordered again"
        )


def check_backend(backend: SearchBackend, similarity: str | Similarity) -> None:
    """Check that the finder of a backend serves a similarity.

    Args:
        backend: search backend of an index.
        similarity: the similarity, or its kind.

    Raises:
        InvalidArgumentError: for a finder of candidates, if inner products do not predict the scores, so that all items
            would be scored nevertheless.
    """
    similarity = similarities.get(similarity)
    if backend.approximate and not similarity.candidates_by_inner_product:
        allowed = f"exact with float32 or float16 for the similarity {similarity.kind!r}"
        fix = "Inner products find no candidates for it, and all items are scored."
        raise invalid_argument("backend", backend.label, allowed, fix)

"""An index: embeddings on disk, searched block by block.

    <directory>/
      embeddings.npy   float32 (items, dim), memory-mapped
      ids.npy          int64 (items,), the image of each item
      keys.json        the name of each item
      manifest.json    of which run, dataset and splits, with the SHA-256 of the other files

It fits its run and dataset or it is refused: embeddings of other weights are not comparable, and nothing
would show it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from vsemb import similarities
from vsemb.errors import DataError, invalid_argument, unknown_name
from vsemb.files import read_json, replacing_directory, sha256_file, write_json
from vsemb.search.candidates import check_candidates

FORMAT, VERSION = "vsemb-index", 1
KINDS = ("image", "text")
_MANIFEST = "manifest.json"
_FILES = ("embeddings.npy", "ids.npy", "keys.json")
# Numbers held at a time, of scores and of embeddings: 64 MiB of float32.
_BLOCK = 1 << 24


class StaleIndexError(DataError):
    """An index was made from other weights, another dataset or other splits than those at hand."""


@dataclass(frozen=True)
class IndexSource:
    """What an index was made from.

    Attributes:
        run: fingerprint of the run: its weights and recipe.
        dataset: fingerprint of the dataset.
        splits: names of the splits, in order.
        kind: what the items are: `"image"` or `"text"`.
        similarity: name of the similarity that compares them with queries.
    """

    run: str
    dataset: str
    splits: tuple[str, ...]
    kind: str
    similarity: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown_name("kind", self.kind, KINDS)
        if self.similarity not in similarities.SIMILARITIES:
            raise unknown_name("similarity", self.similarity, similarities.SIMILARITIES)


@dataclass(frozen=True, eq=False)
class SearchIndex:
    """Embeddings of images or texts, and the search for the nearest to a query.

    Attributes:
        embeddings: (items, dim) float32.
        ids: (items,) int64, the image of each item; not distinct for texts.
        keys: names of the items.
        source: what it was made from.

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
        """
        directory = Path(directory)
        manifest = read_json(directory / _MANIFEST, "index manifest")
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise DataError(f"{directory / _MANIFEST} is not an index manifest (format {FORMAT!r}).")
        if manifest.get("version") != VERSION:
            raise StaleIndexError(
                f"The index {directory} has version {manifest.get('version')}, not {VERSION}. "
                "Make it again with `vsemb index`."
            )
        try:
            source = IndexSource(**{**manifest["source"], "splits": tuple(manifest["source"]["splits"])})
            digests = {name: manifest["sha256"][name] for name in _FILES}
        except (KeyError, TypeError) as error:
            raise DataError(f"{directory / _MANIFEST} is broken: {error}. Make it again.") from error
        if expected is not None:
            _refuse_stale(directory, source, expected)
        return cls(*_load(directory, digests), source)

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
                product, see `vsemb.search.candidates`; None scores all.

        Returns:
            rows: (queries, k) int64, best first, equal scores in the order of the rows. There are
                fewer than k columns where there are fewer items.
            scores: (queries, k) float32.

        Raises:
            InvalidArgumentError: for k < 1, fewer candidates than k, candidates with a similarity whose
                scores are inner products, or queries of another size or not finite.
        """
        if k < 1:
            raise invalid_argument("k", k, "an integer >= 1")
        if query_kind not in (None, *KINDS):
            raise unknown_name("query_kind", str(query_kind), KINDS)
        queries = np.asarray(queries, np.float32)
        dim = self.embeddings.shape[1]
        if queries.ndim != 2 or queries.shape[1] != dim or not np.isfinite(queries).all():
            raise invalid_argument("queries", queries.shape, f"finite numbers of shape (queries, {dim})")
        excluded = np.unique(np.asarray(exclude, np.int64))
        if candidates is None:
            return self._best(queries, k, excluded, lambda items: self._scores(items, queries, query_kind))
        check_candidates(candidates, k, self.source.similarity)
        rows, _ = self._best(queries, candidates, excluded, lambda items: queries @ items.T)
        return self._rescored(queries, np.sort(rows, axis=1), k, query_kind)

    def _best(
        self, queries: np.ndarray, k: int, excluded: np.ndarray, score: Callable[[np.ndarray], np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        k = min(k, len(self) - len(excluded))
        rows, scores = np.zeros((len(queries), 0), np.int64), np.zeros((len(queries), 0), np.float32)
        block = max(1, _BLOCK // max(len(queries), queries.shape[1]))
        for start in range(0, len(self), block):
            found = score(self.embeddings[start : start + block])  # (queries, block)
            here = excluded[(excluded >= start) & (excluded < start + found.shape[1])]
            found[:, here - start] = -np.inf
            # The block's best, then the best of those and of what was best so far. `top_k` puts the lower
            # of two equal items first, so order among equals does not depend on the blocks.
            best, where = _top(found, k)
            rows, scores = np.concatenate([rows, start + where], 1), np.concatenate([scores, best], 1)
            scores, where = _top(scores, k)
            rows = np.take_along_axis(rows, where, axis=1)
        return rows, scores

    def _rescored(
        self, queries: np.ndarray, rows: np.ndarray, k: int, query_kind: str | None
    ) -> tuple[np.ndarray, np.ndarray]:
        exact = np.zeros(rows.shape, np.float32)
        block = max(1, _BLOCK // max(1, rows.shape[1] * queries.shape[1]))
        for start in range(0, len(queries), block):
            here = slice(start, start + block)
            exact[here] = self._pair_scores(self.embeddings[rows[here]], queries[here, None], query_kind)
        scores, where = _top(exact, k)
        return np.take_along_axis(rows, where, axis=1), scores

    def _items_as_images(self, query_kind: str | None) -> bool:
        return self.source.kind == "image" or query_kind == "text"

    def _scores(self, items: np.ndarray, queries: np.ndarray, query_kind: str | None) -> np.ndarray:
        similarity = similarities.get(self.source.similarity)
        item_tensor, query_tensor = ops.convert_to_tensor(items), ops.convert_to_tensor(queries)
        if self._items_as_images(query_kind):
            scores = ops.transpose(similarity.scores(item_tensor, query_tensor))
        else:
            scores = similarity.scores(query_tensor, item_tensor)
        return np.array(ops.convert_to_numpy(scores))  # (queries, items)

    def _pair_scores(self, items: np.ndarray, queries: np.ndarray, query_kind: str | None) -> np.ndarray:
        similarity = similarities.get(self.source.similarity)
        pair = (items, queries) if self._items_as_images(query_kind) else (queries, items)
        return ops.convert_to_numpy(similarity.pair_scores(*map(ops.convert_to_tensor, pair)))


def write_index(
    directory: str | os.PathLike[str],
    embeddings: np.ndarray,
    ids: np.ndarray,
    keys: Sequence[str],
    source: IndexSource,
) -> SearchIndex:
    """Writes an index, whole or not at all, over an older one where there is one.

    Args:
        directory: where.
        embeddings: (items, dim) float32, finite, normalised.
        ids: (items,) int64.
        keys: names of the items.
        source: what they were made from.

    Returns:
        The index, opened.

    Raises:
        DataError: for items that do not fit each other or are not finite, a directory that holds
            something else, or a file system that refuses.
    """
    directory = Path(directory)
    embeddings = np.ascontiguousarray(embeddings, np.float32)
    if embeddings.ndim != 2 or not len(embeddings) == len(ids) == len(keys) or not len(ids):
        raise DataError(
            f"An index needs items. Received: embeddings {embeddings.shape}, {len(ids)} ids, "
            f"{len(keys)} keys."
        )
    bad = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
    if len(bad):
        raise DataError(f"The embedding of {keys[int(bad[0])]!r} is not finite; {len(bad)} are not.")
    if directory.exists() and not (directory / _MANIFEST).is_file() and any(directory.iterdir()):
        raise DataError(f"{directory} exists and is no index; choose another directory.")
    with replacing_directory(directory, overwrite=True) as temporary:
        np.save(temporary / "embeddings.npy", embeddings, allow_pickle=False)
        np.save(temporary / "ids.npy", np.asarray(ids, np.int64), allow_pickle=False)
        write_json(temporary / "keys.json", list(keys))
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "source": dataclasses.asdict(source),
            "items": len(ids),
            "dim": embeddings.shape[1],
            "sha256": {name: sha256_file(temporary / name) for name in _FILES},
        }
        write_json(temporary / _MANIFEST, manifest)
    return SearchIndex.open(directory, source)


def _top(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    best, where = ops.top_k(ops.convert_to_tensor(scores), min(k, scores.shape[1]), sorted=True)
    return ops.convert_to_numpy(best), ops.convert_to_numpy(where).astype(np.int64)


def _refuse_stale(directory: Path, source: IndexSource, expected: IndexSource) -> None:
    for field in dataclasses.fields(IndexSource):
        old, new = getattr(source, field.name), getattr(expected, field.name)
        if old != new:
            raise StaleIndexError(
                f"The index {directory} was made from another {field.name} ({str(old)[:40]}, not "
                f"{str(new)[:40]}). Make it again with `vsemb index`."
            )


def _load(directory: Path, digests: dict[str, str]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    for name, digest in digests.items():
        try:
            found: Any = sha256_file(directory / name)
        except OSError as error:
            raise DataError(f"The index file {directory / name} cannot be read: {error.strerror}.") from error
        if found != digest:
            raise DataError(f"The index file {directory / name} is damaged. Make the index again.")
    embeddings = np.load(directory / "embeddings.npy", mmap_mode="r", allow_pickle=False)
    ids = np.load(directory / "ids.npy", allow_pickle=False)
    return embeddings, ids, read_json(directory / "keys.json", "index keys")

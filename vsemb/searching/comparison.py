"""Comparison of all backends and dtypes by size, time and recall.

Recall at 1 and at 10 is the share of the exact best items, by float32 embeddings, that a backend finds. A found item
with the score of the last exact one also counts. Recall is measured for the backend alone, and after its candidates are
scored exactly, as in a search.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import tempfile
import time
import timeit
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vsemb import registry
from vsemb.errors import InvalidArgumentError, MissingExtraError, invalid_argument
from vsemb.printing import table
from vsemb.results import Result
from vsemb.searching.backends.backend import SearchBackend
from vsemb.searching.backends.exact import Exact
from vsemb.searching.index import IndexSource, SearchIndex, check_backend
from vsemb.searching.storage import BACKEND, write_index

_K = 10
_BATCH, _SINGLE, _ROUNDS = 128, 20, 3
# Maximum difference between two computations of one score.
_ROUNDING = 1e-5
# The same for float32 embeddings on both sides.
_EXACT_ROUNDING = 1e-6


@dataclass(frozen=True)
class Compared:
    """One row of a comparison.

    Attributes:
        name: backend and dtype.
        missing: error that names the package to install, or the reason why the backend does not serve the similarity.
            The other fields are then None.
        bytes_a_vector: bytes searched per item, without embeddings that are kept for exact scores.
        megabytes: bytes searched in total, in 10^6 bytes.
        build_seconds: seconds to write the index.
        milliseconds: milliseconds per query with exact scoring: of a single query, and in a batch of up to 128.
        recall: recall at 1 and 10 of the backend alone, from 0 to 1.
        reranked: recall at 1 and 10 after exact scoring; None if all items are scored exactly.
        retrieval: R@1 and R@10 of the queries' own images in percent, with exact scoring; None for queries without
            images.
        change: difference of `retrieval` from exact float32, in points.
    """

    name: str
    missing: str | None = None
    bytes_a_vector: float | None = None
    megabytes: float | None = None
    build_seconds: float | None = None
    milliseconds: tuple[float, float] | None = None
    recall: tuple[float, float] | None = None
    reranked: tuple[float, float] | None = None
    retrieval: tuple[float, float] | None = None
    change: tuple[float, float] | None = None


def all_backends() -> list[SearchBackend]:
    """Return the backend `exact` with each dtype, and all other backends with their defaults."""
    kinds = [kind for kind in registry.kinds("search backend") if kind != Exact.kind]
    others: list[SearchBackend] = [registry.find_part("search backend", kind, "backend")() for kind in kinds]
    return [Exact("float32"), Exact("float16"), Exact("int8"), Exact("binary"), *others]


def compare(
    index: SearchIndex,
    queries: np.ndarray,
    *,
    own: np.ndarray | None = None,
    query_kind: str | None = None,
    backends: Sequence[SearchBackend],
) -> Iterator[Compared]:
    """Write and measure an index with each backend, in a temporary directory.

    Args:
        index: index of the items; its embeddings count as exact.
        queries: (queries, dim) float32, normalized, at least one.
        own: (queries,) int64, the id of each query's own image; None for an index without images.
        query_kind: see `SearchIndex.search`.
        backends: backends to compare, such as `all_backends`. Exact float32 is always the first.

    Yields:
        One row per backend.

    Raises:
        InvalidArgumentError: if `queries` is empty.
        VsembError: as `write_index`.

    Example:

        rows = list(compare(index, queries, own=ids_of_the_images, backends=all_backends()))
    """
    if not len(queries):
        raise invalid_argument("queries", np.shape(queries), "at least one query")
    plain = Exact()
    embeddings = np.asarray(index.embeddings, np.float32)
    exact = SearchIndex(embeddings, index.ids, index.keys, index.source)
    rows, best = exact.search(queries, _K, query_kind=query_kind)
    base = None if own is None else _retrieval(index.ids[rows], own)

    def recall(rows_found: np.ndarray) -> tuple[float, float]:
        scores = exact.scores_of(queries, rows_found, query_kind=query_kind)
        scores = -np.sort(-scores, axis=1)[:, : best.shape[1]]
        # The first result of the backend, which may not be the best item that it found.
        first = exact.scores_of(queries, rows_found[:, :1], query_kind=query_kind)
        return (
            float(np.mean(first >= best[:, :1] - _ROUNDING)),
            float(np.mean(scores >= best[:, -1:] - _ROUNDING)),
        )

    for each in (plain, *(one for one in backends if one != plain)):
        try:
            check_backend(each, index.source.scored_by)
        except InvalidArgumentError as error:
            yield Compared(each.label, missing=str(error))
            continue
        with tempfile.TemporaryDirectory(prefix="vsemb-compare-") as folder:
            where = Path(folder) / "index"
            try:
                start = time.perf_counter()
                built = write_index(where, embeddings, index.ids, index.keys, index.source, backend=each)
                seconds = time.perf_counter() - start
            except MissingExtraError as error:
                yield Compared(each.label, missing=str(error))
                continue
            with contextlib.closing(built):
                found_rows, _ = built.search(queries, _K, query_kind=query_kind)
                files, raw = [where / "embeddings.npy"], found_rows
                if built.finder is not None:
                    files = [path for path in (where / BACKEND).rglob("*") if path.is_file()]
                    raw, _ = built.finder.search(queries, min(_K, len(built)))
                size = sum(path.stat().st_size for path in files)
                retrieval = None if own is None else _retrieval(index.ids[found_rows], own)
                change = base and retrieval and (retrieval[0] - base[0], retrieval[1] - base[1])
                yield Compared(
                    each.label,
                    bytes_a_vector=size / len(built),
                    megabytes=size / 1e6,
                    build_seconds=seconds,
                    milliseconds=_milliseconds(built, queries, query_kind),
                    recall=recall(raw),
                    reranked=None if built.finder is None else recall(found_rows),
                    retrieval=retrieval,
                    change=change,
                )


# A backend is recommended with at least this recall at 10, and at most this share of the time of exact search.
_ENOUGH, _FASTER = 0.99, 0.5


def recommended(rows: Sequence[Compared]) -> tuple[Compared, str]:
    """Choose a backend from a comparison.

    Args:
        rows: rows from `compare`, exact float32 first.

    Returns:
        row: the fastest backend with a recall at 10 of 99 % and at most half the time of exact float32; otherwise exact
            float32.
        why: the reason, one sentence.

    Example:

    >>> slow = Compared("exact float32", milliseconds=(8.0, 2.0), recall=(1.0, 1.0))
    >>> fast = Compared("faiss-ivf float32", milliseconds=(0.5, 0.1), recall=(0.9, 0.9), reranked=(1.0, 0.995))
    >>> recommended([slow, fast])[1]
    'It takes 0.50 ms per query instead of 8.00 and finds 99.5 % of the exact 10 best.'
    """
    exact = rows[0]
    assert exact.milliseconds is not None
    measured = [(row, *row.milliseconds, (row.reranked or row.recall or (0, 0))[1]) for row in rows if row.milliseconds]
    fast = [each for each in measured if each[3] >= _ENOUGH and each[1] <= _FASTER * exact.milliseconds[0]]
    if not fast:
        why = f"It takes {exact.milliseconds[0]:.2f} ms per query, and no backend that finds 99 % is twice as fast."
        return exact, why
    row, alone, _, recall = min(fast, key=lambda each: each[1])
    return row, (
        f"It takes {alone:.2f} ms per query instead of {exact.milliseconds[0]:.2f} and finds {100 * recall:.1f} % of "
        f"the exact {_K} best."
    )


_COLUMNS = """\
bytes         per item that is scanned; exact scores also need the embeddings
MB            of all items, 10^6 bytes
build s       seconds to write the index
ms, 1         milliseconds for a single query
ms, 128       milliseconds per query in a batch of 128
recall@1 @10  % of the exact best 1 and 10 that the backend finds
re-ranked     the same after exact scoring of the candidates, as in a search
R@1 R@10      % of captions that find their image among the best 1 and 10
change        of R@1 and R@10 from exact float32, in points"""
_HEADER = ["", "bytes", "MB", "build s", "ms, 1", "ms, 128", "recall@1", "@10", "re-ranked@1", "@10"]
_HEADER += ["R@1", "R@10", "change", "change"]


@dataclass(frozen=True, eq=False, repr=False)
class BackendComparison(Result):
    """A comparison of all search backends on one index.

    Attributes:
        rows: a row per backend and dtype, exact float32 first.
        items: number of items of the index.
        dim: size of an embedding.
        source: source of the index.
        queries: number and kind of the queries.
    """

    rows: tuple[Compared, ...]
    items: int
    dim: int
    source: IndexSource
    queries: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        best, _ = recommended(self.rows)
        rows = [dataclasses.asdict(row) for row in self.rows]
        shape = {"items": self.items, "dim": self.dim, "queries": self.queries}
        return {**shape, "rows": rows, "recommended": best.name}

    def __str__(self) -> str:
        best, why = recommended(self.rows)
        backend, dtype = best.name.split()
        title = f"{self.items:,} {self.source.kind}s of {', '.join(self.source.splits)}, {self.queries} as queries"
        shown = table(_HEADER, [_cells(row) for row in self.rows])
        left_out = "".join(f"{row.name}: {row.missing}\n" for row in self.rows if row.missing is not None)
        return f"{title}\n{shown}\n{left_out}\n{_COLUMNS}\n\nRecommended: backend {backend}, dtype {dtype}. {why}"


def _cells(row: Compared) -> list[str]:
    if row.missing is not None:
        return [row.name, "left out", *[""] * 12]
    return [
        row.name,
        f"{row.bytes_a_vector or 0:.0f}",
        f"{row.megabytes or 0:.2f}",
        f"{row.build_seconds or 0:.2f}",
        *_pair(row.milliseconds, ".2f"),
        *_pair(row.recall, ".1f", 100),
        *_pair(row.reranked, ".1f", 100),
        *_pair(row.retrieval, ".1f"),
        *_pair(row.change, "+.1f"),
    ]


def _pair(values: tuple[float, float] | None, form: str, scale: float = 1) -> list[str]:
    return ["", ""] if values is None else [format(scale * value, form) for value in values]


def _retrieval(ids: np.ndarray, own: np.ndarray) -> tuple[float, float]:
    hits = ids == own[:, None]
    return 100 * float(hits[:, :1].any(axis=1).mean()), 100 * float(hits.any(axis=1).mean())


def _milliseconds(index: SearchIndex, queries: np.ndarray, query_kind: str | None) -> tuple[float, float]:
    search = functools.partial(index.search, k=_K, query_kind=query_kind)
    batch, alone = queries[:_BATCH], queries[:_SINGLE, None]
    search(batch)
    single = [timeit.timeit(functools.partial(search, query), number=1) for query in alone]
    several = timeit.repeat(functools.partial(search, batch), number=1, repeat=_ROUNDS)
    return 1e3 * float(np.median(single)), 1e3 * float(np.median(several)) / len(batch)


def candidate_recall(
    index: SearchIndex, queries: np.ndarray, candidates: int, k: int = 10, *, query_kind: str | None = None
) -> float:
    """Measure the recall of a search that scores only candidates exactly.

    Args:
        index: the index.
        queries: (queries, dim) float32, normalized, at least one.
        candidates: number of items scored exactly per query.
        k: number of results.
        query_kind: see `SearchIndex.search`.

    Returns:
        Share of the exact k best items that is found, over all queries, from 0 to 1. A found item with the score of the
        last exact one also counts.

    Raises:
        InvalidArgumentError: as `SearchIndex.search`, or if `queries` is empty.

    Example:

    >>> from vsemb.searching.index import IndexSource, SearchIndex
    >>> source = IndexSource("run", "data", ("val",), "image", "order")
    >>> index = SearchIndex(np.eye(3, dtype=np.float32), np.arange(3), ["a", "b", "c"], source)
    >>> candidate_recall(index, np.eye(3, dtype=np.float32), candidates=1, k=1)
    1.0
    """
    if not len(queries):
        raise invalid_argument("queries", np.shape(queries), "at least one query")
    _, exact = dataclasses.replace(index, finder=None).search(queries, k, query_kind=query_kind)
    _, scores = index.search(queries, k, query_kind=query_kind, candidates=candidates)
    # Found scores are exact. So the found items of the exact result are those that reach its last score.
    return float(np.mean(scores >= exact[:, -1:] - _EXACT_ROUNDING))

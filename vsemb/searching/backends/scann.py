"""Partitions of hashed vectors by ScaNN (extra `index`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.errors import DataError, needs_extra
from vsemb.files import read_text
from vsemb.parts import Count
from vsemb.searching.backends.backend import FEW, Approximate, Finder, check_count

_SCANN_ASSETS = "scann_assets.pbtxt"
# Minimum number of items for which hashing saves time.
_HASHED = 2_000
# As recommended in ScaNN's documentation.
_BLOCK_DIMS, _THRESHOLD = 2, 0.2
_SCANN_TRAINING = 100_000
_PARALLEL = 32


def _scann() -> Any:
    with needs_extra("scann", "index"):
        from scann.scann_ops.py import scann_ops_pybind
    return scann_ops_pybind


class ScannIndex(Finder):
    """An opened index of ScaNN.

    Args:
        searcher: its searcher.
        count: number of items.
    """

    def __init__(self, searcher: Any, count: int) -> None:
        self.searcher, self._count = searcher, count

    def __len__(self) -> int:
        return self._count

    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        queries = np.ascontiguousarray(queries, np.float32)
        if not len(queries):
            return np.zeros((0, n), np.int64), np.zeros((0, n), np.float32)
        search = self.searcher.search_batched
        if len(queries) >= _PARALLEL:
            search = self.searcher.search_batched_parallel
        nearest, scores = search(queries, final_num_neighbors=n, pre_reorder_num_neighbors=n)
        # Missing results have row 0 and score NaN.
        rows = np.where(np.isnan(scores), -1, nearest.astype(np.int64))
        return rows, np.asarray(scores, np.float32)


@dataclass(frozen=True)
class Scann(Approximate, kind="scann"):
    """Hashed vectors in partitions; a search reads some of them. Below 2,000 items, vectors are not hashed.

    Attributes:
        leaves: number of partitions; default: sqrt(items), and 1 below 100,000 items.
        leaves_to_search: partitions that a search reads; default: one in eight.
    """

    leaves: Count | None = None
    leaves_to_search: Count | None = None

    def require_library(self) -> None:
        _scann()

    def build(self, vectors: np.ndarray, directory: Path) -> dict[str, Any]:
        count = len(vectors)
        # With one partition, ScaNN needs no tree.
        leaves = self.leaves or (round(count**0.5) if count >= FEW else 1)
        check_count("leaves", leaves, count, "items")
        searched = self.leaves_to_search or max(1, leaves // 8)
        check_count("leaves_to_search", searched, leaves, "leaves")
        builder = _scann().builder(np.ascontiguousarray(vectors, np.float32), 10, "dot_product")
        if leaves > 1:
            builder = builder.tree(leaves, searched, training_sample_size=min(count, _SCANN_TRAINING))
        if count >= _HASHED:
            builder = builder.score_ah(_BLOCK_DIMS, anisotropic_quantization_threshold=_THRESHOLD)
        else:
            builder = builder.score_brute_force()
        builder.build().serialize(str(directory), relative_path=True)
        return {"leaves": leaves, "leaves_to_search": searched, "count": count}

    def open(self, directory: Path, made: Mapping[str, Any]) -> ScannIndex:
        scann = _scann()
        try:
            assets = read_text(directory / _SCANN_ASSETS)
            # `load_searcher` would unpickle a file of names if it exists.
            searcher = scann.ScannSearcher(scann.scann_pybind.ScannNumpy(str(directory), assets))
        except (OSError, RuntimeError, ValueError) as error:
            raise DataError(f"The index {directory} is damaged. Make the index again.") from error
        return ScannIndex(searcher, int(made["count"]))

"""FAISS' flat index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import faiss
import numpy as np

from tests.benchmarks.timing import cpu_seconds


def search(vectors: np.ndarray, queries: np.ndarray, k: int) -> Callable[..., dict[str, Any]]:
    """Returns what searches for the first `batch` queries: seconds per call, and the places found."""
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)

    def call(batch: int, calls: int) -> dict[str, Any]:
        some = queries[:batch]
        seconds = cpu_seconds(lambda: [index.search(some, k) for _ in range(calls)]) / calls
        return {"seconds": seconds, "found": index.search(some, k)[1]}

    return call

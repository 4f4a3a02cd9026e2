"""Search: vsemb's exact best ten against FAISS' flat index, and what approximate backends find in less time.

    python -m tests.benchmarks.search [--items 100000] [--dim 256 1024] [--json FILE]

Every time is a ratio to FAISS' flat index, measured in the same run on the same vectors. Items lie around
common centres, since those of a uniform distribution have no neighbours that an approximate index could find.
Recall is the share of the exact ten best among the ten that a search with exact scoring returns.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from tests.benchmarks.timing import median_seconds
from vsemb.cli.tables import table
from vsemb.files import write_json
from vsemb.search import IndexSettings, IndexSource, SearchIndex, write_index

K, BATCH = 10, 128
_CENTRES = 500
APPROXIMATE = (
    IndexSettings(dtype="int8"),
    IndexSettings(dtype="binary"),
    *(IndexSettings(name) for name in ("faiss-ivf", "faiss-int8", "faiss-binary", "scann")),
)


def clustered(count: int, dim: int, seed: int) -> np.ndarray:
    """Returns unit vectors (count, dim) float32 around centres that do not depend on the seed."""
    centres = np.random.default_rng(0).normal(size=(_CENTRES, dim)).astype(np.float32)
    generator = np.random.default_rng(seed)
    drawn = centres[generator.integers(_CENTRES, size=count)]
    drawn += generator.normal(size=(count, dim), scale=0.8).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def measure(items: int, dim: int) -> list[dict[str, Any]]:
    """Measures every form of an index of one size."""
    vectors, queries = clustered(items, dim, 1), clustered(BATCH, dim, 2)
    source = IndexSource("run", "data", ("val",), "image", "cosine")
    keys = [str(row) for row in range(items)]
    exact = SearchIndex(vectors, np.arange(items), keys, source)
    _, best = exact.search(queries, K)

    def row(name: str, index: SearchIndex, search: Callable[[np.ndarray], Any]) -> dict[str, Any]:
        _, scores = index.search(queries, K)
        return {
            "name": name,
            "items": items,
            "dim": dim,
            "ms_one": 1e3 * median_seconds(lambda: search(queries[:1]), 5),
            "ms_batch": 1e3 * median_seconds(lambda: search(queries), 5),
            "recall": float(np.mean(scores >= best[:, -1:] - 1e-5)),
        }

    rows = []
    for settings in (IndexSettings("faiss-flat"), *APPROXIMATE):
        with tempfile.TemporaryDirectory() as folder:
            index = write_index(
                Path(folder) / "index", vectors, np.arange(items), keys, source, settings=settings
            )
            if settings.backend == "faiss-flat":
                backend = index.backend
                assert backend is not None
                alone = backend.search
                rows.append(row("FAISS flat alone", index, lambda queries: alone(queries, K)))  # noqa: B023
                rows.append(row("exact float32", exact, lambda queries: exact.search(queries, K)))
            else:
                rows.append(row(settings.label, index, lambda queries: index.search(queries, K)))  # noqa: B023
            index.close()
    for each in rows:
        for name in ("one", "batch"):
            each[f"times_flat_{name}"] = each[f"ms_{name}"] / rows[0][f"ms_{name}"]
    return rows


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--dim", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    rows = [row for dim in arguments.dim for row in measure(arguments.items, dim)]
    header = ["", "dim", "ms, 1", "times flat", f"ms, {BATCH}", "times flat", f"recall@{K}"]
    lines = [
        [
            row["name"],
            str(row["dim"]),
            f"{row['ms_one']:.1f}",
            f"{row['times_flat_one']:.2f}",
            f"{row['ms_batch']:.1f}",
            f"{row['times_flat_batch']:.2f}",
            f"{100 * row['recall']:.1f} %",
        ]
        for row in rows
    ]
    print(table(header, lines))
    if arguments.json:
        write_json(arguments.json, {"cores": os.cpu_count(), "rows": rows})


if __name__ == "__main__":
    main()

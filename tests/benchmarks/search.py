"""Search: the exact best ten beside FAISS' flat index, and what approximate backends find in less time.

    python -m tests.benchmarks.search [--items 25000 50000 100000] [--dim 256 1024] [--threads 1] [--json F]

Every row is a ratio to FAISS' flat index, measured in the same run on the same vectors: how many times as
fast a search is. Items lie around common centres, since those of a uniform distribution have no neighbours
that an approximate index could find. Recall is the share of the exact ten best among the ten that a search
with exact scoring returns. CPU time, in turns. FAISS runs in a process of its own with OpenBLAS' best kernels;
approximate backends are measured on the most items alone.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from tests.benchmarks.peers import Peer
from tests.benchmarks.timing import (
    beside,
    best_openblas,
    cpu_seconds,
    growth_rows,
    interleaved,
    left_out,
    print_rows,
    set_threads,
)
from vsemb.errors import MissingExtraError
from vsemb.files import write_json
from vsemb.searching.backends.exact import Exact
from vsemb.searching.backends.faiss import FaissBinary, FaissInt8, FaissIVF
from vsemb.searching.backends.scann import Scann
from vsemb.searching.index import IndexSource, SearchIndex
from vsemb.searching.storage import write_index

K, BATCHES = 10, (1, 128)
EXACT = "exact top 10, batch {}, dim {} / FAISS flat"
APPROXIMATE = "{}, batch {}, dim {} / FAISS flat"
GROWTH = "exact top 10, dim {}, growth with items"
_CENTRES = 500
_BACKENDS = (Exact("int8"), Exact("binary"), FaissIVF(), FaissInt8(), FaissBinary(), Scann())
_SOURCE = IndexSource("run", "data", ("val",), "image", "cosine")


def clustered(count: int, dim: int, seed: int) -> np.ndarray:
    """Returns unit vectors (count, dim) float32 around centres that do not depend on the seed."""
    centres = np.random.default_rng(0).standard_normal((_CENTRES, dim), np.float32)
    generator = np.random.default_rng(seed)
    drawn = centres[generator.integers(_CENTRES, size=count)]
    drawn += np.float32(0.8) * generator.standard_normal((count, dim), np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return drawn


def flat_index(vectors: np.ndarray, queries: np.ndarray, threads: int) -> Peer:
    """FAISS' flat index over vectors, with OpenBLAS' best kernels."""
    function = "tests.benchmarks.peers.flat:search"
    return Peer("faiss", function, threads=threads, variables=best_openblas(), vectors=vectors, queries=queries, k=K)


def seconds_of(index: SearchIndex, peer: Peer, queries: np.ndarray, rounds: int, exact: bool) -> dict[str, float]:
    """Times of our search and the peer's, per call."""
    calls = 10 if len(queries) == 1 else 1

    def ours() -> float:
        return cpu_seconds(lambda: [index.search(queries, K) for _ in range(calls)]) / calls

    def theirs() -> float:
        answer = peer(batch=len(queries), calls=calls)
        if exact:
            same = float(np.mean(np.sort(answer["found"]) == np.sort(index.search(queries, K)[0])))
            # The last bits of scores may order near ties otherwise.
            assert same > 0.99, same
        return answer["seconds"]

    return interleaved({"ours": ours, "peer": theirs}, rounds)


def exact(items: int, dim: int, threads: int, rounds: int) -> tuple[list[dict[str, Any]], float]:
    """The rows of exact search in so many items, and the seconds of our largest batch."""
    vectors, queries = clustered(items, dim, 1), clustered(max(BATCHES), dim, 2)
    names, rows = [str(number) for number in range(items)], []
    with flat_index(vectors, queries, threads) as peer, tempfile.TemporaryDirectory() as folder:
        # From disk, as an index is.
        index = write_index(Path(folder) / "index", vectors, np.arange(items), names, _SOURCE)
        for batch in BATCHES:
            seconds = seconds_of(index, peer, queries[:batch], rounds, exact=True)
            rows.append(beside(peer, EXACT.format(batch, dim), f"{items} x {dim}", seconds))
    return rows, seconds["ours"]


def approximate(items: int, dim: int, threads: int, rounds: int) -> list[dict[str, Any]]:
    """The rows of all backends that do not score every item."""
    vectors, queries = clustered(items, dim, 1), clustered(max(BATCHES), dim, 2)
    keys = [str(number) for number in range(items)]
    best = SearchIndex(vectors, np.arange(items), keys, _SOURCE).search(queries, K)[1]
    rows = []
    with flat_index(vectors, queries, threads) as peer:
        for backend in _BACKENDS:
            names = {batch: APPROXIMATE.format(backend.label, batch, dim) for batch in BATCHES}
            try:
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / "index"
                    index = write_index(path, vectors, np.arange(items), keys, _SOURCE, backend=backend)
                    recall = float(np.mean(index.search(queries, K)[1] >= best[:, -1:] - 1e-5))
                    for batch, name in names.items():
                        seconds = seconds_of(index, peer, queries[:batch], rounds, exact=False)
                        rows.append(beside(peer, name, f"{items} x {dim}", seconds, recall=recall))
                    index.close()
            except MissingExtraError as error:
                rows += [left_out(name, error) for name in names.values()]
    return rows


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, nargs="+", default=[25_000, 50_000, 100_000])
    parser.add_argument("--dim", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--exact-only", action="store_true", help="leave the approximate backends out")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    set_threads(arguments.threads)
    rows: list[dict[str, Any]] = []
    for dim in arguments.dim:
        seconds = []
        for items in arguments.items:
            found, taken = exact(items, dim, arguments.threads, arguments.rounds)
            rows += found
            seconds.append(taken)
        rows += growth_rows(GROWTH.format(dim), arguments.items, seconds)
    if not arguments.exact_only:
        for dim in arguments.dim:
            rows += approximate(max(arguments.items), dim, arguments.threads, arguments.rounds)
    print_rows(rows)
    if arguments.json:
        write_json(arguments.json, {"threads": arguments.threads, "rows": rows})


if __name__ == "__main__":
    main()

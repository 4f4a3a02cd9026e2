"""Data at scale: opening a split, an epoch's plan, rows from disk, indexes and evaluation, by size.

    python -m tests.benchmarks.scale [--images 100000 1000000 10000000] [--rows 250000 500000 1000000]
        [--ranked 2500 5000 10000] [--dim 64] [--folder FOLDER] [--threads 1] [--json FILE]

Datasets are made of captions from a grammar, five an image, without pixels; the largest takes 3.2 GB. Each measurement
is in a process of its own. Seconds of opening, and resident memory, which counts pages of mapped files, are bounds of
themselves. `rows` are images of an index, end to end: features from disk, embeddings, files, checksums. `ranked` are
images of an evaluation, whose scores grow with their square. Memory of those is what is no page of a file.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from tests.benchmarks.scale_data import CAPTIONS, write_scale
from tests.benchmarks.timing import exponent, own_process, print_rows, row, set_threads
from tests.tiny import tiny
from vsemb.files import write_json

OPEN, RESIDENT, PLAN = "split opened, seconds", "split opened, MB resident", "epoch planned, bytes a pair"
DISK, INDEX, INDEX_MEMORY = "feature rows from disk / memory map", "index, growth with images", "index, GB"
EVALUATION, EVALUATION_MEMORY = "evaluation, growth with pairs", "evaluation, GB"
_STATUS = Path("/proc/self/status")
_WORDS = "a the one another red blue small large dog cat child woman runs stands sits on near the beach street"


def megabytes(name: str) -> float:
    """Return a number of this process, such as `VmRSS`."""
    found = re.search(rf"^{name}:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1000


@contextlib.contextmanager
def peak() -> Iterator[Callable[[], float]]:
    """Yield a function that returns by how many MB memory that is no page of a file grew at most."""
    before, highest, done = megabytes("RssAnon"), [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            highest[0] = max(highest[0], megabytes("RssAnon") - before)

    thread = threading.Thread(target=watch)
    thread.start()
    yield lambda: highest[0]
    done.set()
    thread.join()


def opening(path: Path) -> tuple[float, float]:
    """Return seconds and resident MB of opening a split."""
    from vsemb.data.store import Dataset

    before, started = megabytes("VmRSS"), time.perf_counter()
    split = Dataset.open(path).split("train")
    assert len(split.captions) == CAPTIONS * len(split)
    return time.perf_counter() - started, megabytes("VmRSS") - before


def planning(pairs: int) -> float:
    """Return the bytes a pair of an epoch's plan."""
    from vsemb.data.batches import BatchSource, RaggedLengths

    offsets = np.cumsum(np.random.default_rng(0).integers(5, 15, size=pairs + 1))
    source = BatchSource([RaggedLengths(offsets)], batch_size=128)
    with peak() as highest:
        plan = source.plan(0)
    assert plan.size > 0.99 * pairs
    return 1e6 * highest() / pairs


def features(path: Path, count: int, dim: int) -> None:
    """Make a dataset with random features."""
    from vsemb.data.features.compute import write_precomputed
    from vsemb.data.store import Dataset

    write_scale(path, {"train": 640, "val": 64, "test": count})
    dataset, generator = Dataset.open(path), np.random.default_rng(0)
    blocks = np.array_split(np.arange(len(dataset.ids)), 1 + len(dataset.ids) // 50_000)
    write_precomputed(
        dataset, dataset.ids, [generator.standard_normal((len(block), dim), np.float32) for block in blocks]
    )


def train_run(path: Path, out: Path) -> None:
    """Train a run for an epoch."""
    from vsemb import recipes
    from vsemb.data.store import Dataset
    from vsemb.runs.train import train

    settings = ["training.epochs=1", "text.encoder.pooling=mean"]
    train(tiny(recipes.get("vsepp", "paper"), *settings), Dataset.open(path), out)


def gathering(path: Path, count: int) -> float:
    """Return the rows a second of a source on disk, over those of its memory map."""
    from vsemb.data.features.store import FeatureStore
    from vsemb.data.sources import FeatureImages
    from vsemb.data.store import Dataset

    dataset = Dataset.open(path)
    store, split = FeatureStore.find(dataset), dataset.split("test")
    source, raw = FeatureImages(store, split, memory=0), np.load(store.directory / "features.npy", mmap_mode="r")
    plan = np.random.default_rng(0).integers(count, size=(200, 128))
    first, seconds = int(store.positions(split.ids[:1])[0]), {}
    for _ in range(3):
        for name, gather in (("map", lambda rows: raw[first + rows]), ("source", source.gather)):
            started = time.perf_counter()
            for rows in plan:
                gather(rows)
            seconds[name] = time.perf_counter() - started
    return seconds["map"] / seconds["source"]


def indexing(path: Path, run: Path, out: Path) -> tuple[float, float]:
    """Return seconds and MB of an index of the split test."""
    from vsemb.data.store import Dataset
    from vsemb.runs.indexing import build_index
    from vsemb.runs.run import Run

    dataset, opened = Dataset.open(path), Run.open(run)
    with peak() as highest:
        started = time.perf_counter()
        build_index(opened, dataset, "test", out=out)
        return time.perf_counter() - started, highest()


def evaluating(path: Path, run: Path) -> tuple[float, float]:
    """Return seconds and MB of an evaluation on the split test."""
    from vsemb.data.store import Dataset
    from vsemb.runs.measure import evaluate_run
    from vsemb.runs.run import Run

    dataset, opened = Dataset.open(path), Run.open(run)
    with peak() as highest:
        started = time.perf_counter()
        evaluate_run(opened, dataset, "test")
        return time.perf_counter() - started, highest()


def apart(threads: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own."""
    with own_process(threads) as pool:
        pool.submit(set_threads, threads).result()
        return pool.submit(function, *arguments).result()


def measure(arguments: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Return the rows of all sizes."""
    found = []
    measured = partial(apart, arguments.threads)
    for count in arguments.images:
        path = folder / f"images-{count}"
        write_scale(path, {"train": count, "val": 100})
        with own_process(arguments.threads) as pool:  # Without TensorFlow, whose threads have memory of their own.
            seconds, resident = pool.submit(opening, path).result()
        shutil.rmtree(path)
        size = f"{count:,} images"
        found += [row(OPEN, size, seconds), row(RESIDENT, size, resident)]
        found.append(row(PLAN, size, measured(planning, CAPTIONS * count)))
    for name, sizes in (("index", arguments.rows), ("evaluation", arguments.ranked)):
        times, run = [], folder / f"{name}-run"
        for count in sizes:
            path = folder / f"{name}-{count}"
            measured(features, path, count, arguments.dim)
            if not run.exists():
                measured(train_run, path, run)
            size = f"{count:,} images"
            if name == "index":
                found.append(row(DISK, size, measured(gathering, path, count)))
                seconds, most = measured(indexing, path, run, folder / "index")
                found.append(row(INDEX_MEMORY, size, most / 1000, seconds=seconds))
            else:
                seconds, most = measured(evaluating, path, run)
                found.append(row(EVALUATION_MEMORY, size, most / 1000, seconds=seconds))
            times.append(seconds)
            shutil.rmtree(path)
        if name == "index":
            found.append(row(INDEX, f"{sizes[-1]:,} images", exponent(sizes, times)))
        else:
            pairs = [CAPTIONS * count**2 for count in sizes]
            found.append(row(EVALUATION, f"{sizes[-1]:,} images", exponent(pairs, times)))
    return found


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--rows", type=int, nargs="+", default=[250_000, 500_000, 1_000_000])
    parser.add_argument("--ranked", type=int, nargs="+", default=[2500, 5000, 10_000])
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        rows = measure(arguments, Path(folder))
    print_rows(rows)
    if arguments.json:
        write_json(arguments.json, {"rows": rows})


if __name__ == "__main__":
    main()

"""Data at scale: opening a split, an epoch's plan, rows from disk, indexes and evaluation, by size.

    python -m tests.benchmarks.scale [--images 100000 1000000 10000000] [--rows 250000 500000 1000000]
        [--ranked 10000 20000 40000] [--pixels 512] [--dim 64] [--folder FOLDER] [--threads 1] [--json FILE]

Datasets are made of captions from a grammar, five an image, without pixels; the largest takes 3.2 GB. Each measurement
is in a process of its own. Seconds of opening, and resident memory, which counts pages of mapped files, are bounds of
themselves, also in each of two workers of a training at a time. `rows` are images of an index, end to end: features
from disk, embeddings, files, checksums. `ranked` are images of an evaluation, whose scores grow with their square.
Memory of those is what is no page of a file. `pixels` are JPEGs of 500 x 375 in shards, in batches of decoded images.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from tests.benchmarks.scale_data import CAPTIONS, write_scale
from tests.benchmarks.timing import cpu_seconds, growth_rows, interleaved, own_process, print_rows, row, set_threads
from tests.tiny import tiny
from vsemb.files import read_json, write_json

OPEN, RESIDENT, PLAN = "split opened, seconds", "split opened, MB resident", "epoch planned, bytes a pair"
DISK, INDEX, INDEX_MEMORY = "feature rows from disk / memory map", "index, growth with images", "index, GB"
EVALUATION, EVALUATION_MEMORY = "evaluation, growth with pairs", "evaluation, GB"
WORKER_OPEN, WORKER_RESIDENT = "split opened by each worker, seconds", "split opened by each worker, MB resident"
INDEX_BYTES, EVALUATION_BOUNDED = "index, bytes an image", "evaluation, growth of memory with images"
PIXELS, READ = "pixel batches / decoding alone", "images read / by tf.data"
_WORKERS, _BATCH = 2, 128
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
    from vsemb.data.store import StoredDataset

    before, started = megabytes("VmRSS"), time.perf_counter()
    split = StoredDataset.open(path).split("train")
    assert len(split.captions) == CAPTIONS * len(split)
    return time.perf_counter() - started, megabytes("VmRSS") - before


def worker(path: str, out: str) -> None:
    """Open a split as one of several workers of a training, and write what `opening` returns."""
    from vsemb.training.strategies import open_distribution

    devices = open_distribution("multiworker")
    found = opening(Path(path))
    devices.total(0.0)  # All of them have it open.
    write_json(Path(out) / f"{os.getpid()}.json", found)


def opening_by_workers(path: Path, out: Path) -> tuple[float, float]:
    """Return the most seconds and resident MB of opening a split in each of two workers at a time."""
    from vsemb.training.cluster import launch

    out.mkdir()
    code = f"from tests.benchmarks.scale import worker; worker({str(path)!r}, {str(out)!r})"
    assert launch([sys.executable, "-c", code], _WORKERS) == 0
    found = [read_json(file) for file in out.iterdir()]
    assert len(found) == _WORKERS
    shutil.rmtree(out)
    seconds, resident = np.max(found, axis=0).tolist()
    return seconds, resident


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
    from vsemb.data.store import StoredDataset

    write_scale(path, {"train": 640, "val": 64, "test": count})
    dataset, generator = StoredDataset.open(path), np.random.default_rng(0)
    blocks = np.array_split(np.arange(len(dataset.ids)), 1 + len(dataset.ids) // 50_000)
    write_precomputed(
        dataset, dataset.ids, [generator.standard_normal((len(block), dim), np.float32) for block in blocks]
    )


def train_run(path: Path, out: Path) -> None:
    """Train a run for an epoch."""
    from vsemb import recipes
    from vsemb.data.store import StoredDataset
    from vsemb.runs.train import train

    settings = ["training.epochs=1", "text.encoder.pooling=mean"]
    train(tiny(recipes.get("vsepp", "paper"), *settings), StoredDataset.open(path), out)


def gathering(path: Path, count: int) -> float:
    """Return the rows a second of a source on disk, over those of its memory map."""
    from vsemb.data.features.store import FeatureStore
    from vsemb.data.sources import FeatureImages
    from vsemb.data.store import StoredDataset

    dataset = StoredDataset.open(path)
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
    """Return seconds of processor time and MB of an index of the split test."""
    from vsemb.data.store import StoredDataset
    from vsemb.runs.indexing import build_index
    from vsemb.runs.run import Run

    dataset, opened = StoredDataset.open(path), Run.open(run)
    with peak() as highest:
        return cpu_seconds(lambda: build_index(opened, dataset, "test", out=out)), highest()


def evaluating(path: Path, run: Path) -> tuple[float, float]:
    """Return seconds of processor time and MB of an evaluation on the split test."""
    from vsemb.data.store import StoredDataset
    from vsemb.runs.measure import evaluate_run
    from vsemb.runs.run import Run

    dataset, opened = StoredDataset.open(path), Run.open(run)
    with peak() as highest:
        return cpu_seconds(lambda: evaluate_run(opened, dataset, "test")), highest()


def pixels(path: Path, count: int) -> list[dict[str, Any]]:
    """Return the rows of pixel batches, as training and embedding read them from shards."""
    import tensorflow as tf

    from tests.benchmarks.pipeline import SIDE, photographs
    from vsemb.data.batches import image_batches
    from vsemb.data.records import ImageRecord
    from vsemb.data.sources import PixelImages, ServicePixels
    from vsemb.data.writing.writer import write_dataset
    from vsemb.image.decode import decode_images

    records = (ImageRecord(f"{n}.jpg", ("one",), "train", image) for n, image in enumerate(photographs(count)))
    split = write_dataset(records, path, name="pixels", source={"format": "scale"}).split("train")
    images, rows = PixelImages(split, SIDE, memory=0), np.random.default_rng(0).permutation(count)
    blocks = [rows[start : start + _BATCH] for start in range(0, count, _BATCH)]
    read = tf.data.Dataset.from_tensor_slices(split.read_images(rows)).batch(_BATCH)
    places = tf.data.Dataset.from_tensor_slices(split.image_places(rows)).batch(_BATCH)
    by_service = partial(ServicePixels._read, SimpleNamespace(_split=split))
    ways: dict[str, Callable[[], Any]] = {
        "decoding": partial(list, read.map(lambda encoded: decode_images(encoded, SIDE)[0]).prefetch(2)),
        "batches": partial(list, image_batches(images, rows, _BATCH)),
        "reading": lambda: [images.gather(block) for block in blocks],
        "tf_data": partial(list, places.map(by_service)),
    }
    seconds = interleaved({name: partial(cpu_seconds, way) for name, way in ways.items()}, 5)
    size, rates = f"{count} images", {f"{name}_per_second": count / each for name, each in seconds.items()}
    return [
        row(PIXELS, size, seconds["decoding"] / seconds["batches"], **rates),
        row(READ, size, seconds["tf_data"] / seconds["reading"]),
    ]


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
        worker_seconds, worker_resident = opening_by_workers(path, folder / "workers")
        shutil.rmtree(path)
        size = f"{count:,} images"
        found += [row(OPEN, size, seconds), row(RESIDENT, size, resident)]
        found += [row(WORKER_OPEN, size, worker_seconds), row(WORKER_RESIDENT, size, worker_resident)]
        found.append(row(PLAN, size, measured(planning, CAPTIONS * count)))
    for name, sizes in (("index", arguments.rows), ("evaluation", arguments.ranked)):
        times, memory, run = [], [], folder / f"{name}-run"
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
            memory.append(max(most, 1.0))
            shutil.rmtree(path)
        if name == "index":
            found += growth_rows(INDEX, sizes, times)
            found.append(row(INDEX_BYTES, size, 1e6 * float(np.polyfit(sizes, memory, 1)[0])))
        else:
            pairs = [CAPTIONS * count**2 for count in sizes]
            found += growth_rows(EVALUATION, pairs, times)
            found += growth_rows(EVALUATION_BOUNDED, sizes, memory, "MB")
    return found + measured(pixels, folder / "pixels", arguments.pixels)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--rows", type=int, nargs="+", default=[250_000, 500_000, 1_000_000])
    parser.add_argument("--ranked", type=int, nargs="+", default=[10_000, 20_000, 40_000])
    parser.add_argument("--pixels", type=int, default=512)
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

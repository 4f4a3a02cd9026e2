"""Training speed of the text tower, in captions a second and as a share of what matmul alone reaches.

    python -m tests.benchmarks.training [--units 1024] [--json FILE]

Three rows from one run, interleaved, medians of several rounds: batches bucketed by length, the same
captions in plain shuffled batches (each padded to its longest), and the floor: the time the matrix
products of a step would take at the speed of one large single-precision product on this machine.
"""

from __future__ import annotations

import argparse
import os
import time
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from vsemb import losses
from vsemb.cli.tables import table
from vsemb.data.batches import PairBatches
from vsemb.encoders import ImageEncoder, RecurrentSentenceEncoder, WordEmbedding
from vsemb.files import write_json
from vsemb.models import DualEncoder

WORDS, WORD_DIM, FEATURES, IMAGES = 8000, 300, 2048, 1024


class RandomFeatures:
    """An image source of noise."""

    def __init__(self, count: int, dim: int) -> None:
        self._rows = np.random.default_rng(0).normal(size=(count, dim)).astype(np.float32)
        self.spec = tf.TensorSpec((dim,), tf.float32)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        return self._rows[rows]

    def finish(self, images: tf.Tensor, seed: tf.Tensor | None) -> tf.Tensor:
        return images


class RandomTokens:
    """A tokenizer whose captions have the lengths of real ones: about 12 words, from 5 to 40."""

    def encode(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng(1)
        lengths = np.clip(np.rint(generator.lognormal(2.35, 0.33, len(texts))), 5, 40).astype(np.int64)
        ids = generator.integers(2, WORDS, lengths.sum()).astype(np.int32)
        return ids, np.concatenate([[0], np.cumsum(lengths)])


class PlainBatches(PairBatches):
    """The same pairs, shuffled only."""

    def _bucket(self, order: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return order[: self.steps_per_epoch * self.batch_size].reshape(self.steps_per_epoch, -1)


def sgemm_gflops(size: int = 2048) -> float:
    """Measures one large single-precision matrix product, in GF/s on all cores."""
    a = tf.random.normal((size, size))
    product = tf.function(lambda x: x @ x)
    product(a)
    times = []
    for _ in range(7):
        start = time.perf_counter()
        product(a).numpy()
        times.append(time.perf_counter() - start)
    return 2 * size**3 / float(np.median(times)) / 1e9


def step_gflop(words: float, units: int, batch: int) -> float:
    """Multiplications and additions of a training step's matrix products, forward and backward."""
    recurrent = words * 2 * 3 * units * (WORD_DIM + units)
    rest = batch * 2 * FEATURES * units + 2 * batch * batch * units
    return 3 * (recurrent + rest) / 1e9


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--units", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    rows = np.repeat(np.arange(IMAGES), 5)
    split: Any = SimpleNamespace(
        name="noise", ids=np.arange(IMAGES), captions=[""] * len(rows), caption_rows=rows
    )
    images: Any = RandomFeatures(IMAGES, FEATURES)
    tokens: Any = RandomTokens()
    kinds = {
        "bucketed": PairBatches(split, images, tokens, batch_size=arguments.batch_size),
        "plain": PlainBatches(split, images, tokens, batch_size=arguments.batch_size),
    }
    model = DualEncoder(
        ImageEncoder(arguments.units),
        RecurrentSentenceEncoder(WordEmbedding(WORDS, WORD_DIM), arguments.units, units=arguments.units),
    )
    model.compile(keras.optimizers.Adam(2e-4), loss=losses.PairwiseRanking(), jit_compile=False)
    steps = kinds["bucketed"].steps_per_epoch
    pairs = steps * arguments.batch_size
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    gflops = []
    for round_number in range(arguments.rounds + 1):
        gflops.append(sgemm_gflops())
        for name, batches in kinds.items():
            start = time.perf_counter()
            model.fit(batches.dataset(round_number), epochs=1, verbose=0, shuffle=False)
            if round_number:  # the first round traces
                seconds[name].append(time.perf_counter() - start)
    _, offsets = tokens.encode(split.captions)
    floor = steps * step_gflop(
        offsets[-1] / len(rows) * arguments.batch_size, arguments.units, arguments.batch_size
    )
    floor_seconds = floor / float(np.median(gflops))
    report: dict[str, Any] = {
        "units": arguments.units,
        "batch_size": arguments.batch_size,
        "cores": os.cpu_count(),
        "sgemm_gflops": round(float(np.median(gflops)), 1),
        "floor_captions_per_second": round(pairs / floor_seconds, 1),
    }
    lines = []
    for name, times in seconds.items():
        median = float(np.median(times))
        report[name] = {
            "captions_per_second": round(pairs / median, 1),
            "share_of_floor": round(floor_seconds / median, 3),
        }
        lines.append([name, f"{pairs / median:.0f}", f"{floor_seconds / median:.2f}"])
    lines.append(["floor", f"{pairs / floor_seconds:.0f}", "1.00"])
    print(table(["", "captions/s", "of floor"], lines))
    if arguments.json:
        write_json(arguments.json, report)


if __name__ == "__main__":
    main()

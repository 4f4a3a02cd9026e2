"""Order violations: scoring a test set, a training step's loss, and an epoch of hypernymy.

    python -m tests.benchmarks.order [--images 5000] [--texts 25000] [--dim 1024] [--json FILE]

Hypernymy is measured on random pairs of as many concepts and pairs as WordNet 3.0 has nouns and hypernyms.

Every row is a ratio to something measured in the same run: NumPy's broadcasting loop, TensorFlow's plain
broadcasting, and the arithmetic limit. An order violation needs a subtraction, a maximum and a
multiply-add where a matrix product needs a multiply-add alone, so the limit is three times the time of a
matrix product of the same size, on processors that do as many of the one as of the other in a cycle.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from tests.benchmarks.timing import median_seconds
from tests.benchmarks.training import sgemm_gflops
from vsemb.cli.tables import table
from vsemb.evaluation import retrieval_ranks
from vsemb.files import write_json
from vsemb.losses import MaxMargin
from vsemb.models import HypernymModel
from vsemb.ops.order import order_violation_matrix
from vsemb.similarities import OrderViolation
from vsemb.training.hypernymy import EpochLoop

_NUMPY_ROWS = 4
CONCEPTS, PAIRS, BATCH = 82115, 743241, 500
_KERAS_STEPS = 30


def peak_bytes() -> int:
    """Returns the largest memory that this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def unit_points(rows: int, dim: int, seed: int) -> np.ndarray:
    """Random points in the geometry of order-embeddings, (rows, dim) float32."""
    points = np.random.default_rng(seed).standard_normal((rows, dim), np.float32)
    return np.asarray(OrderViolation().normalize(points))


def scoring(images: np.ndarray, texts: np.ndarray) -> dict[str, float]:
    """Seconds of all scores in blocks and of ranking both ways, and the memory beyond the inputs."""
    before = peak_bytes()
    similarity = OrderViolation()

    def scores() -> None:
        for start in range(0, len(images), 1000):
            similarity.scores(images[start : start + 1000], texts)

    seconds = median_seconds(scores, 3)
    captions = len(texts) // len(images)
    ids = np.arange(len(images))
    start = time.perf_counter()
    retrieval_ranks(images, texts, ids, np.repeat(ids, captions), similarity)
    ranking = time.perf_counter() - start
    return {"scores": seconds, "ranks_both_ways": ranking, "peak_bytes": peak_bytes() - before}


def numpy_seconds(images: np.ndarray, texts: np.ndarray) -> float:
    """Seconds that NumPy's broadcasting takes for all images, from a few of them."""

    def some() -> None:
        for image in images[:_NUMPY_ROWS]:
            np.square(np.maximum(texts - image, 0)).sum(axis=1)

    return median_seconds(some, 3) * len(images) / _NUMPY_ROWS


def loss_seconds(matrix: Callable[[Any, Any], Any], batch: int, dim: int) -> float:
    """Seconds of a ranking loss over a batch's order violations, forward and backward."""
    images, texts = (tf.constant(unit_points(batch, dim, seed)) for seed in (3, 4))

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            tape.watch([images, texts])
            energies = matrix(images, texts)
            own = tf.linalg.diag_part(energies)
            hinges = tf.nn.relu(0.05 + own[:, None] - energies) + tf.nn.relu(0.05 + own[None] - energies)
            loss = tf.reduce_sum(hinges)
        return tape.gradient(loss, [images, texts])

    return median_seconds(lambda: step()[0].numpy(), 15)


def plain_matrix(specific: Any, general: Any) -> Any:
    """The same as `order_violation_matrix`, by broadcasting."""
    return tf.reduce_sum(tf.square(tf.nn.relu(general[None] - specific[:, None])), axis=-1)


def hypernymy_seconds() -> dict[str, float]:
    """Seconds of an epoch in one graph loop, and of Keras' `fit`, from some of its steps.

    On one thread, as the pipeline runs: the steps are small. General concepts are few and in many pairs.
    """
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    generator = np.random.default_rng(5)
    true = generator.integers(CONCEPTS, size=(PAIRS, 2), dtype=np.int32)
    true[:, 1] = CONCEPTS * generator.random(PAIRS) ** 8
    false = np.where(
        generator.random((PAIRS, 2)) < 0.5, true, generator.permutation(true.ravel()).reshape(-1, 2)
    )
    steps = -(-PAIRS // BATCH)
    loop = EpochLoop(HypernymModel(CONCEPTS, seed=0))
    one_graph = median_seconds(lambda: loop.run(true, false, BATCH, np.full(steps, 0.01)), 3)
    model = HypernymModel(CONCEPTS, seed=0)
    model.compile(keras.optimizers.Adam(0.01), loss=MaxMargin(), jit_compile=False)
    rows = _KERAS_STEPS * BATCH
    pairs, labels = np.concatenate([true[:rows], false[:rows]]), np.repeat([1, 0], rows)
    by_keras = median_seconds(lambda: model.fit(pairs, labels, batch_size=2 * BATCH, verbose=0), 1)
    return {"one_graph": one_graph, "keras": by_keras * steps / _KERAS_STEPS}


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--texts", type=int, default=25000)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    images = unit_points(arguments.images, arguments.dim, 0)
    texts = unit_points(arguments.texts // arguments.images * arguments.images, arguments.dim, 1)
    # First, while nothing larger has been in memory.
    ours = scoring(images, texts)
    gflops = sgemm_gflops()
    pairs = len(images) * len(texts) * arguments.dim
    limit = 3 * 2 * pairs / gflops / 1e9
    by_numpy = numpy_seconds(images, texts)
    losses = {
        "compiled": loss_seconds(order_violation_matrix, arguments.batch_size, arguments.dim),
        "broadcasting": loss_seconds(plain_matrix, arguments.batch_size, arguments.dim),
    }
    # How many threads there are is decided once a process.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        hypernymy = pool.submit(hypernymy_seconds).result()
    report = {
        "cores": os.cpu_count(),
        "sgemm_gflops": round(gflops, 1),
        "scores": {
            "seconds": round(ours["scores"], 3),
            "seconds_per_1e9_pair_dims": round(ours["scores"] / pairs * 1e9, 4),
            "times_the_limit": round(ours["scores"] / limit, 2),
            "times_faster_than_numpy": round(by_numpy / ours["scores"], 1),
            "gigabytes_beyond_the_inputs": round(ours["peak_bytes"] / 1e9, 2),
        },
        "ranks_both_ways_seconds": round(ours["ranks_both_ways"], 3),
        "loss_and_gradient": {
            "milliseconds": round(1e3 * losses["compiled"], 2),
            "times_faster_than_broadcasting": round(losses["broadcasting"] / losses["compiled"], 1),
        },
        "hypernymy_epoch": {
            "seconds": round(hypernymy["one_graph"], 3),
            "times_faster_than_keras_fit": round(hypernymy["keras"] / hypernymy["one_graph"], 1),
        },
    }
    name = f"{len(images)} x {len(texts)} x {arguments.dim}"
    rows = [
        [f"scores {name}", f"{ours['scores']:.2f} s", "1.0"],
        ["  arithmetic limit", f"{limit:.2f} s", f"{limit / ours['scores']:.2f}"],
        ["  NumPy, broadcasting", f"{by_numpy:.1f} s", f"{by_numpy / ours['scores']:.1f}"],
        ["  ranks both ways", f"{ours['ranks_both_ways']:.2f} s", ""],
        ["  memory beyond the inputs", f"{ours['peak_bytes'] / 1e9:.2f} GB", ""],
        [f"loss and gradient, batch {arguments.batch_size}", f"{1e3 * losses['compiled']:.1f} ms", "1.0"],
        [
            "  TensorFlow, broadcasting",
            f"{1e3 * losses['broadcasting']:.1f} ms",
            f"{losses['broadcasting'] / losses['compiled']:.1f}",
        ],
        [f"hypernymy, epoch of {PAIRS} pairs", f"{hypernymy['one_graph']:.2f} s", "1.0"],
        [
            "  Keras' fit, dense Adam",
            f"{hypernymy['keras']:.1f} s",
            f"{hypernymy['keras'] / hypernymy['one_graph']:.1f}",
        ],
    ]
    print(table(["", "time", "ratio"], rows))
    if arguments.json:
        write_json(arguments.json, report)


if __name__ == "__main__":
    main()

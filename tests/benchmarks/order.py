"""Order violations: scoring a test set and a training step's loss.

    python -m tests.benchmarks.order [--images 1250 2500 5000] [--dim 1024] [--threads 1] [--json FILE]

Five captions an image. Every row is a ratio to something measured in the same run: VSE++'s way in PyTorch
(arXiv:1707.05612, its code's `order_sim`, which expands all pairs), NumPy's and TensorFlow's broadcasting,
and the arithmetic limit. An order violation needs a subtraction, a maximum and a multiply-add where a matrix
product needs a multiply-add alone, so the limit is three times the time of a matrix product of the same size,
on processors that do as many of the one as of the other in a cycle. A loss with its gradient needs nine: three for
the scores, and three for the gradient of either side. Rows named `at the limit` tell which ratio to VSE++ code at
this limit would have, the most that is possible on a machine. Peers are timed on some of the pairs,
and their scores must agree with ours. CPU time, in turns; each size is in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from tests.benchmarks.peers import Peer
from tests.benchmarks.timing import (
    CONSECUTIVE,
    beside,
    bytes_beyond,
    cpu_seconds,
    growth_rows,
    interleaved,
    left_out,
    own_process,
    print_rows,
    row,
    set_threads,
)
from tests.benchmarks.training import sgemm_gflops
from vsemb.evaluation import retrieval_ranks
from vsemb.files import write_json
from vsemb.ops.order import order_violation_matrix
from vsemb.similarities import OrderViolation

CAPTIONS = 5
EXPANDED, BY_NUMPY, LIMIT = "order scores / VSE++", "order scores / NumPy", "order scores, in limits"
ROOF, LOSS_LIMIT, LOSS_ROOF = (
    "order scores at the limit / VSE++",
    "order loss, in limits",
    "order loss at the limit / VSE++",
)
MEMORY, GROWTH = "order ranks, GB", "order scores, growth with pairs"
LOSS, LOSS_TENSORFLOW = "order loss / VSE++", "order loss / TensorFlow"
_NUMPY_IMAGES, _TORCH_IMAGES, _TORCH_TEXTS = 4, 20, 1000


def peak_bytes() -> int:
    """Returns the largest memory that this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def unit_points(rows: int, dim: int, seed: int) -> np.ndarray:
    """Random points in the geometry of order-embeddings, (rows, dim) float32."""
    points = np.random.default_rng(seed).standard_normal((rows, dim), np.float32)
    return np.asarray(OrderViolation().normalize(points))


def plain_matrix(specific: Any, general: Any) -> Any:
    """The same as `order_violation_matrix`, by broadcasting."""
    return tf.reduce_sum(tf.square(tf.nn.relu(general[None] - specific[:, None])), axis=-1)


def scoring(images: int, dim: int, threads: int, rounds: int) -> list[dict[str, Any]]:
    """The rows of all scores of a test set."""
    set_threads(threads)
    points, texts = unit_points(images, dim, 0), unit_points(CAPTIONS * images, dim, 1)
    ids, similarity = np.arange(images), OrderViolation()

    def scores() -> None:
        for start in range(0, images, 1000):
            similarity.scores(points[start : start + 1000], texts)

    def by_numpy() -> np.ndarray:
        return np.stack([np.square(np.maximum(texts - point, 0)).sum(axis=1) for point in points[:_NUMPY_IMAGES]])

    # First, while nothing larger has been in memory.
    memory = bytes_beyond(lambda: retrieval_ranks(points, texts, ids, np.repeat(ids, CAPTIONS), similarity))
    gflop, share = 3 * 2 * images * len(texts) * dim / 1e9, images / min(_NUMPY_IMAGES, images)
    ways = {
        "ours": lambda: cpu_seconds(scores),
        "numpy": lambda: share * cpu_seconds(by_numpy),
        "limit": lambda: gflop / sgemm_gflops(clock=time.process_time),
    }
    size = f"{images} x {len(texts)} x {dim}"
    found = -np.asarray(similarity.scores(points[:_TORCH_IMAGES], texts))
    np.testing.assert_allclose(found[:_NUMPY_IMAGES], by_numpy(), rtol=1e-3, atol=1e-5)
    some = {"images": points[:_TORCH_IMAGES], "texts": texts[:_TORCH_TEXTS]}
    with Peer("torch", "tests.benchmarks.peers.order:scores", threads=threads, **some) as peer:

        def expanded() -> float:
            answer = peer()
            np.testing.assert_allclose(found[:, :_TORCH_TEXTS], answer["scores"], rtol=1e-3, atol=1e-5)
            return images * len(texts) / answer["scores"].size * answer["seconds"]

        seconds = interleaved(ways | {"peer": expanded}, rounds)
    ours = seconds["ours"]
    rows = [
        beside(peer, EXPANDED, size, seconds),
        beside(peer, ROOF, size, seconds | {"ours": seconds["limit"]}),
        row(BY_NUMPY, size, seconds["numpy"] / ours, ours=ours, peer=seconds["numpy"]),
        row(LIMIT, size, ours / seconds["limit"], ours=ours),
    ]
    if memory is None:
        return [*rows, left_out(MEMORY, "only Linux tells the memory of a call")]
    return [*rows, row(MEMORY, size, memory / 1e9)]


def tensorflow_loss(matrix: Callable[[Any, Any], Any], points: Mapping[str, np.ndarray]) -> Callable[[], Any]:
    """A ranking loss over a batch's order violations, forward and backward."""
    images, texts = (tf.constant(points[name]) for name in ("images", "texts"))

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            tape.watch([images, texts])
            energies = matrix(images, texts)
            own = tf.linalg.diag_part(energies)
            hinges = tf.nn.relu(0.05 + own[:, None] - energies) + tf.nn.relu(0.05 + own[None] - energies)
            loss = tf.reduce_sum(hinges)
        return tape.gradient(loss, [images, texts])

    return lambda: step()[0].numpy()


def losses(batch: int, dim: int, threads: int, rounds: int) -> list[dict[str, Any]]:
    """The rows of the loss of one batch."""
    set_threads(threads)
    points = {name: unit_points(batch, dim, seed) for name, seed in (("images", 3), ("texts", 4))}
    steps = {
        "ours": tensorflow_loss(order_violation_matrix, points),
        "tensorflow": tensorflow_loss(plain_matrix, points),
    }
    reference = steps["ours"]()
    np.testing.assert_allclose(steps["tensorflow"](), reference, rtol=1e-3, atol=1e-3)
    with Peer("torch", "tests.benchmarks.peers.order:loss", threads=threads, **points) as peer:

        def theirs() -> float:
            answer = peer()
            np.testing.assert_allclose(answer["gradient"], reference, rtol=1e-3, atol=1e-3)
            return answer["seconds"]

        ways = {name: partial(cpu_seconds, step, CONSECUTIVE) for name, step in steps.items()}
        ways["limit"] = lambda: 9 * 2 * batch**2 * dim / 1e9 / sgemm_gflops(clock=time.process_time)
        seconds = interleaved(ways | {"peer": theirs}, rounds)
    size = f"batch {batch} x {dim}"
    return [
        beside(peer, LOSS, size, seconds),
        beside(peer, LOSS_ROOF, size, seconds | {"ours": seconds["limit"]}),
        beside(peer, LOSS_TENSORFLOW, size, seconds, "tensorflow"),
        row(LOSS_LIMIT, size, seconds["ours"] / seconds["limit"], ours=seconds["ours"]),
    ]


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[1250, 2500, 5000])
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    rows, seconds = [], []
    for images in arguments.images:
        with own_process(arguments.threads) as pool:
            given = (images, arguments.dim, arguments.threads, arguments.rounds)
            found = pool.submit(scoring, *given).result()
        seconds.append(next(each["ours"] for each in found if each["name"] == BY_NUMPY))
        rows += found
    rows += growth_rows(GROWTH, [CAPTIONS * images**2 for images in arguments.images], seconds)
    for batch in arguments.batch_sizes:
        with own_process(arguments.threads) as pool:
            given = (batch, arguments.dim, arguments.threads, 5 * arguments.rounds)
            rows += pool.submit(losses, *given).result()
    print_rows(rows)
    if arguments.json:
        write_json(arguments.json, {"threads": arguments.threads, "rows": rows})


if __name__ == "__main__":
    main()

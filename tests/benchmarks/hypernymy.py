"""An epoch of hypernymy beside PyTorch's SparseAdam and Keras' `fit`.

    python -m tests.benchmarks.hypernymy [--pairs 210000 419000 838000] [--threads 1] [--json FILE]

Random pairs of as many concepts as WordNet 3.0 has nouns, with 50 dimensions; the largest size has as many
pairs as their transitive closure. A step has 500 true and 500 corrupted pairs. The peers are timed on some of
the steps: PyTorch with a sparse table and SparseAdam, which like ours moves the rows of a batch alone, and
Keras' `fit`, which moves all. Their first losses must agree. CPU time, in turns.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from pipelines.hypernymy.model import HypernymModel
from pipelines.hypernymy.training import EpochLoop
from tests.benchmarks.peers import Peer
from tests.benchmarks.timing import beside, cpu_seconds, growth_rows, interleaved, print_rows, set_threads
from vsemb.files import write_json
from vsemb.losses.max_margin import MaxMargin

CONCEPTS, DIM, BATCH, RATE = 82115, 50, 500, 0.01
SPARSE_ADAM, KERAS = "hypernymy epoch / torch SparseAdam", "hypernymy epoch / Keras' fit"
GROWTH = "hypernymy epoch, growth with pairs"
_TORCH_STEPS, _KERAS_STEPS = 100, 30


def random_pairs(count: int) -> tuple[np.ndarray, np.ndarray]:
    """True and corrupted pairs, (count, 2) int32 each; general concepts are few and in many pairs."""
    generator = np.random.default_rng(5)
    true = generator.integers(CONCEPTS, size=(count, 2), dtype=np.int32)
    true[:, 1] = CONCEPTS * generator.random(count) ** 8
    other = generator.permutation(true.ravel()).reshape(-1, 2)
    return true, np.where(generator.random((count, 2)) < 0.5, true, other)


def keras_epoch(true: np.ndarray, false: np.ndarray) -> Callable[[], Any]:
    """Returns what trains on pairs with Keras' `fit`."""
    model = HypernymModel(CONCEPTS, DIM, seed=0)
    model.compile(keras.optimizers.Adam(RATE), loss=MaxMargin(), jit_compile=False)
    pairs, labels = np.concatenate([true, false]), np.repeat([1, 0], len(true))
    return lambda: model.fit(pairs, labels, batch_size=2 * BATCH, verbose=0)


def measure(count: int, threads: int, rounds: int) -> list[dict[str, Any]]:
    """The rows of one size; the seconds of our epoch are in each."""
    true, false = random_pairs(count)
    steps = -(-count // BATCH)
    model = HypernymModel(CONCEPTS, DIM, seed=0)
    vectors, margin = np.asarray(model.vectors), model.comparison.margin
    loop = EpochLoop(model)
    few, fewer = (slice(min(part, steps) * BATCH) for part in (_TORCH_STEPS, _KERAS_STEPS))
    ways = {"ours": lambda: cpu_seconds(lambda: loop.run(true, false, BATCH, np.full(steps, RATE)))}
    first = slice(BATCH)
    mine = EpochLoop(HypernymModel(CONCEPTS, DIM, seed=0)).run(true[first], false[first], BATCH, np.full(1, RATE))
    fit, share = keras_epoch(true[fewer], false[fewer]), count / len(true[fewer])
    ways["keras"] = lambda: share * cpu_seconds(fit)
    given = {"vectors": vectors, "true": true[few], "false": false[few], "margin": margin, "rate": RATE, "batch": BATCH}
    with Peer("torch", "tests.benchmarks.peers.sparse_adam:epoch", threads=threads, **given) as peer:

        def sparse() -> float:
            answer = peer()
            if not np.isclose(mine, answer["first"], rtol=1e-4):
                raise SystemExit(f"PyTorch's first loss is {answer['first']}, ours {mine}.")
            return count / len(true[few]) * answer["seconds"]

        seconds = interleaved(ways | {"peer": sparse}, rounds)
    size = f"{count} pairs"
    return [beside(peer, SPARSE_ADAM, size, seconds), beside(peer, KERAS, size, seconds, "keras")]


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[210_000, 419_000, 838_000])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    set_threads(arguments.threads)
    rows, seconds = [], []
    for count in arguments.pairs:
        found = measure(count, arguments.threads, arguments.rounds)
        rows += found
        seconds.append(found[-1]["ours"])
    rows += growth_rows(GROWTH, arguments.pairs, seconds)
    print_rows(rows)
    if arguments.json:
        write_json(arguments.json, {"threads": arguments.threads, "rows": rows})


if __name__ == "__main__":
    main()

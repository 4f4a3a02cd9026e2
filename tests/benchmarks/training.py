"""Training steps of the text tower inside `model.fit`, beside PyTorch and the speed of one matrix product.

    python -m tests.benchmarks.training [--variants tuned paper] [--threads 1] [--json FILE]

Everything in one run, interleaved, CPU time of the process, medians of several rounds:

- the recipe `vsepp` with random features: the default path (`training.precision=auto`), float32, and float32
  with the layers and the optimizer of Keras in the place of ours;
- the same model in PyTorch, eager, with autocast to bfloat16, and compiled, packed by length as VSE++ does;
- the floor: the matrix products of a step at the speed of one large product, in float32 and bfloat16.

Captions have random words and the lengths of real ones, about 11 words. Each way of PyTorch is in a process of
its own, and rows that cannot run say why.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from tests.benchmarks.noise import FEATURES, WORDS, RandomFeatures, RandomTokens, noise_split
from tests.benchmarks.peers import Peer
from tests.benchmarks.timing import cpu_seconds, interleaved
from vsemb import recipes
from vsemb.data.batches import PairBatches
from vsemb.encoders import recurrent
from vsemb.files import write_json
from vsemb.parts import walk
from vsemb.printing import table
from vsemb.recipes.schema import Recipe
from vsemb.training import optimizers

# An epoch of at least 30 steps: to begin one takes a third of a second, a tenth of an epoch of 10 steps, and
# nothing of one on 30,000 captions.
IMAGES = 1536
BASE = "vsemb"
DTYPES = ("float32", "bfloat16")
PEER = "tests.benchmarks.peers.vsepp:epoch"
PEERS: dict[str, dict[str, bool]] = {
    "torch eager float32": {},
    "torch autocast bfloat16": {"bfloat16": True},
    "torch compiled float32": {"compiled": True},
}


def sgemm_gflops(size: int = 2048, dtype: str = "float32", clock: Callable[[], float] = time.perf_counter) -> float:
    """Measures one large matrix product on all cores, in GF/s of a clock."""
    a = tf.cast(tf.random.normal((size, size)), dtype)
    product = tf.function(lambda x: x @ x)
    product(a)
    times = []
    for _ in range(7):
        start = clock()
        product(a).numpy()
        times.append(clock() - start)
    return 2 * size**3 / float(np.median(times)) / 1e9


def step_gflop(recipe: Recipe, words: float) -> float:
    """Multiplications and additions of a step's matrix products, forward and backward.

    Args:
        recipe: a variant of `vsepp`.
        words: of a batch, in all.
    """
    text, batch, dim = recurrent_part(recipe), recipe.batches.size, recipe.embedding_dim
    directions = 1 if text.directions == "forward" else 2
    gates = words * directions * 2 * 3 * text.units * (text.words.dim + text.units)
    pooled = 0 if directions == 1 else batch * 2 * 4 * text.units * dim
    scores = 2 * batch * batch * dim
    return 3 * (gates + pooled + batch * 2 * FEATURES * dim + scores) / 1e9


def recurrent_part(recipe: Recipe) -> recurrent.Recurrent:
    """Returns the recurrent encoder of a variant of `vsepp`."""
    return next(part for part in walk(recipe) if isinstance(part, recurrent.Recurrent))


@contextlib.contextmanager
def stock() -> Iterator[None]:
    """Keras' own layers and optimizer in the place of ours."""
    with (
        mock.patch.object(recurrent, "GRU", keras.layers.GRU),
        mock.patch.object(
            optimizers.Adam,
            "optimizer",
            staticmethod(lambda rate, sparse_embedding_updates, **options: keras.optimizers.Adam(rate, **options)),
        ),
    ):
        yield


def make_fit(
    recipe: Recipe, batches: PairBatches, words: int = WORDS, callbacks: Sequence[keras.callbacks.Callback] = ()
) -> Callable[[], None]:
    """Returns what trains the next epoch inside `model.fit`, with a vocabulary of so many words."""
    model = recipe.build(words, {"feature_dim": FEATURES}, recipe.training.training_dtype)
    steps = batches.steps_per_epoch
    model.compile(
        optimizer=recipe.optimizer.build(steps, recipe.training.epochs),
        loss=recipe.loss.build(steps),
        jit_compile=False,
    )

    numbers = itertools.count()

    def epoch() -> None:
        model.fit(batches.dataset(next(numbers)), epochs=1, verbose=0, shuffle=False, callbacks=[*callbacks])

    return epoch


def peer_batches(batches: PairBatches, number: int) -> dict[str, np.ndarray]:
    """The epoch's pairs, in plain shuffled batches, each sorted by length: `ids`, `lengths` and `rows` of images."""
    found = [batch["text"].numpy() for batch in batches.dataset(number)]
    longest = max(part.shape[1] for part in found)
    ids = np.concatenate([np.pad(part, ((0, 0), (0, longest - part.shape[1]))) for part in found]).astype(np.int64)
    generator = np.random.default_rng(number)
    ids = generator.permutation(ids).reshape(-1, batches.batch_size, longest)
    order = np.argsort(-np.count_nonzero(ids, axis=2), axis=1)
    ids = np.take_along_axis(ids, order[:, :, None], axis=1)
    # The time does not depend on which image a caption has.
    return {
        "ids": ids,
        "lengths": np.count_nonzero(ids, axis=2),
        "rows": generator.integers(IMAGES, size=ids.shape[:2]),
    }


def peer_seconds(peer: Peer, epochs: Callable[[int], dict[str, np.ndarray]], numbers: Iterator[int]) -> float:
    """Seconds of the peer's next epoch."""
    return peer(**epochs(next(numbers)))["seconds"]


def measure(variant: str, rounds: int, threads: int) -> dict[str, Any]:
    """Measures one variant of the recipe."""
    recipe = recipes.get("vsepp", variant).with_overrides(["image.standardize=false"])
    split = noise_split(IMAGES, [""] * 5 * IMAGES)
    tokens: Any = RandomTokens()
    images: Any = RandomFeatures(IMAGES, FEATURES)
    batches = PairBatches(split, images, tokens, batch_size=recipe.batches.size)
    exact = recipe.with_overrides(["training.precision=float32"])
    auto = recipe.with_overrides(["training.precision=auto"])
    ways: dict[str, Callable[[], None]] = {
        f"{BASE} (default: {auto.training.training_dtype})": make_fit(auto, batches),
        f"{BASE} float32": make_fit(exact, batches),
    }
    with stock():
        ways["Keras' layers and Adam, float32"] = make_fit(exact, batches)
    floors = {dtype: lambda dtype=dtype: 1 / sgemm_gflops(dtype=dtype, clock=time.process_time) for dtype in DTYPES}
    epochs = functools.lru_cache(1)(partial(peer_batches, batches))
    words = recurrent_part(recipe).words.dim
    given = {"variant": variant, "words": WORDS, "word_dim": words, "features": images.rows, "threads": threads}
    with contextlib.ExitStack() as stack:
        peers = {name: stack.enter_context(Peer("torch", PEER, **given, **way)) for name, way in PEERS.items()}
        medians = interleaved(
            floors
            | {name: partial(cpu_seconds, fit) for name, fit in ways.items()}
            | {name: partial(peer_seconds, peer, epochs, itertools.count()) for name, peer in peers.items()},
            rounds,
        )
        failed = {name: peer.reason for name, peer in peers.items() if peer.reason is not None}
    gflops = {dtype: 1 / medians.pop(dtype) for dtype in DTYPES}
    _, offsets = tokens.encode(split.captions)
    steps = batches.steps_per_epoch
    gflop = steps * step_gflop(recipe, offsets[-1] / len(split.captions) * recipe.batches.size)
    pairs = steps * recipe.batches.size
    rows = {
        name: {
            "captions_per_second": round(pairs / median, 1),
            "gflops": round(gflop / median, 1),
            "of_float32_floor": round(gflop / gflops["float32"] / median, 3),
            "of_bfloat16_floor": round(gflop / gflops["bfloat16"] / median, 3),
        }
        for name, median in medians.items()
    }
    default = medians[next(iter(ways))]
    for name, median in medians.items():
        rows[name]["default_is_faster_by"] = round(median / default, 2)
    return {"variant": variant, "rows": rows, "failed": failed, "gemm_gflops": gflops}


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="+", default=["tuned", "paper"], choices=["tuned", "paper"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    report = {"threads": arguments.threads, "variants": []}
    for variant in arguments.variants:
        found = measure(variant, arguments.rounds, arguments.threads)
        report["variants"].append(found)
        lines = [
            [
                name,
                f"{row['captions_per_second']:.0f}",
                f"{row['gflops']:.0f}",
                f"{row['of_float32_floor']:.2f}",
                f"{row['of_bfloat16_floor']:.2f}",
                f"{row['default_is_faster_by']:.2f}",
            ]
            for name, row in found["rows"].items()
        ]
        head = ["captions/s", "GF/s", "of float32 floor", "of bfloat16 floor", "default is faster by"]
        rates = ", ".join(f"{dtype} {rate:.0f} GF/s" for dtype, rate in found["gemm_gflops"].items())
        print(f"vsepp {variant}; one large product: {rates}")
        print(table(["", *head], lines))
        for name, reason in found["failed"].items():
            print(f"{name}: {reason}")
    if arguments.json:
        write_json(arguments.json, report)


if __name__ == "__main__":
    main()

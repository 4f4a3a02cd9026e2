"""Training steps under JAX beside the same model in PyTorch, on the GPU of the machine, or its processor.

    python -m tests.benchmarks.jax_training [--models "vsepp paper"] [--batches 128 4096] [--devices 2] [--json FILE]

It needs JAX, and no TensorFlow. PyTorch runs in `build/peers/torch`; on a machine that has PyTorch, this may be a link
to the environment in use. Features and captions are random, captions with the lengths of real ones. Times are elapsed
times of an epoch inside `fit`, after an epoch that compiles; peers take turns with it.

- A rate in `flop` counts six operations per word and weight of the text tower's matrices, besides word vectors. It is
  compared with one large product of the same type.
- Peaks of memory are those of the GPU, as JAX and PyTorch count them.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import time
from collections.abc import Callable
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"
# PyTorch's process needs memory of the same GPU.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np

from tests.benchmarks.noise import FEATURES, WORDS, RandomFeatures, RandomTokens, noise_split
from tests.benchmarks.peers import Peer
from tests.benchmarks.timing import interleaved
from vsemb import recipes
from vsemb.data.batches import PairBatches
from vsemb.files import write_json
from vsemb.printing import table
from vsemb.training.strategies import open_distribution

MODELS = ("vsepp paper", "contrastive default", "contrastive transformer")
#: Ways of vsemb and their precision.
OURS = {"vsemb float32": "float32", "vsemb bfloat16": "mixed_bfloat16"}
PEER = "tests.benchmarks.peers.devices:epoch"
PEERS: dict[str, dict[str, bool]] = {
    "torch eager float32": {},
    "torch autocast bfloat16": {"bfloat16": True},
    "torch compiled float32": {"compiled": True},
    "torch compiled, autocast bfloat16": {"compiled": True, "bfloat16": True},
}
_CAPTIONS = 5


def product_rate(dtype: str, size: int) -> float:
    """Measures one large matrix product, in operations per second."""
    a = jnp.ones((size, size), dtype)
    product = jax.jit(lambda x: x @ x)
    times = []
    for _ in range(8):
        begun = time.perf_counter()
        product(a).block_until_ready()
        times.append(time.perf_counter() - begun)
    return 2 * size**3 / float(np.median(times[1:]))


def memory() -> int:
    """The peak of the GPU's memory in bytes so far; 0 on a processor."""
    return int((jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0))


def fit(name: str, precision: str, batches: PairBatches, devices: Any) -> tuple[Callable[[], float], int]:
    """Returns what trains an epoch and returns its seconds, and the weights of the text tower's matrices."""
    recipe = recipes.get(*name.split()).with_overrides(["image.standardize=false", f"training.precision={precision}"])
    steps = batches.steps_per_epoch
    with devices.scope():
        model = recipe.build(WORDS, {"feature_dim": FEATURES}, recipe.training.training_dtype)
        loss = recipe.loss.build(steps)
        model.compile(recipe.optimizer.build(steps, recipe.training.epochs), loss=loss, jit_compile=True)

    def epoch() -> float:
        begun = time.perf_counter()
        # The same epoch again: its lengths of captions are compiled.
        model.fit(batches.arrays(0), steps_per_epoch=steps, epochs=1, verbose=0, shuffle=False)
        return time.perf_counter() - begun

    epoch()
    matrices = [weight.shape for weight in model.text_encoder.trainable_variables if len(weight.shape) > 1]
    return epoch, sum(int(np.prod(shape)) for shape in matrices if shape[0] != WORDS)


def peer_epoch(batches: PairBatches) -> dict[str, np.ndarray]:
    """An epoch for PyTorch: `ids`, `lengths` and `rows` of images, each batch sorted by length, longest first."""
    found = [batch["text"] for batch in batches.epoch(0, 0)]
    longest = max(part.shape[1] for part in found)
    ids = np.stack([np.pad(part, ((0, 0), (0, longest - part.shape[1]))) for part in found]).astype(np.int64)
    order = np.argsort(-np.count_nonzero(ids, axis=2), axis=1)
    ids = np.take_along_axis(ids, order[:, :, None], axis=1)
    rows = np.random.default_rng(0).integers(len(batches.split.ids), size=ids.shape[:2])
    return {"ids": ids, "lengths": np.count_nonzero(ids, axis=2), "rows": rows}


def measure(name: str, size: int, steps: int, rounds: int, devices: Any) -> dict[str, Any]:
    """Measures one model with one size of batches."""
    count = -(-size * steps // _CAPTIONS)
    images: Any = RandomFeatures(count, FEATURES)
    tokens: Any = RandomTokens()
    batches = PairBatches(noise_split(count, [""] * _CAPTIONS * count), images, tokens, batch_size=size)
    ways, weights, peaks = {}, 0, {}
    for way, precision in OURS.items():
        ways[way], weights = fit(name, precision, batches, devices)
    recipe, variant = name.split()
    encoder = recipes.get(recipe, variant).text.encoder
    given = {"recipe": recipe, "variant": variant, "words": WORDS, "features": images.rows, "units": encoder.units}
    data = peer_epoch(batches)

    def peer_seconds(way: str, peer: Peer) -> float:
        answer = peer(**data)
        peaks[way] = answer["bytes"]
        return answer["seconds"]

    with contextlib.ExitStack() as stack:
        peers = {
            way: stack.enter_context(Peer("torch", PEER, threads=0, word_dim=encoder.words.dim, **given, **options))
            for way, options in PEERS.items()
        }
        turns = {way: lambda way=way, peer=peer: peer_seconds(way, peer) for way, peer in peers.items()}
        seconds = interleaved(ways | turns, rounds)
        failed = {way: peer.reason for way, peer in peers.items() if peer.reason is not None}
    peaks |= dict.fromkeys(OURS, memory())
    pairs = batches.steps_per_epoch * size
    _, offsets = tokens.encode(batches.split.captions)
    operations = 6 * weights * offsets[-1] / len(batches.split.captions) * pairs
    best = min(seconds[way] for way in OURS)
    return {
        "model": name,
        "batch": size,
        "failed": failed,
        "rows": {
            way: {
                "captions_per_second": round(pairs / each, 1),
                "flop": operations / each,
                "peak_bytes": int(peaks[way]),
                "time_per_best_of_vsemb": round(each / best, 3),
            }
            for way, each in seconds.items()
        },
    }


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--batches", type=int, nargs="+", default=[128, 4096])
    parser.add_argument("--steps", type=int, default=20, help="steps per epoch")
    parser.add_argument("--devices", type=int, default=1, help="devices that share a batch of vsemb")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    devices = open_distribution("mirrored", arguments.devices)
    gpu = jax.default_backend() == "gpu"
    rates = {dtype: product_rate(dtype, 8192 if gpu else 1024) for dtype in ("float32", "bfloat16")}
    report: dict[str, Any] = {"device": jax.local_devices()[0].device_kind, "product_flop": rates, "models": []}
    large = ", ".join(f"{dtype} {rate / 1e12:.2f} TFLOP/s" for dtype, rate in rates.items())
    print(f"{report['device']}; one large product: {large}")
    for name, size in itertools.product(arguments.models, arguments.batches):
        found = measure(name, size, arguments.steps, arguments.rounds, devices)
        report["models"].append(found)
        lines = [
            [
                way,
                f"{row['captions_per_second']:.0f}",
                f"{row['flop'] / rates['bfloat16' if 'bfloat16' in way else 'float32']:.3f}",
                f"{row['peak_bytes'] / 1e9:.2f}" if row["peak_bytes"] else "",
                f"{row['time_per_best_of_vsemb']:.2f}",
            ]
            for way, row in found["rows"].items()
        ]
        print(table([f"{name}, batch {size}", "captions/s", "of a product", "GB", "time / best of vsemb"], lines))
        for way, reason in found["failed"].items():
            print(f"{way}: {reason}")
    if arguments.json:
        write_json(arguments.json, report)


if __name__ == "__main__":
    main()

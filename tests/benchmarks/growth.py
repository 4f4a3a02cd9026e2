"""Growth of training: time and memory of a step by vocabulary, caption length, batch size and dimensions.

    python -m tests.benchmarks.growth [--vocabulary 4000 8000 16000 32000] [--length 8 16 32]
        [--batch 64 128 256 512] [--dim 128 256 512] [--steps 20] [--threads 1] [--json FILE]

The recipe `vsepp`, variant `tuned`, trains inside `model.fit` on random features and captions of equal length. One
size varies at a time, the others are those of `BASE`. Each training is in a process of its own, after a tiny training,
so that memory which TensorFlow takes once is not counted. Time is the median CPU time of a step. Memory is the largest
of building and training the model, beyond that before.

Adam updates the vectors and moments of all words in each step, so time is a constant and a part that is linear in the
vocabulary. `sparse updates` are trainings with `optimizer.sparse_embedding_updates=true`, which update only words of
the batch; TensorFlow still copies the table, since rows of it are overwritten. Memory has a vector and two moments of
each word in both cases.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from tests.benchmarks.noise import FEATURES, RandomFeatures, RandomTokens, noise_split
from tests.benchmarks.timing import bytes_beyond, growth_rows, left_out, own_process, print_rows, row, set_threads
from tests.benchmarks.training import make_fit
from vsemb import recipes
from vsemb.data.batches import PairBatches
from vsemb.files import write_json

TIME, MEMORY = "training time, growth with {}", "training memory, growth with {}"
MILLISECONDS, MEGABYTES = "training step by {}, ms", "training by {}, MB"
#: Steps before memory is allocated and caches are filled.
_FIRST = 4


@dataclass(frozen=True)
class Setting:
    """Sizes of a training.

    Attributes:
        vocabulary: words.
        length: words of each caption.
        batch: pairs.
        dim: of the embedding, and units of both directions together.
        sparse: whether only words of the batch are updated.
    """

    vocabulary: int = 4000
    length: int = 16
    batch: int = 128
    dim: int = 256
    sparse: bool = False


BASE = Setting()
TINY = Setting(vocabulary=64, length=4, batch=8, dim=16)
#: What a row says -> the field that varies, its unit, and whether updates are sparse.
AXES = {
    "vocabulary": ("vocabulary", "words", False),
    "vocabulary, sparse updates": ("vocabulary", "words", True),
    "caption length": ("length", "words", False),
    "batch": ("batch", "pairs", False),
    "dimensions": ("dim", "dimensions", False),
}


class Clock(keras.callbacks.Callback):
    """Notes the CPU time of this process after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.times.append(time.process_time())


def train(setting: Setting, steps: int) -> float:
    """Trains a model for so many steps; returns the seconds of one."""
    recipe = recipes.get("vsepp", "tuned").with_overrides(
        [
            "image.standardize=false",
            f"embedding_dim={setting.dim}",
            f"text.encoder.sequence.units={setting.dim // 2}",
            f"optimizer.sparse_embedding_updates={str(setting.sparse).lower()}",
        ]
    )
    images: Any = RandomFeatures(setting.batch, FEATURES)
    tokens: Any = RandomTokens(setting.vocabulary, setting.length)
    split = noise_split(setting.batch, [""] * setting.batch * (_FIRST + steps))
    clock = Clock()
    make_fit(recipe, PairBatches(split, images, tokens, batch_size=setting.batch), setting.vocabulary, [clock])()
    return median(np.diff(clock.times[_FIRST - 1 :]).tolist())


def measure(setting: Setting, steps: int, threads: int) -> tuple[float, float | None]:
    """Returns seconds of a step and megabytes of a training."""
    set_threads(threads)
    train(TINY, 1)
    seconds: list[float] = []
    memory = bytes_beyond(lambda: seconds.append(train(setting, steps)))
    return seconds[0], None if memory is None else memory / 1e6


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[4000, 8000, 16_000, 32_000])
    parser.add_argument("--length", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 128, 256, 512])
    parser.add_argument("--dim", type=int, nargs="+", default=[128, 256, 512])
    parser.add_argument("--axes", nargs="+", choices=list(AXES), default=list(AXES), metavar="AXIS")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    measured: dict[Setting, tuple[float, float | None]] = {}  # The base is a size of several axes.
    for axis in arguments.axes:
        name, unit, sparse = AXES[axis]
        sizes, times, memory = getattr(arguments, name), [], []
        for size in sizes:
            setting = replace(BASE, sparse=sparse, **{name: size})
            if setting not in measured:
                with own_process(arguments.threads) as pool:
                    measured[setting] = pool.submit(measure, setting, arguments.steps, arguments.threads).result()
            seconds, most = measured[setting]
            rows.append(row(MILLISECONDS.format(axis), f"{size:,} {unit}", 1000 * seconds))
            times.append(seconds)
            if most is not None:
                rows.append(row(MEGABYTES.format(axis), f"{size:,} {unit}", most))
                memory.append(most)
        rows += growth_rows(TIME.format(axis), sizes, times)
        if memory:
            rows += growth_rows(MEMORY.format(axis), sizes, memory, "MB")
        else:
            rows.append(left_out(MEMORY.format(axis), "only Linux tells the memory of a call"))
    print_rows(rows)
    if arguments.json:
        write_json(arguments.json, {"threads": arguments.threads, "rows": rows})


if __name__ == "__main__":
    main()

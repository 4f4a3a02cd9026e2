"""Batches beyond memory: training steps in chunks and blocks against the whole batch at once.

    python -m tests.benchmarks.gradient_caching [--batches 512 1024 2048 4096] [--chunk-size 128] [--json F]

A step of the default text tower over 20 words, with features of an image, is measured in a process of its own
for each way and size: the largest memory of the process beyond what it had with its batch at hand and a step
on one chunk done, and the median time. Growth is the exponent b of a * batch ** b through the sizes: 1 for
what grows with the batch, 2 for a matrix of all scores.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from tests.benchmarks.order import peak_bytes
from tests.benchmarks.timing import median_seconds
from vsemb.encoders import ImageEncoder, RecurrentSentenceEncoder, WordEmbedding
from vsemb.files import write_json
from vsemb.losses import InBatchLoss, InfoNCE, SigmoidLoss
from vsemb.models import DualEncoder, LogitScale
from vsemb.printing import table

WORDS, STEPS, FEATURES = 10_000, 20, 1280

#: How a step is computed -> (loss, whether in chunks, whether in blocks).
WAYS = {
    "infonce, whole": ("infonce", False, False),
    "infonce, chunks": ("infonce", True, False),
    "infonce, chunks, blocks": ("infonce", True, True),
    "sigmoid, whole": ("sigmoid", False, False),
    "sigmoid, chunks, blocks": ("sigmoid", True, True),
}


def make_batch(rows: int) -> dict[str, Any]:
    """Random features and token ids, every image once."""
    generator = np.random.default_rng(0)
    return {
        "image": tf.constant(generator.standard_normal((rows, FEATURES), np.float32)),
        "text": tf.constant(generator.integers(1, WORDS, (rows, STEPS)), tf.int32),
        "image_id": tf.range(rows, dtype=tf.int64),
    }


def measure(way: str, rows: int, chunk_size: int, units: int, rounds: int) -> dict[str, float]:
    """Bytes and seconds of a training step, in a process that has done nothing else."""
    loss_name, chunks, blocks = WAYS[way]
    loss: InBatchLoss = InfoNCE() if loss_name == "infonce" else SigmoidLoss()
    keras.utils.set_random_seed(0)
    words = WordEmbedding(WORDS, 300, dense_gradient=True)
    model = DualEncoder(
        ImageEncoder(units, dropout=0.1),
        RecurrentSentenceEncoder(words, units, units=units, dropout=0.1),
        logit_scale=LogitScale(10.0, bias=-10.0 if loss_name == "sigmoid" else None),
        chunk_size=chunk_size if chunks else None,
        block_size=chunk_size if blocks else None,
    )
    model.build({"image": (None, FEATURES), "text": (None, None)})
    model.compile(keras.optimizers.Adam(1e-3), loss=loss, jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    batch = make_batch(rows)
    unknown = {name: tf.TensorSpec((None, *each.shape[1:]), each.dtype) for name, each in batch.items()}
    step = tf.function(model.train_step, input_signature=[unknown])
    for _ in range(2):
        step({name: each[:chunk_size] for name, each in batch.items()})
    before = peak_bytes()
    seconds = median_seconds(lambda: step(batch), rounds)
    return {"bytes": peak_bytes() - before, "seconds": seconds}


def growth(sizes: list[int], values: list[float]) -> float:
    """Returns b of the power law a * size ** b through the values, by least squares of logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-9)), 1)[0])


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--chunk-size", type=int, default=128)
    parser.add_argument("--units", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}
    context = multiprocessing.get_context("spawn")
    # The largest memory of a process never falls again, so each measurement has a process of its own.
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        for way in WAYS:
            found[way] = [
                pool.submit(measure, way, rows, arguments.chunk_size, arguments.units, arguments.rounds).result()
                for rows in arguments.batches
            ]
    rows = []
    report: dict[str, Any] = {"cores": os.cpu_count(), "batches": arguments.batches, "ways": {}}
    for way, measured in found.items():
        whole = found[way.split(",")[0] + ", whole"]
        memory, seconds = ([each[what] for each in measured] for what in ("bytes", "seconds"))
        slope = growth(arguments.batches, memory) if len(memory) > 1 else float("nan")
        report["ways"][way] = {
            "megabytes": [round(each / 1e6, 1) for each in memory],
            "seconds": [round(each, 3) for each in seconds],
            "times_the_memory_of_the_whole": [
                round(each / max(other["bytes"], 1), 3) for each, other in zip(memory, whole, strict=True)
            ],
            "times_the_time_of_the_whole": [
                round(each / other["seconds"], 2) for each, other in zip(seconds, whole, strict=True)
            ],
            "memory_grows_as_batch_to_the": round(slope, 2),
        }
        for number, size in enumerate(arguments.batches):
            ratios = report["ways"][way]
            rows.append(
                [
                    way if number == 0 else "",
                    str(size),
                    f"{memory[number] / 1e6:.0f} MB",
                    f"{ratios['times_the_memory_of_the_whole'][number]:.2f}",
                    f"{seconds[number]:.2f} s",
                    f"{ratios['times_the_time_of_the_whole'][number]:.2f}",
                    f"{slope:.2f}" if number == 0 else "",
                ]
            )
    print(table(["step", "batch", "memory", "of whole", "time", "of whole", "memory grows"], rows))
    if arguments.json:
        write_json(arguments.json, report)


if __name__ == "__main__":
    main()

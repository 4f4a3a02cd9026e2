"""Two logical CPU devices against one, run by `test_replicas.py` in a process of its own.

    python -m tests.models.replicas_script MODULE...

The cases are those of the modules' `REPLICAS`. A process can hold one MirroredStrategy only. Prints one JSON line:
case -> {what: [one, two]}.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf

from vsemb import registry
from vsemb.encoders import ImageEncoder, LinearSentenceEncoder, WordEmbedding
from vsemb.losses import InBatchLoss, InfoNCE, PairwiseRanking
from vsemb.models import DualEncoder, LogitScale
from vsemb.similarities import OrderViolation

ROWS, STEPS, WORDS, DIM = 8, 3, 9, 4

LOSSES = {
    "all": (lambda: PairwiseRanking(0.3), False),
    "hardest": (lambda: PairwiseRanking(0.3, "hardest"), False),
    "infonce": (lambda: InfoNCE(), True),
}


def batches(sampled: bool, classes: bool = False) -> dict[str, np.ndarray]:
    """Three batches, one behind the other; images repeat within a replica and across the two."""
    generator = np.random.default_rng(0)
    pictures = generator.normal(size=(6, 5)).astype(np.float32)
    count = STEPS * ROWS
    rows = np.tile([0, 1, 0, 2, 3, 0, 4, 3], STEPS)

    def some(name: str, rows: np.ndarray) -> dict[str, np.ndarray]:
        return {
            f"{name}image": pictures[rows],
            f"{name}image_id": rows + 2**24 - 2,
            f"{name}text": generator.integers(1, WORDS, (count, 3)).astype(np.int32),
        }

    result = some("", rows)
    if classes:
        # Classes have images on both replicas.
        result["class_id"] = (rows + 2**24 - 2) // 2
    if sampled:
        other = some("negative_", generator.integers(6, size=count))
        # The sampled texts show other images than the sampled images.
        other["negative_text_id"] = generator.integers(6, size=count) + 2**24 - 2
        result |= other
    return result


def dual_encoder(
    loss: str | Callable[[], InBatchLoss], change: str = "", *, sampled: bool = False, classes: bool = False
) -> tuple[DualEncoder, dict[str, np.ndarray]]:
    """A dual encoder, built and compiled, and its rows."""
    keras.utils.set_random_seed(3)
    build_loss, learned = LOSSES[loss] if isinstance(loss, str) else (loss, False)
    model = DualEncoder(
        ImageEncoder(DIM),
        LinearSentenceEncoder(WordEmbedding(WORDS, DIM, init_scale=1.0)),
        logit_scale=LogitScale(5.0) if learned else None,
        image_weight=0.7,
        l2=0.3 if change == "l2" else 0.0,
    )
    model.build({"image": (None, 5), "text": (None, None)})
    if change == "regularised":
        model.image_encoder.affine.kernel.regularizer = keras.regularizers.L2(0.5)
    if change == "order":
        model.similarity = OrderViolation()
    clip = 1.0 if change == "clipped" else None
    optimizer = keras.optimizers.SGD(0.05, global_clipnorm=clip)
    if change == "momentum":
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    if change == "rising-momentum":
        part = registry.find_part("optimizer", "rising-momentum-sgd", "optimizer")
        optimizer = part(learning_rate=0.05, momentum=0.9, momentum_start=0.2, momentum_steps=3.0).build(1, 1)
    model.compile(optimizer, loss=build_loss(), jit_compile=False)
    return model, batches(sampled, classes)


Case = tuple[keras.Model, Any]

#: A loss, and what is changed beside it.
CHANGES = [("all", "regularised"), ("all", "l2"), ("hardest", "momentum"), ("all", "clipped")]
if "rising-momentum-sgd" in registry.kinds("optimizer"):  # Of a system, where it is there.
    CHANGES.append(("hardest", "rising-momentum"))

#: Name of a case -> makes a model, compiled, and its rows.
REPLICAS: dict[str, Callable[[], Case]] = {
    **{
        loss + "-sampled" * sampled: functools.partial(dual_encoder, loss, sampled=sampled)
        for loss in LOSSES
        for sampled in (False, True)
    },
    **{f"{loss}-{change}": functools.partial(dual_encoder, loss, change) for loss, change in CHANGES},
    "all-sampled-order": lambda: dual_encoder("all", "order", sampled=True),
}


def run(case: Callable[[], Case]) -> dict[str, list[float]]:
    model, rows = case()
    data = tf.data.Dataset.from_tensor_slices(rows).batch(ROWS, drop_remainder=True)
    evaluated = model.evaluate(data, verbose=0)
    evaluated = evaluated if np.isscalar(evaluated) else evaluated[0]
    history = model.fit(data, epochs=2, shuffle=False, verbose=0)
    weights = np.concatenate([w.ravel() for w in model.get_weights()])
    return {"evaluate": [float(evaluated)], "fit": history.history["loss"], "weights": weights.tolist()}


def two_devices() -> tf.distribute.Strategy:
    devices = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(devices[0], [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert strategy.num_replicas_in_sync == 2
    return strategy


def cases_of(modules: list[str], name: str) -> dict[str, Any]:
    """Joins the dictionaries of that name in modules."""
    return {key: case for each in modules for key, case in getattr(import_module(each), name, {}).items()}


def main(modules: list[str]) -> int:
    strategy = two_devices()
    found = {}
    for name, case in cases_of(modules, "REPLICAS").items():
        one = run(case)
        with strategy.scope():
            two = run(case)
        found[name] = {what: [one[what], two[what]] for what in one}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Trains a recipe as one of several workers and then, by its own `fit`, a model on batches that do not divide.

    python -m tests.training.worker_training DATA OUT SETTING...

A program for `test_strategies`, where a process holds a single strategy. The first worker writes OUT/uneven.npz.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

STEPS, WORDS, DIM = 3, 9, 4


def fit_uneven(strategy: tf.distribute.Strategy | None) -> dict[str, np.ndarray]:
    """Trains on batches of three pairs and of one, and evaluates: weights and logs."""
    from vsemb.encoders import ImageEncoder, LinearSentenceEncoder, WordEmbedding
    from vsemb.losses import InfoNCE
    from vsemb.models import DualEncoder

    generator = np.random.default_rng(0)
    rows = {
        "image": generator.normal(size=(4, 5)).astype(np.float32),
        "text": generator.integers(1, WORDS, (4, STEPS)).astype(np.int32),
    }
    with contextlib.nullcontext() if strategy is None else strategy.scope():
        keras.utils.set_random_seed(3)
        words = WordEmbedding(WORDS, DIM, init_scale=1.0)
        model = DualEncoder(ImageEncoder(DIM), LinearSentenceEncoder(words), l2=0.1)
        model.build({"image": (None, 5), "text": (None, None)})
        model.compile(keras.optimizers.SGD(0.1), loss=InfoNCE(0.3), metrics=["accuracy"], jit_compile=False)
        data = tf.data.Dataset.from_tensor_slices(rows).batch(3)
        logs: dict[str, Any] = model.fit(data, validation_data=data, verbose=0).history
    weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
    return {"weights": weights, **{name: np.array(values) for name, values in logs.items()}}


def main() -> None:
    """Trains both."""
    from vsemb import recipes
    from vsemb.runs.train import train
    from vsemb.training.strategies import open_distribution

    data, out, *settings = sys.argv[1:]
    devices = open_distribution("multiworker")
    train(recipes.get("vsepp", "paper").with_overrides(settings), data, out, strategy=devices, checkpoint_seconds=0)
    uneven = fit_uneven(devices.strategy)
    if devices.writes:
        np.savez(Path(out).with_name("uneven.npz"), **uneven)


if __name__ == "__main__":
    main()

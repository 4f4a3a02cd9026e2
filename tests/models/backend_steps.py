"""Training steps of models on whatever backend Keras has; run as a script by `test_backends.py`.

    python -m tests.models.backend_steps given.npz found.npz MODULE...

The cases are those of the modules' `BACKENDS`. `given.npz` has their initial weights, `found.npz` gets losses and
weights.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import keras
import numpy as np

from vsemb.encoders import ImageEncoder, LinearSentenceEncoder, RecurrentSentenceEncoder, WordEmbedding
from vsemb.losses import InfoNCE, PairwiseRanking, SigmoidLoss
from vsemb.losses.small_loss import SmallLoss
from vsemb.models import DualEncoder, LogitScale

WORDS, STEPS, ROWS = 9, 3, 6

#: A model, built, its loss, and its batches as `train_on_batch` takes them.
Case = tuple[keras.Model, keras.losses.Loss, list[tuple[Any, ...]]]


def word_vectors() -> WordEmbedding:
    # As rows, TensorFlow clips the gradient of a repeated word by the norm of its parts and not of their sum.
    return WordEmbedding(WORDS, 4, init_scale=0.5, dense_gradient=True)


def random_texts() -> Iterator[tuple[np.random.Generator, np.ndarray]]:
    """Yields for each step the generator of its batch and two texts a row, (2, rows, 4)."""
    generator = np.random.default_rng(2)
    for _ in range(STEPS):
        text = generator.integers(1, WORDS, (2, ROWS, 4)).astype(np.int32)
        text[:, ::2, 3:] = 0
        yield generator, text


def in_chunks() -> bool:
    """Whether to compute in chunks and blocks: TensorFlow does everything at once, for the others to do the same."""
    return keras.backend.backend() != "tensorflow"


def dual_encoder(case: str) -> Case:
    words = word_vectors()
    poolings = {"vsepp": "last", "generalized": "generalized"}
    texts = LinearSentenceEncoder(words)
    if case in poolings:
        texts = RecurrentSentenceEncoder(words, 4, units=6, pooling=poolings[case])
    similarity = "order" if case == "order-embedding" else "cosine"
    scale = LogitScale(5.0, bias=-2.0) if case == "sigmoid" else None
    sizes = {"chunk_size": 4, "block_size": 4} if case == "sigmoid" and in_chunks() else {}
    model = DualEncoder(ImageEncoder(4), texts, similarity, logit_scale=scale, l2=0.05, **sizes)
    model.build({"image": (None, 5), "text": (None, None)})
    # Over its first steps the loss changes from all negatives to the hardest.
    loss = SigmoidLoss() if case == "sigmoid" else PairwiseRanking(0.3, "hardest", warmup_steps=3)
    if case == "contrastive":
        loss = InfoNCE(0.5)
    if case == "small-loss":
        loss = SmallLoss(loss, dropped=0.4, warmup_steps=2)
    ids = np.array([1, 2, 3, 1, 4, 5])
    batches = [
        ({"image": generator.normal(size=(ROWS, 5)).astype(np.float32), "text": text[0], "image_id": ids},)
        for generator, text in random_texts()
    ]
    return model, loss, batches


CASES = ("vsepp", "order-embedding", "contrastive", "sigmoid", "generalized", "small-loss")

#: Name of a case -> makes it.
BACKENDS: dict[str, Callable[[], Case]] = {name: functools.partial(dual_encoder, name) for name in CASES}


def train(case: Callable[[], Case], weights: list[np.ndarray] | None = None) -> dict[str, list[np.ndarray]]:
    """Trains a case from given weights, or its own; compiled on JAX, and eagerly on TensorFlow.

    Returns:
        Under `first` the weights before, under `last` those after, under `loss` the loss of each step.
    """
    keras.utils.set_random_seed(1)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=2.0)
    model, loss, batches = case()
    on_tensorflow = keras.backend.backend() == "tensorflow"
    model.compile(optimizer, loss=loss, run_eagerly=on_tensorflow, jit_compile=not on_tensorflow)
    if weights is not None:
        model.set_weights(weights)
    first = model.get_weights()
    losses = []
    for batch in batches:
        model.reset_metrics()
        losses.append(np.float32(np.ravel(model.train_on_batch(*batch))[0]))
    return {"first": first, "last": model.get_weights(), "loss": [np.array(losses)]}


def cases_of(modules: list[str]) -> dict[str, Callable[[], Case]]:
    """Joins the modules' `BACKENDS`."""
    return {key: case for each in modules for key, case in getattr(import_module(each), "BACKENDS", {}).items()}


def main(given: str, out: str, *modules: str) -> int:
    """Trains all cases from the weights in one file and writes what became of them into another."""
    results: dict[str, np.ndarray] = {}
    with np.load(given, allow_pickle=False) as file:
        for name, case in cases_of(list(modules)).items():
            count = sum(each.startswith(f"{name}.first.") for each in file.files)
            trained = train(case, [file[f"{name}.first.{i}"] for i in range(count)])
            results |= flat(name, trained)
    np.savez(out, **results)
    print(keras.backend.backend())
    return 0


def flat(case: str, trained: dict[str, list[np.ndarray]]) -> dict[str, np.ndarray]:
    """Returns what `train` does by names such as `vsepp.last.0`."""
    return {f"{case}.{what}.{i}": value for what, values in trained.items() for i, value in enumerate(values)}


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Training steps of models on whatever backend Keras has; run as a script by `test_backends.py`.

    python -m tests.models.backend_steps given.npz found.npz

`given.npz` has the initial weights and the batches of every case, `found.npz` gets losses and weights.
"""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np

from vsemb.encoders import ImageEncoder, LinearSentenceEncoder, RecurrentSentenceEncoder, WordEmbedding
from vsemb.losses import InfoNCE, PairwiseRanking
from vsemb.models import DualEncoder, LogitScale
from vsemb.systems.captions.multimodal_rnn import MultimodalRNN
from vsemb.systems.captions.next_word import NextWordCrossEntropy
from vsemb.losses.max_margin import MaxMargin
from vsemb.systems.entailment.model import EntailmentModel

WORDS, STEPS, ROWS = 9, 5, 6

CASES = ("vsepp", "order-embedding", "contrastive", "entailment", "captions")


def build(case: str) -> keras.Model:
    """Returns a tiny model of the recipe's kind, built and compiled."""
    keras.utils.set_random_seed(1)
    # As rows, TensorFlow clips the gradient of a repeated word by the norm of its parts and not of their sum.
    words = WordEmbedding(WORDS, 4, init_scale=0.5, dense_gradient=True)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=2.0)
    if case == "entailment":
        model: Any = EntailmentModel(RecurrentSentenceEncoder(words, 4, units=6))
        model.build()
        loss: Any = MaxMargin(0.3)
    elif case == "captions":
        model = MultimodalRNN(ImageEncoder(16), words, units=4, l2=0.1)
        model.build({"image": (None, 5), "text": (None, None)})
        loss = NextWordCrossEntropy()
    else:
        texts = RecurrentSentenceEncoder(words, 4, units=6)
        if case == "contrastive":
            texts = LinearSentenceEncoder(words)
        similarity = "order" if case == "order-embedding" else "cosine"
        scale = LogitScale(5.0) if case == "contrastive" else None
        model = DualEncoder(ImageEncoder(4), texts, similarity, logit_scale=scale, l2=0.05)
        model.build({"image": (None, 5), "text": (None, None)})
        # Over its first steps the loss changes from all negatives to the hardest.
        loss = InfoNCE() if case == "contrastive" else PairwiseRanking(0.3, "hardest", warmup_steps=4)
    model.compile(optimizer, loss=loss, jit_compile="auto" if keras.backend.backend() == "jax" else False)
    return model


def batches(case: str) -> list[tuple[Any, ...]]:
    """Returns the case's batches, as `train_on_batch` takes them."""
    generator = np.random.default_rng(2)
    found: list[tuple[Any, ...]] = []
    for _ in range(STEPS):
        text = generator.integers(1, WORDS, (2, ROWS, 4)).astype(np.int32)
        text[:, ::2, 3:] = 0
        if case == "entailment":
            labels = generator.integers(2, size=ROWS)
            found.append(({"premise": text[0], "hypothesis": text[1]}, labels))
            continue
        batch = {"image": generator.normal(size=(ROWS, 5)).astype(np.float32), "text": text[0]}
        if case != "captions":
            batch["image_id"] = np.array([1, 2, 3, 1, 4, 5])
        found.append((batch,))
    return found


def train(case: str, weights: list[np.ndarray] | None = None) -> dict[str, list[np.ndarray]]:
    """Trains a case from given weights, or its own.

    Returns:
        Under `first` the weights before, under `last` those after, under `loss` the loss of each step.
    """
    model = build(case)
    if weights is not None:
        model.set_weights(weights)
    first = model.get_weights()
    losses = []
    for batch in batches(case):
        model.reset_metrics()
        losses.append(np.float32(np.ravel(model.train_on_batch(*batch))[0]))
    return {"first": first, "last": model.get_weights(), "loss": [np.array(losses)]}


def main(given: str, found: str) -> int:
    """Trains all cases from the weights in one file and writes what became of them into another."""
    results: dict[str, np.ndarray] = {}
    with np.load(given, allow_pickle=False) as file:
        for case in CASES:
            count = sum(name.startswith(f"{case}.first.") for name in file.files)
            trained = train(case, [file[f"{case}.first.{i}"] for i in range(count)])
            results |= flat(case, trained)
    np.savez(found, **results)
    print(keras.backend.backend(), *sorted({name.split(".")[0] for name in sys.modules} & {"tensorflow"}))
    return 0


def flat(case: str, trained: dict[str, list[np.ndarray]]) -> dict[str, np.ndarray]:
    """Returns what `train` does by names such as `vsepp.last.0`."""
    return {f"{case}.{what}.{i}": value for what, values in trained.items() for i, value in enumerate(values)}


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""The models of sentence pairs for `tests.systems.test_steps`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from tests.models import backend_steps
from tests.models.replica_cases import DIM, ROWS, STEPS, WORDS
from vsemb.encoders import LinearSentenceEncoder, RecurrentSentenceEncoder, WordEmbedding
from vsemb.losses.max_margin import MaxMargin
from vsemb.systems.entailment.classifier import PairClassifier
from vsemb.systems.entailment.model import EntailmentModel


def entailment() -> tuple[EntailmentModel, Any]:
    """An entailment model, built, and its pairs; it is compared with `fit` on inputs and labels."""
    keras.utils.set_random_seed(4)
    generator = np.random.default_rng(1)
    premise, hypothesis = generator.integers(1, WORDS, (2, STEPS * ROWS, 3)).astype(np.int32)
    model = EntailmentModel(LinearSentenceEncoder(WordEmbedding(WORDS, DIM, init_scale=1.0)))
    model.build()
    model.compile(keras.optimizers.SGD(0.05), loss=MaxMargin(0.3), jit_compile=False)
    return model, ({"premise": premise, "hypothesis": hypothesis}, generator.integers(2, size=STEPS * ROWS))


def classes() -> tuple[PairClassifier, Any]:
    """A classifier without dropout, built, and its pairs."""
    keras.utils.set_random_seed(4)
    _, (inputs, _) = entailment()
    model = PairClassifier(LinearSentenceEncoder(WordEmbedding(WORDS, DIM, init_scale=1.0)), units=6, dropout=0.0)
    model.build()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05), loss=loss, jit_compile=False)
    return model, (inputs, np.random.default_rng(2).integers(3, size=STEPS * ROWS))


def on_backends() -> backend_steps.Case:
    """An entailment model and its batches, for training on several backends."""
    model = EntailmentModel(RecurrentSentenceEncoder(backend_steps.word_vectors(), 4, units=6))
    model.build()
    batches: list[tuple[Any, ...]] = []
    for generator, text in backend_steps.random_texts():
        labels = generator.integers(2, size=backend_steps.ROWS)
        batches.append(({"premise": text[0], "hypothesis": text[1]}, labels))
    return model, MaxMargin(0.3), batches


REPLICAS = {"entailment": entailment, "classes": classes}
BACKENDS = {"entailment": on_backends}

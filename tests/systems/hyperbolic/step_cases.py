"""Dual encoders in hyperbolic space for `tests.systems.test_steps`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from tests.models import backend_steps
from tests.models.replica_cases import DIM, batches
from vsemb.encoders import LinearSentenceEncoder
from vsemb.models import DualEncoder, LogitScale
from vsemb.systems.hyperbolic.entailment_loss import ContrastiveEntailment
from vsemb.systems.hyperbolic.scaling import ScaledImageEncoder, ScaledTextEncoder


def model(**options: Any) -> DualEncoder:
    """A model with all learned factors, built."""
    keras.utils.set_random_seed(5)
    texts = ScaledTextEncoder(LinearSentenceEncoder(backend_steps.word_vectors()))
    weights = {"image_weight": 0.5, "text_weight": 0.5}
    built = DualEncoder(ScaledImageEncoder(DIM), texts, "lorentz", logit_scale=LogitScale(3.0), **weights, **options)
    built.build({"image": (None, 5), "text": (None, None)})
    return built


def on_replicas(**options: Any) -> tuple[DualEncoder, dict[str, np.ndarray]]:
    """A model with both losses and its batches, in which images repeat."""
    compiled = model(**options)
    optimizer = keras.optimizers.SGD(0.05)
    compiled.compile(optimizer, loss=ContrastiveEntailment().build(1), jit_compile=False)
    return compiled, batches()


def on_backends() -> backend_steps.Case:
    """A model and its batches, for training on several backends."""
    rows = [
        ({"image": generator.normal(size=(backend_steps.ROWS, 5)).astype(np.float32), "text": text[0]},)
        for generator, text in backend_steps.random_texts()
    ]
    sizes = {"chunk_size": 4, "block_size": 4} if backend_steps.in_chunks() else {}
    return model(**sizes), ContrastiveEntailment().build(1), rows


REPLICAS = {"hyperbolic": on_replicas}
CHUNKS = {"hyperbolic": (on_replicas, {"chunk_size": 3, "block_size": 3})}
BACKENDS = {"hyperbolic": on_backends}

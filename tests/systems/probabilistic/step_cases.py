"""Dual encoders of normal distributions for `tests.systems.test_steps`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from tests.models import backend_steps
from tests.models.replica_cases import DIM, batches
from vsemb.encoders import LinearSentenceEncoder
from vsemb.models import DualEncoder, LogitScale
from vsemb.systems.probabilistic.heads import GaussianImageEncoder, GaussianTextEncoder
from vsemb.systems.probabilistic.matching_loss import Matching

# Large, so that all terms of the loss change the weights.
_LOSS = Matching(pseudo_weight=0.5, prior_weight=0.1)


def model(**options: Any) -> DualEncoder:
    """A model with a learned scale, built."""
    keras.utils.set_random_seed(5)
    texts = GaussianTextEncoder(LinearSentenceEncoder(backend_steps.word_vectors()), variance=0.5)
    images = GaussianImageEncoder(DIM, variance=0.5)
    built = DualEncoder(images, texts, "csd", logit_scale=LogitScale(5.0, bias=5.0), **options)
    built.build({"image": (None, 5), "text": (None, None)})
    return built


def on_replicas(**options: Any) -> tuple[DualEncoder, dict[str, np.ndarray]]:
    """A model with all terms of the loss and its batches, in which images repeat."""
    compiled = model(**options)
    compiled.compile(keras.optimizers.SGD(0.05), loss=_LOSS.build(1), jit_compile=False)
    return compiled, batches()


def on_backends() -> backend_steps.Case:
    """A model and its batches, for training on several backends."""
    rows = [
        ({"image": generator.normal(size=(backend_steps.ROWS, 5)).astype(np.float32), "text": text[0]},)
        for generator, text in backend_steps.random_texts()
    ]
    sizes = {"chunk_size": 4, "block_size": 4} if backend_steps.in_chunks() else {}
    return model(**sizes), _LOSS.build(1), rows


REPLICAS = {"probabilistic": on_replicas}
CHUNKS = {"probabilistic": (on_replicas, {"chunk_size": 3, "block_size": 3})}
BACKENDS = {"probabilistic": on_backends}

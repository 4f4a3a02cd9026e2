"""The model of concepts for `tests.systems.test_steps`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from pipelines.hypernymy.model import HypernymModel
from tests.models.replica_cases import DIM, ROWS, STEPS
from vsemb.losses.max_margin import MaxMargin


def hypernyms() -> tuple[HypernymModel, Any]:
    """A model of seven concepts and its pairs."""
    generator = np.random.default_rng(3)
    model = HypernymModel(7, DIM, scale=1.0, seed=1)
    model.compile(keras.optimizers.SGD(0.05), loss=MaxMargin(1.0), metrics=["mae"], jit_compile=False)
    return model, (generator.integers(7, size=(STEPS * ROWS, 2)), generator.integers(2, size=STEPS * ROWS))


REPLICAS = {"hypernyms": hypernyms}

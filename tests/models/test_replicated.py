"""Steps of a plain model on one device: accumulated gradients, and one number per row."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from vsemb.models.replicated import ReplicatedModel


class Scale(ReplicatedModel):
    """Multiplies numbers, (n,), by a weight of 1."""

    l2 = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.scale = self.add_weight(shape=(), initializer="ones")

    def build(self, input_shape: Any) -> None:
        self.built = True

    def call(self, x: Any) -> Any:
        return ops.convert_to_tensor(x) * self.scale


def test_gradients_are_accumulated_on_one_device() -> None:
    model, x = Scale(), np.array([1.0, 1.0], np.float32)
    optimizer = keras.optimizers.SGD(0.5, gradient_accumulation_steps=2)
    model.compile(optimizer, loss="mse", run_eagerly=True)
    # The gradient of (w - y)^2 at w = 1 is 2 (1 - y): 2 and 6, whose mean is 4.
    scales = []
    for y in (0.0, -2.0):
        model.train_on_batch(x, np.full(2, y, np.float32))
        scales.append(float(model.scale))
    assert scales == [1.0, -1.0]


def test_each_row_has_its_own_number_and_weight() -> None:
    model = Scale()
    model.compile("sgd", loss="mse", weighted_metrics=["mae"], run_eagerly=True)
    x, y, weights = (np.array(values, np.float32) for values in ([1, 2, 3], [1, 4, 0], [5, 1, 2]))
    # Errors 0, 2 and 3: (0 * 5 + 4 * 1 + 9 * 2) / 3, and (0 * 5 + 2 * 1 + 3 * 2) / (5 + 1 + 2).
    found = model.test_on_batch(x, y, sample_weight=weights, return_dict=True)
    np.testing.assert_allclose([found["loss"], found["mae"]], [22 / 3, 1], rtol=1e-6)

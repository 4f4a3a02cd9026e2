"""Optimizers and schedules of recipes."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.recipes.retrieval import Retrieval
from vsemb.training import FusedAdam
from vsemb.training.optimizers import (
    SGD,
    Adam,
    Constant,
    Cosine,
    Exponential,
    OptimizerPart,
    Schedule,
    Step,
)


def rate_at(schedule: Schedule, step: int, steps: int = 10, epochs: int = 4) -> float:
    rate = schedule.build(1.0, steps, epochs)
    return float(rate(step)) if callable(rate) else rate


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Constant(), {0: 1.0, 39: 1.0}),
        # Times 0.5 every 2 epochs of 10 steps, smoothly: 0.5 ** (step / 20).
        (Exponential(factor=0.5, every=2.0), {0: 1.0, 10: 0.5**0.5, 20: 0.5}),
        (Step(factor=0.1, every=2.0), {0: 1.0, 19: 1.0, 20: 0.1, 39: 0.1}),
        # Steps, however many an epoch has.
        (Step(factor=0.5, every=7, unit="steps"), {6: 1.0, 7: 0.5, 13: 0.5, 14: 0.25}),
        (Exponential(factor=0.5, every=8, unit="steps"), {4: 0.5**0.5, 8: 0.5}),
        # Half a cosine over 40 steps.
        (Cosine(), {0: 1.0, 20: 0.5, 40: 0.0}),
        # A rise over 10 steps, then half a cosine over 30.
        (Cosine(warmup_epochs=1.0), {0: 0.0, 5: 0.5, 10: 1.0, 25: 0.5, 40: 0.0}),
    ],
)
def test_schedules(schedule: Schedule, expected: dict[int, float]) -> None:
    for step, rate in expected.items():
        np.testing.assert_allclose(rate_at(schedule, step), rate, rtol=1e-5, atol=1e-6)


def optimizer_of(*overrides: str) -> OptimizerPart:
    return Retrieval().with_overrides(list(overrides)).optimizer


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "rmsprop"])
def test_optimizers(name: str) -> None:
    fields = {"global_clipnorm": 2, "ema_momentum": 0.9, "learning_rate": 0.5}
    part = optimizer_of(f"optimizer={name}", *(f"optimizer.{field}={value}" for field, value in fields.items()))
    optimizer: Any = part.build(10, 4)
    assert type(optimizer).__name__.lower().removeprefix("fused") == name.removesuffix("w")
    assert optimizer.global_clipnorm == 2 and optimizer.use_ema and optimizer.ema_momentum == 0.9
    assert float(optimizer.learning_rate) == 0.5
    plain: Any = optimizer_of(f"optimizer={name}").build(10, 4)
    assert plain.global_clipnorm is None and not plain.use_ema
    none: Any = optimizer_of(f"optimizer={name}", "optimizer.ema_momentum=0").build(10, 4)
    assert none.ema_momentum == 0


def test_adamw_decays_weights_and_sparse_updates_are_passed_on() -> None:
    changes = ("optimizer=adamw", "optimizer.weight_decay=0.1", "optimizer.sparse_embedding_updates=true")
    optimizer: Any = optimizer_of(*changes).build(10, 4)
    assert isinstance(optimizer, FusedAdam)
    assert (optimizer.weight_decay, optimizer.sparse_embedding_updates) == (0.1, True)
    plain: Any = Adam().build(10, 4)
    assert (plain.weight_decay, plain.sparse_embedding_updates) == (None, False)


def test_sparse_updates_need_lists_of_rows() -> None:
    with raises_argument("optimizer.sparse_embedding_updates"):
        optimizer_of("optimizer.sparse_embedding_updates=true", "text.encoder.words.dense_gradient=true")


def test_momentum() -> None:
    constant: Any = SGD(momentum=0.9).build(10, 4)
    assert type(constant) is keras.optimizers.SGD and constant.momentum == 0.9
    assert SGD().build(10, 4).momentum == 0


@pytest.mark.parametrize(
    ("name", "field"),
    [("adam", "momentum"), ("adamw", "momentum"), ("rmsprop", "momentum_start"), ("sgd", "weight_decay")],
)
def test_fields_of_other_optimizers_are_unknown(name: str, field: str) -> None:
    with raises_argument("recipe field"):
        optimizer_of(f"optimizer={name}", f"optimizer.{field}=0.5")


def test_a_variable_is_trained_with_its_share_of_the_learning_rate() -> None:
    whole, tenth = keras.Variable([1.0]), keras.Variable([1.0])
    tenth.learning_rate_share = 0.1
    optimizer = FusedAdam(0.5)
    # The first step of Adam is the learning rate, whatever the gradient.
    optimizer.apply([np.array([3.0], np.float32)] * 2, [whole, tenth])
    np.testing.assert_allclose([whole.numpy()[0], tenth.numpy()[0]], [0.5, 0.95], rtol=1e-5)

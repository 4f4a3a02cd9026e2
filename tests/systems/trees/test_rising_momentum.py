"""SGD with a momentum that grows: against a loop in NumPy, saved, resumed, averaged and clipped."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.models.test_dual_encoder import make_batch, make_model
from tests.raising import raises_argument
from vsemb.losses import PairwiseRanking
from vsemb.systems.trees.rising_momentum import RisingMomentum, RisingMomentumSGD
from vsemb.training import TrainingState

RATE, START, END, STEPS = 0.1, 0.5, 0.95, 4.0
#: A slope a step, of a weight with two entries.
SLOPES = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)


def momentum(step: int) -> float:
    return END - (END - START) * math.exp(-step / STEPS)


def make_optimizer(rate: Any = RATE, **options) -> RisingMomentumSGD:
    return RisingMomentumSGD(rate, END, momentum_start=START, momentum_steps=STEPS, **options)


def loop(slopes: np.ndarray, rates: list[float], *, nesterov: bool = False) -> np.ndarray:
    """The weight after each step, from zero."""
    weight, velocity, found = np.zeros(2), np.zeros(2), []
    for step, (slope, rate) in enumerate(zip(slopes, rates, strict=True)):
        velocity = momentum(step) * velocity - rate * slope
        weight = weight + (momentum(step) * velocity - rate * slope if nesterov else velocity)
        found.append(weight)
    return np.array(found)


def walked(optimizer: keras.optimizers.Optimizer, slopes: np.ndarray = SLOPES) -> np.ndarray:
    weight = keras.Variable(np.zeros(2, np.float32))
    found = []
    for slope in slopes:
        optimizer.apply([tf.constant(slope)], [weight])
        found.append(weight.numpy())
    return np.array(found)


@pytest.mark.parametrize("nesterov", [False, True])
def test_against_a_loop(nesterov: bool) -> None:
    expected = loop(SLOPES, [RATE] * len(SLOPES), nesterov=nesterov)
    # Twelve steps in float32.
    np.testing.assert_allclose(walked(make_optimizer(nesterov=nesterov)), expected, rtol=1e-5, atol=1e-6)
    # The momentum makes a difference.
    constant = walked(keras.optimizers.SGD(RATE, START, nesterov=nesterov))
    assert np.abs(constant - expected).max() > 0.05


def test_with_the_schedule_of_the_report() -> None:
    # Times 0.95 every 3 steps, at once.
    schedule = keras.optimizers.schedules.ExponentialDecay(RATE, 3, 0.95, staircase=True)
    expected = loop(SLOPES, [RATE * 0.95 ** (step // 3) for step in range(len(SLOPES))])
    np.testing.assert_allclose(walked(make_optimizer(schedule)), expected, rtol=1e-5, atol=1e-6)


def test_the_momentum_of_a_step() -> None:
    optimizer = RisingMomentumSGD(0.1)
    # 0.95 - 0.45 exp(-t / 2500): a half at first, then ever nearer to 0.95.
    assert float(optimizer.momentum_at(0)) == 0.5
    np.testing.assert_allclose(optimizer.momentum_at(2500), 0.95 - 0.45 / math.e, rtol=1e-6)
    values = [float(optimizer.momentum_at(step)) for step in range(0, 30_000, 1000)]
    assert all(a < b for a, b in zip(values, values[1:], strict=False)) and values[-1] < 0.95


@pytest.mark.parametrize("end", [0.0, 0.9])
def test_a_momentum_that_need_not_grow_is_that_of_keras(end: float) -> None:
    constant = RisingMomentumSGD(RATE, end, momentum_start=end)
    np.testing.assert_allclose(walked(constant), walked(keras.optimizers.SGD(RATE, end)), rtol=1e-6)


def test_repeated_rows_of_a_table_add_up() -> None:
    table, dense = (keras.Variable(np.zeros((3, 2), np.float32)) for _ in range(2))
    optimizers = make_optimizer(), make_optimizer()
    for slope in SLOPES[:4]:
        rows = tf.IndexedSlices(tf.constant([slope, slope, -2 * slope]), [1, 1, 2], dense_shape=[3, 2])
        optimizers[0].apply([rows], [table])
        optimizers[1].apply([tf.convert_to_tensor(rows)], [dense])
    np.testing.assert_allclose(table, dense, rtol=1e-6)
    np.testing.assert_allclose(table[1], -np.asarray(table[2]), rtol=1e-5)
    assert np.abs(table[1]).max() > 0.1


def test_config() -> None:
    optimizer = make_optimizer(global_clipnorm=2.0, use_ema=True, ema_momentum=0.9)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(again) is RisingMomentumSGD
    assert again.get_config() == optimizer.get_config()
    assert (again.momentum, again.momentum_start, again.momentum_steps) == (END, START, STEPS)
    assert (again.global_clipnorm, again.use_ema, again.ema_momentum) == (2.0, True, 0.9)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"momentum": 1.0}, "momentum"),
        ({"momentum": -0.1}, "momentum"),
        ({"momentum": float("nan")}, "momentum"),
        ({"momentum": 0.4, "momentum_start": 0.5}, "momentum_start"),
        ({"momentum_start": -0.1}, "momentum_start"),
        ({"momentum_steps": 0.0}, "momentum_steps"),
        ({"momentum_steps": float("inf")}, "momentum_steps"),
    ],
    ids=["one", "below-zero", "nan", "falling", "start-below-zero", "no-steps", "endless"],
)
def test_bad_arguments(options, name: str) -> None:
    with raises_argument(name):
        RisingMomentumSGD(0.1, **options)


def test_clipped_to_a_norm() -> None:
    slopes = SLOPES / np.linalg.norm(SLOPES, axis=1, keepdims=True)
    expected = walked(make_optimizer(), slopes.astype(np.float32))
    long = walked(make_optimizer(global_clipnorm=1.0), 7 * slopes.astype(np.float32))
    np.testing.assert_allclose(long, expected, rtol=1e-4, atol=1e-6)


def fitted(steps: list[slice], tmp_path, **options) -> list[np.ndarray]:
    """A dual encoder trained on parts of eight batches, its state stored and restored between them."""
    batches = [make_batch([3, 1, 4, 5], seed=seed) for seed in range(8)]
    state = None
    for part in steps:
        model = make_model(PairwiseRanking(0.5))
        model.compile(make_optimizer(0.05, **options), loss=PairwiseRanking(0.5), jit_compile=False)
        state = TrainingState(tmp_path / f"state-{len(steps)}.npz", [])
        state.restore(model)
        state.set_model(model)
        for batch in batches[part]:
            model.train_on_batch({name: tf.constant(value) for name, value in batch.items()})
        state.store()
    assert int(model.optimizer.iterations) == 8
    return [np.asarray(v) for v in (*model.variables, *model.optimizer.variables)]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"use_ema": True, "ema_momentum": 0.9}, {"global_clipnorm": 0.1}])
def test_a_resumed_training_goes_on_exactly(options, tmp_path) -> None:
    whole = fitted([slice(0, 8)], tmp_path, **options)
    parts = fitted([slice(0, 3), slice(3, 5), slice(5, 8)], tmp_path, **options)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_part_gives_the_optimizer_its_fields() -> None:
    rising = RisingMomentum(momentum=0.9, momentum_start=0.0, momentum_steps=7.0, global_clipnorm=2.0, ema_momentum=0.5)
    optimizer: Any = rising.build(10, 4)
    assert isinstance(optimizer, RisingMomentumSGD)
    assert (optimizer.momentum, optimizer.momentum_start, optimizer.momentum_steps) == (0.9, 0.0, 7.0)
    assert optimizer.global_clipnorm == 2 and optimizer.ema_momentum == 0.5


def test_momentum_does_not_fall() -> None:
    with raises_argument("optimizer.momentum_start"):
        RisingMomentum(momentum=0.0, momentum_start=0.5)

"""Adam in one kernel: Keras' steps, and those of a table of vectors, dense and lazy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb.training.optimizers import FusedAdam

ROOT = Path(__file__).parents[2]

ROWS, DIM, STEPS = 6, 3, 20

#: float32, twenty steps of 0.01 each; the kernel rounds in another order.
CLOSE = {"rtol": 1e-5, "atol": 5e-6}

# With Keras' own epsilon, first steps amplify rounding where a gradient is almost 0.
OPTIONS = {"learning_rate": 0.01, "epsilon": 1e-3}


def draws(step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row numbers, some of which repeat and two of which never occur, their gradients and a vector's."""
    generator = np.random.default_rng(step)
    ids = generator.integers(0, ROWS - 2, 5)
    return ids, generator.normal(size=(5, DIM)).astype(np.float32), generator.normal(size=4).astype("float32")


def train(optimizer: Any, sparse: bool) -> tuple[np.ndarray, np.ndarray]:
    table = keras.Variable(np.ones((ROWS, DIM), np.float32))
    bias = keras.Variable(np.ones(4, np.float32))
    for step in range(STEPS):
        ids, rows, vector = draws(step)
        gradient: Any = tf.IndexedSlices(tf.constant(rows), tf.constant(ids), (ROWS, DIM))
        if not sparse:
            gradient = tf.math.unsorted_segment_sum(gradient.values, gradient.indices, ROWS)
        optimizer.apply([gradient, tf.constant(vector)], [table, bias])
    return table.numpy(), bias.numpy()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "rows"])
def test_equals_keras_on_dense_gradients(sparse: bool) -> None:
    expected = train(keras.optimizers.Adam(**OPTIONS), sparse=False)
    for received, values in zip(train(FusedAdam(**OPTIONS), sparse), expected, strict=True):
        np.testing.assert_allclose(received, values, **CLOSE)


def test_keras_squares_the_rows_of_a_repeated_word_one_by_one() -> None:
    """What makes the sum of rows necessary."""
    keras_own = train(keras.optimizers.Adam(**OPTIONS), sparse=True)[0]
    assert np.abs(keras_own - train(FusedAdam(**OPTIONS), sparse=True)[0]).max() > 0.01


def test_lazy_equals_a_loop_over_the_words_of_a_batch() -> None:
    rate, beta_1, beta_2, epsilon = 0.01, 0.9, 0.999, 1e-3
    table, first, second = np.ones((ROWS, DIM)), np.zeros((ROWS, DIM)), np.zeros((ROWS, DIM))
    for step in range(STEPS):
        ids, rows, _ = draws(step)
        alpha = rate * np.sqrt(1 - beta_2 ** (step + 1)) / (1 - beta_1 ** (step + 1))
        for word in set(ids.tolist()):
            gradient = rows[ids == word].sum(0)
            first[word] = beta_1 * first[word] + (1 - beta_1) * gradient
            second[word] = beta_2 * second[word] + (1 - beta_2) * gradient**2
            table[word] -= alpha * first[word] / (np.sqrt(second[word]) + epsilon)
    received, bias = train(FusedAdam(**OPTIONS, sparse_embedding_updates=True), sparse=True)
    np.testing.assert_allclose(received, table, **CLOSE)
    assert (received[ROWS - 2 :] == 1).all()
    np.testing.assert_allclose(bias, train(FusedAdam(**OPTIONS), sparse=True)[1], **CLOSE)


@pytest.mark.parametrize("options", [{"amsgrad": True}, {"global_clipnorm": 0.1}, {"use_ema": True}], ids=str)
def test_keras_options_go_on_working(options: dict[str, Any]) -> None:
    expected = train(keras.optimizers.Adam(**OPTIONS, **options), sparse=False)
    for received, values in zip(train(FusedAdam(**OPTIONS, **options), sparse=False), expected, strict=True):
        np.testing.assert_allclose(received, values, **CLOSE)


@pytest.mark.parametrize("clip", ["global_clipnorm", "clipnorm", "clipvalue"])
def test_lists_of_rows_are_clipped_as_tables_are(clip: str) -> None:
    expected = train(keras.optimizers.Adam(**OPTIONS, **{clip: 0.05}), sparse=False)
    for received, values in zip(train(FusedAdam(**OPTIONS, **{clip: 0.05}), sparse=True), expected, strict=True):
        np.testing.assert_allclose(received, values, **CLOSE)
    assert np.abs(expected[0] - train(FusedAdam(**OPTIONS), sparse=True)[0]).max() > 1e-3


def test_schedules_and_configuration() -> None:
    schedule = keras.optimizers.schedules.CosineDecay(0.01, STEPS)
    expected = train(keras.optimizers.Adam(schedule, epsilon=1e-3), sparse=False)
    received = train(FusedAdam(schedule, epsilon=1e-3), sparse=False)
    np.testing.assert_allclose(received[0], expected[0], **CLOSE)
    again = keras.optimizers.deserialize(
        keras.optimizers.serialize(FusedAdam(sparse_embedding_updates=True, beta_1=0.8))
    )
    assert isinstance(again, FusedAdam)
    assert again.sparse_embedding_updates
    assert again.beta_1 == 0.8


def test_moments_have_the_names_of_keras() -> None:
    """A training that Keras' Adam began is gone on with."""
    names = []
    for optimizer in (keras.optimizers.Adam(), FusedAdam()):
        optimizer.build([keras.Variable(np.ones(3, np.float32), name="kernel")])
        names.append([variable.path.split("/", 1)[1] for variable in optimizer.variables])
    assert names[0] == names[1]


ON_JAX = """
import numpy as np, keras
from vsemb.errors import InvalidArgumentError
from vsemb.training.optimizers import FusedAdam
found = []
for optimizer in (keras.optimizers.Adam(0.01, global_clipnorm=0.5), FusedAdam(0.01, global_clipnorm=0.5)):
    variable = keras.Variable(np.ones((3, 2), np.float32))
    for step in range(5):
        gradient = np.random.default_rng(step).normal(size=(3, 2)).astype(np.float32)
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [variable])
    found.append(keras.ops.convert_to_numpy(variable.value))
assert np.abs(found[0] - 1).max() > 0.01
np.testing.assert_array_equal(*found)
try:
    FusedAdam(sparse_embedding_updates=True)
except InvalidArgumentError as error:
    print(keras.backend.backend(), error)
"""


@pytest.mark.parametrize("options", [{}, {"global_clipnorm": 0.5}], ids=str)
def test_on_another_backend_it_is_that_of_keras(options: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = train(keras.optimizers.Adam(**OPTIONS, **options), sparse=False)
    # Keras itself asks another function, so the arrays stay those of TensorFlow.
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    for received, values in zip(train(FusedAdam(**OPTIONS, **options), sparse=False), expected, strict=True):
        np.testing.assert_array_equal(received, values)
    with raises_argument("sparse_embedding_updates"):
        FusedAdam(sparse_embedding_updates=True)


@pytest.mark.slow
def test_on_jax_it_is_that_of_keras() -> None:
    pytest.importorskip("jax", reason="the extra jax is not installed")
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", ON_JAX], capture_output=True, text=True, timeout=300, env=environment, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (
        done.stdout.startswith("jax ") and "`sparse_embedding_updates` must be False on other backends" in done.stdout
    )

"""Two replicas with half the batch each do what one device does with the whole batch."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.models import test_keras_habits as habits
from tests.models.replica_cases import (
    REPLICAS,
    Results,
    check_different,
    check_same,
    run,
    with_everything_random,
)


@pytest.fixture(scope="module")
def results(two_devices: tf.distribute.Strategy) -> Results:
    return {name: (run(case), run(case, two_devices)) for name, case in REPLICAS.items()}


@pytest.mark.parametrize("case", REPLICAS)
def test_two_replicas_equal_one_device(results: Results, case: str) -> None:
    check_same(results, case)


def test_the_cases_are_no_trivial_ones(results: Results) -> None:
    check_different(results)
    assert {"val_loss", "val_accuracy"} <= set(results["infonce"][1])


def test_each_replica_draws_a_dropout_of_its_own_and_the_first_that_of_one_device(
    two_devices: tf.distribute.Strategy,
) -> None:
    ids = tf.ones((6, 3), tf.int32)
    with two_devices.scope():
        model, _ = with_everything_random()
        model.make_train_function()
    encode = tf.function(lambda: model.text_encoder(ids, training=True), autograph=False)
    first, second = two_devices.experimental_local_results(two_devices.run(encode))
    alone, _ = with_everything_random()
    np.testing.assert_allclose(first, alone.text_encoder(ids, training=True), rtol=1e-6)
    assert (first.numpy() != second.numpy()).any()


@pytest.mark.slow
def test_an_unbuilt_model_under_a_strategy(two_devices: tf.distribute.Strategy, tmp_path: Path) -> None:
    with two_devices.scope():
        model = habits.compiled(habits.raw_model(), metrics=["accuracy"])
    # Not built, and neither strings nor ids can be averaged.
    losses = model.fit(habits.dataset(), epochs=2, verbose=0).history["loss"]
    assert losses[1] < losses[0]
    model.export(tmp_path / "1")
    model.save(tmp_path / "m.keras")
    embeddings = habits.served(tmp_path / "1", "encode_text", text=tf.constant(habits.TEXTS))["embedding"]
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    expected = loaded({"text": tf.constant(habits.TEXTS)})["text"]
    np.testing.assert_allclose(embeddings, expected, rtol=1e-5, atol=1e-6)

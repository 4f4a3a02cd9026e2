"""Two replicas with different numbers of rows, or one with none, do what one device does with the whole batch.

Each loss is trained eagerly, since tracing a model for two replicas takes several times as long as its steps. One model
is compiled and goes through all methods of Keras.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb.encoders import ImageEncoder, LinearSentenceEncoder, WordEmbedding
from vsemb.losses import CombinedLoss, InBatchLoss, InfoNCE, PairwiseRanking, SigmoidLoss
from vsemb.models import DualEncoder, LogitScale
from vsemb.ops import replicas

WORDS, DIM, FEATURES, STEPS = 9, 4, 5, 3
#: Rows of the batches: 3 are divided into 2 and 1, 1 into 1 and 0.
SIZES = (3, 1)

Batch = dict[str, np.ndarray]


def batches(kind: str, sizes: tuple[int, ...] = SIZES) -> list[Batch]:
    """Batches with the ids of a kind; images repeat within a batch, within and across replicas."""
    generator = np.random.default_rng(0)
    made = []
    for rows in sizes:
        ids = np.array([0, 1, 0, 1])[:rows] + 2**24 - 1
        batch = {
            "image": generator.normal(size=(rows, FEATURES)).astype(np.float32),
            "text": generator.integers(1, WORDS, (rows, STEPS)).astype(np.int32),
        }
        if kind != "none":
            batch["image_id"] = ids
        if kind == "classes":
            batch["class_id"] = ids // 2
        if kind == "texts":
            # Two texts per image and one more, whose images are on either replica.
            batch["image_id"] = np.arange(rows) + 2**24
            batch["text_image_id"] = np.repeat(batch["image_id"], 2)[::-1][: 2 * rows - 1]
            batch["text"] = generator.integers(1, WORDS, (2 * rows - 1, STEPS)).astype(np.int32)
        if kind == "sampled":
            count = rows + 1
            batch["negative_image"] = generator.normal(size=(count, FEATURES)).astype(np.float32)
            batch["negative_image_id"] = generator.integers(3, size=count) + 2**24 - 1
            batch["negative_text"] = generator.integers(1, WORDS, (count + 2, STEPS)).astype(np.int32)
            batch["negative_text_id"] = generator.integers(3, size=count + 2) + 2**24 - 1
        made.append(batch)
    return made


def dataset(made: list[Batch]) -> tf.data.Dataset:
    """Batches whose numbers of rows differ, and are unknown in a graph."""
    # Not `from_generator`: the iterator of two devices may wait for Python, which waits for it, when it is deleted.
    return functools.reduce(tf.data.Dataset.concatenate, map(tf.data.Dataset.from_tensors, made))


def model_of(loss: InBatchLoss | keras.losses.Loss, **options: Any) -> DualEncoder:
    keras.utils.set_random_seed(3)
    scale = LogitScale(5.0, bias=-2.0) if isinstance(loss, SigmoidLoss) else None
    words = WordEmbedding(WORDS, DIM, init_scale=1.0)
    image = options.pop("image_encoder", None) or ImageEncoder(DIM)
    metrics = options.pop("metrics", ["accuracy"])
    model = DualEncoder(image, LinearSentenceEncoder(words), logit_scale=scale, **{"l2": 0.1, **options})
    model.build({"image": (None, FEATURES), "text": (None, None)})
    model.compile(keras.optimizers.SGD(0.05, momentum=0.5), loss=loss, metrics=metrics, jit_compile=False)
    return model


Found = dict[str, np.ndarray]


def trained(strategy: tf.distribute.Strategy | None, made: list[Batch], make: Callable[[], DualEncoder]) -> Found:
    """Trains eagerly, without known numbers of rows, as in a graph."""
    with contextlib.nullcontext() if strategy is None else strategy.scope(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(replicas, "_known_rows", lambda strategy, rows: None)
        model = make()
        model.run_eagerly = True
        return found(model, model.fit(dataset(made), verbose=0).history)


def through_all_methods(strategy: tf.distribute.Strategy | None, made: list[Batch], loss: InBatchLoss) -> Found:
    """Trains, validates and embeds; one device runs eagerly."""
    with contextlib.nullcontext() if strategy is None else strategy.scope():
        model = model_of(loss, block_size=2)
        model.run_eagerly = strategy is None
        history = model.fit(dataset(made), validation_data=dataset(made), verbose=0).history
        texts = model.predict(dataset([{"text": batch["text"]} for batch in made]), verbose=0)["text"]
        on_batch = {f"test_{name}": value for name, value in model.test_on_batch(made[0], return_dict=True).items()}
        on_batch |= {f"train_{name}": value for name, value in model.train_on_batch(made[0], return_dict=True).items()}
    return found(model, history | on_batch) | {"texts": texts}


def found(model: DualEncoder, logs: dict[str, Any]) -> Found:
    weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
    return {"weights": weights, **{name: np.array(values) for name, values in logs.items()}}


def check_close(one: Found, two: Found, tolerance: float = 1e-5) -> None:
    assert set(one) == set(two) >= {"weights", "loss"}
    for name, expected in one.items():
        # The sums of float32 run in another order.
        np.testing.assert_allclose(two[name], expected, rtol=10 * tolerance, atol=tolerance, err_msg=name)


LOSSES = {
    "infonce": lambda: InfoNCE(0.3),
    "ranking": lambda: PairwiseRanking(0.3),
    "hardest-mean": lambda: PairwiseRanking(0.3, "hardest", reduction="mean"),
    "sigmoid": lambda: SigmoidLoss(),
    "sigmoid-sum": lambda: SigmoidLoss(reduction="sum"),
    "keras": lambda: keras.losses.CategoricalCrossentropy(from_logits=True),
    "combined": lambda: CombinedLoss([PairwiseRanking(0.3), InfoNCE(0.3)], [1.0, 0.5]),
}
#: Each kind of ids, some in blocks.
CASES = [
    ("none", "keras", 2),
    ("ids", "infonce", None),
    ("ids", "sigmoid-sum", 2),
    ("classes", "ranking", None),
    ("texts", "combined", None),
    ("texts", "sigmoid", 2),
    ("none", "hardest-mean", None),
    ("sampled", "infonce", 2),
]


# Keras warns of a single class: a batch of one pair has one candidate.
@pytest.mark.filterwarnings("ignore:In loss categorical_crossentropy:SyntaxWarning")
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "loss", "block_size"), CASES)
def test_uneven_replicas_equal_one_device(
    two_devices: tf.distribute.Strategy, kind: str, loss: str, block_size: int | None
) -> None:
    one, two = (
        trained(strategy, batches(kind), lambda: model_of(LOSSES[loss](), block_size=block_size))
        for strategy in (None, two_devices)
    )
    check_close(one, two)


def test_a_batch_that_does_not_divide_trains_as_on_one_device(two_devices: tf.distribute.Strategy) -> None:
    one, two = (trained(strategy, batches("texts"), lambda: model_of(InfoNCE(0.3))) for strategy in (None, two_devices))
    check_close(one, two)


@pytest.mark.slow
def test_a_compiled_model_equals_one_device_in_all_methods(two_devices: tf.distribute.Strategy) -> None:
    one, two = (through_all_methods(each, batches("texts", (4, 3, 1)), SigmoidLoss()) for each in (None, two_devices))
    check_close(one, two)


def test_one_input_may_have_a_known_number_of_rows() -> None:
    def known(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {**batch, "image": tf.ensure_shape(batch["image"], (4, FEATURES))}

    model = model_of(InfoNCE(0.3), metrics=None)
    assert np.isfinite(model.fit(dataset(batches("ids", (4, 3))).take(1).map(known), verbose=0).history["loss"][0])


@pytest.mark.slow
@pytest.mark.parametrize("chunk_size", [None, 2])
def test_batch_normalization_uses_the_statistics_of_all_rows(
    two_devices: tf.distribute.Strategy, chunk_size: int | None
) -> None:
    def make() -> DualEncoder:
        # Layers draw the seeds of their weights when they are made.
        keras.utils.set_random_seed(3)
        image = keras.Sequential([keras.layers.BatchNormalization(momentum=0.5), keras.layers.Dense(DIM)])
        return model_of(InfoNCE(0.3), image_encoder=image, chunk_size=chunk_size)

    one, two = (trained(strategy, batches("ids"), make) for strategy in (None, two_devices))
    if chunk_size is None:
        check_close(one, two)
    assert all(np.isfinite(values).all() for values in two.values())


@pytest.mark.slow
def test_mixed_precision(two_devices: tf.distribute.Strategy) -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        one, two = (
            trained(strategy, batches("ids"), lambda: model_of(InfoNCE(0.3))) for strategy in (None, two_devices)
        )
    finally:
        keras.config.set_dtype_policy("float32")
    # bfloat16 has eight bits, and sums run in another order.
    check_close(one, two, 1e-2)


def test_accumulated_gradients_are_refused_under_a_strategy(two_devices: tf.distribute.Strategy) -> None:
    with two_devices.scope():
        model = model_of(InfoNCE(0.3))
        model.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), loss=InfoNCE(0.3))
    with raises_argument("gradient_accumulation_steps"):
        model.fit(dataset(batches("ids")), verbose=0)


def test_several_steps_per_execution_are_refused_under_a_strategy(two_devices: tf.distribute.Strategy) -> None:
    with two_devices.scope():
        model = model_of(InfoNCE(0.3))
        model.compile("sgd", loss=InfoNCE(0.3), steps_per_execution=2)
    for method in (model.fit, model.evaluate):
        with raises_argument("steps_per_execution"):
            method(dataset(batches("ids")), verbose=0)

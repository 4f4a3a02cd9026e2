"""Models for two replicas, which must do what one device does: trained in graph, against one device run eagerly."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from vsemb import registry
from vsemb.encoders import ImageEncoder, LinearSentenceEncoder, PixelEncoder, WordEmbedding
from vsemb.losses import InBatchLoss, InfoNCE, PairwiseRanking, SigmoidLoss
from vsemb.models import DualEncoder, LogitScale
from vsemb.similarities import Dot

if TYPE_CHECKING:
    import tensorflow as tf

ROWS, STEPS, WORDS, DIM = 8, 3, 9, 4


def batches(sampled: bool = False, classes: bool = False) -> dict[str, np.ndarray]:
    """Three batches, one behind the other; images repeat within a replica and across the two."""
    generator = np.random.default_rng(0)
    pictures = generator.normal(size=(6, 5)).astype(np.float32)
    count = STEPS * ROWS
    rows = np.tile([0, 1, 0, 2, 3, 0, 4, 3], STEPS)

    def some(name: str, rows: np.ndarray) -> dict[str, np.ndarray]:
        return {
            f"{name}image": pictures[rows],
            f"{name}image_id": rows + 2**24 - 2,
            f"{name}text": generator.integers(1, WORDS, (count, 3)).astype(np.int32),
        }

    result = some("", rows)
    if classes:
        # Classes have images on both replicas.
        result["class_id"] = (rows + 2**24 - 2) // 2
    if sampled:
        other = some("negative_", generator.integers(6, size=count))
        # The sampled texts show other images than the sampled images.
        other["negative_text_id"] = generator.integers(6, size=count) + 2**24 - 2
        result |= other
    return result


#: A model, compiled, and its rows. A model with metrics is evaluated, too.
Case = tuple[keras.Model, Any]


def dual_encoder(
    loss: InBatchLoss,
    rows: dict[str, np.ndarray],
    *,
    optimizer: Callable[[], keras.optimizers.Optimizer] = lambda: keras.optimizers.SGD(0.05),
    scale: LogitScale | None = None,
    kernel_l2: float = 0.0,
    metrics: list[str] | None = None,
    **options: Any,
) -> Case:
    """A dual encoder, built and compiled, and its rows."""
    keras.utils.set_random_seed(3)
    words = WordEmbedding(WORDS, DIM, init_scale=1.0)
    options = {"image_weight": 0.7, **options}
    model = DualEncoder(ImageEncoder(DIM), LinearSentenceEncoder(words), logit_scale=scale, **options)
    model.build({"image": (None, 5), "text": (None, None)})
    if kernel_l2:
        model.image_encoder.affine.kernel.regularizer = keras.regularizers.L2(kernel_l2)
    model.compile(optimizer(), loss=loss, metrics=metrics, jit_compile=False)
    return model, rows


def clipped() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.05, momentum=0.9, global_clipnorm=1.0)


def rising_momentum() -> keras.optimizers.Optimizer:
    if "rising-momentum-sgd" not in registry.kinds("optimizer"):  # Of a system, where it is there.
        return keras.optimizers.SGD(0.05)
    part = registry.find_part("optimizer", "rising-momentum-sgd", "optimizer")
    return part(learning_rate=0.05, momentum=0.9, momentum_start=0.2, momentum_steps=3.0).build(1, 1)


class Lopsided(Dot):
    """A similarity that changes when images and texts do, and takes no compiler as the order does."""

    def scores(self, images: Any, texts: Any) -> Any:
        return super().scores(images, keras.ops.roll(texts, 1, axis=-1))


def ranking(negatives: str = "all") -> PairwiseRanking:
    return PairwiseRanking(0.3, negatives)


def with_penalties() -> Case:
    """A case of the batch's own negatives, and of all that is added up or clipped once and not once a replica."""
    options = {"l2": 0.3, "kernel_l2": 0.5, "metrics": ["accuracy"]}
    return dual_encoder(InfoNCE(), batches(), optimizer=clipped, scale=LogitScale(5.0), **options)


#: Name of a case -> makes a model, compiled, and its rows.
REPLICAS: dict[str, Callable[[], Case]] = {
    "infonce": with_penalties,
    "hardest-sampled": lambda: dual_encoder(
        ranking("hardest"), batches(sampled=True), optimizer=rising_momentum, similarity=Lopsided()
    ),
}

# Of a replica's four rows a chunk takes three and leaves one.
SIZES = {"chunk_size": 3, "block_size": 3}


def in_chunks(make_loss: Callable[[], InBatchLoss], rows: dict[str, np.ndarray], **options: Any) -> Case:
    """A dual encoder with a bias and a penalty; `options` are those of two replicas."""
    model_options = {"scale": LogitScale(5.0, bias=-2.0), "l2": 0.1, **options}
    return dual_encoder(make_loss(), rows, optimizer=lambda: keras.optimizers.SGD(0.05, momentum=0.5), **model_options)


#: Name -> (makes a case with the options of what computes in chunks, those options).
CHUNKS: dict[str, tuple[Callable[..., Case], dict[str, int]]] = {
    "infonce-sampled": (functools.partial(in_chunks, lambda: InfoNCE(0.3), batches(sampled=True)), {"block_size": 3}),
    "sigmoid-sampled": (functools.partial(in_chunks, lambda: SigmoidLoss(0.5), batches(sampled=True)), SIZES),
}
#: More of them, for which there is time when all tests run; these are evaluated, too.
MORE_CHUNKS: dict[str, tuple[Callable[..., Case], dict[str, int]]] = {
    name: (functools.partial(in_chunks, loss, batches(sampled), metrics=["accuracy"]), SIZES)
    for name, loss, sampled in (
        ("infonce", lambda: InfoNCE(0.3), False),
        ("hardest", lambda: ranking("hardest"), True),
        ("sigmoid", SigmoidLoss, False),
    )
}


def with_everything_random() -> Case:
    """A dual encoder with dropout on both sides and statistics of batches, in chunks."""
    keras.utils.set_random_seed(3)
    pixels = keras.Input((1, 1, 5))
    outputs = keras.layers.BatchNormalization(momentum=0.5)(keras.layers.Flatten()(pixels))
    encoder = ImageEncoder(DIM, dropout=0.3)
    images = PixelEncoder(keras.Model(pixels, outputs), encoder, frozen_statistics=False)
    words = WordEmbedding(WORDS, DIM, init_scale=1.0, dropout=0.3)
    model = DualEncoder(images, LinearSentenceEncoder(words), chunk_size=3)
    model.build({"image": (None, 1, 1, 5), "text": (None, None)})
    model.compile("sgd", loss=SigmoidLoss(1.0), jit_compile=False)
    rows = batches()
    return model, rows | {"image": rows["image"][:, None, None, :]}


#: What is found -> numbers: losses and metrics by name, and the weights.
Found = dict[str, np.ndarray]


def run(case: Callable[[], Case], strategy: tf.distribute.Strategy | None = None) -> Found:
    """Trains a case for three steps, in a graph under a strategy, and eagerly on one device."""
    import tensorflow as tf  # The cases serve other backends, too.

    with strategy.scope() if strategy else contextlib.nullcontext():
        model, rows = case()
        model.run_eagerly = strategy is None
        data = tf.data.Dataset.from_tensor_slices(rows).batch(ROWS, drop_remainder=True)
        evaluated = None if model._compile_metrics is None else data
        history = model.fit(data, validation_data=evaluated, shuffle=False, verbose=0).history
    weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
    return {"weights": weights} | {name: np.array(values) for name, values in history.items()}


#: Case -> what one device found, and two.
Results = dict[str, tuple[Found, Found]]


def check_same(results: Results, case: str) -> None:
    """Checks that two devices found what one did."""
    one, two = results[case]
    assert set(one) == set(two) >= {"weights", "loss"}
    for name, expected in one.items():
        # The sums run in another order; three SGD steps of float32 keep five digits.
        np.testing.assert_allclose(two[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


def check_different(results: Results) -> None:
    """Checks that every case has its own gradients."""
    assert len({one["weights"].tobytes() for one, _ in results.values()}) == len(results)


def cases_of(modules: list[str], name: str) -> dict[str, Any]:
    """Joins the dictionaries of that name in modules."""
    return {key: case for each in modules for key, case in getattr(import_module(each), name, {}).items()}

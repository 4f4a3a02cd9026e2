"""Gradient caching: a batch in chunks gives the loss, gradients and statistics of the whole."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from vsemb import losses, registry
from vsemb.encoders import (
    ImageEncoder,
    LinearSentenceEncoder,
    PixelEncoder,
    RecurrentSentenceEncoder,
    WordEmbedding,
)
from vsemb.errors import InvalidArgumentError, VsembError
from vsemb.losses import CombinedLoss, InfoNCE, PairwiseRanking, SigmoidLoss
from vsemb.models import DualEncoder, LogitScale

ROWS, WORDS, DIM = 7, 9, 4

# The same products, added up chunk by chunk instead of at once: float32 errs by 6e-8 a sum, and gradients
# that cancel keep five digits of their largest terms.
CHUNKED = {"rtol": 1e-4, "atol": 2e-6}

#: Makes the loss, kind of batch, arguments of the model.
Case = tuple[Callable[[], Any], str, dict[str, Any]]

CASES: dict[str, Case] = {
    "ranking-hardest": (lambda: PairwiseRanking(0.3, "hardest"), "", {"image_weight": 0.3, "l2": 0.2}),
    "ranking-sampled": (lambda: PairwiseRanking(0.3), "sampled", {"similarity": "order"}),
    "ranking-texts": (lambda: PairwiseRanking(0.3), "texts", {"text_weight": 0.0}),
    "infonce": (InfoNCE, "", {"logit_scale": 5.0}),
    "recurrent": (InfoNCE, "", {"texts": functools.partial(RecurrentSentenceEncoder, units=5)}),
    "infonce-sampled": (lambda: InfoNCE(0.2, 0.1), "sampled", {"logit_scale": 2.0, "text_weight": 0.4}),
    "infonce-classes": (lambda: InfoNCE(0.2), "classes", {}),
    "combined": (lambda: CombinedLoss([PairwiseRanking(), InfoNCE(0.3)], [1.0, 0.5]), "", {}),
    "sigmoid": (SigmoidLoss, "", {"logit_scale": (8.0, -2.0)}),
    "sigmoid-sampled": (lambda: SigmoidLoss(0.3, -1.0), "sampled", {"image_weight": 0.6}),
}


def make_model(name: str | Case, **changes: Any) -> DualEncoder:
    """A model with every kind of dropout, compiled with the case's loss."""
    keras.utils.set_random_seed(1)
    loss, kind, options = CASES[name] if isinstance(name, str) else name
    options = {**options, **changes}
    scale = options.pop("logit_scale", None)
    if scale is not None:
        initial, bias = scale if isinstance(scale, tuple) else (scale, None)
        options["logit_scale"] = LogitScale(initial, bias=bias)
    dtype = options.pop("dtype", "float32")
    drop = options.pop("dropout", 0.3)
    words = WordEmbedding(WORDS, DIM, init_scale=1.0, word_dropout=drop, dropout=drop, dtype=dtype)
    # Encoders of a system's cases are made from these.
    make_images = options.pop("images", ImageEncoder)
    make_texts = options.pop("texts", lambda words, dim, **given: LinearSentenceEncoder(words, dtype=given["dtype"]))
    images = make_images(DIM, dropout=drop, dtype=dtype)
    model = DualEncoder(images, make_texts(words, DIM, dropout=drop, dtype=dtype), **options)
    model.build({"image": (None, None, 6) if kind.startswith("sets") else (None, 6), "text": (None, None)})
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss=loss(), jit_compile=False)
    return model


def make_batch(kind: str, rows: int = ROWS, seed: int = 0) -> dict[str, np.ndarray]:
    """Images repeat; sampled negatives are five, and have other regions and steps than the batch."""
    generator = np.random.default_rng(seed)

    def some(count: int, regions: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        shape = (count, regions, 6) if kind.startswith("sets") else (count, 6)
        images = generator.normal(size=shape).astype(np.float32)
        texts = generator.integers(1, WORDS, (count, steps)).astype(np.int32)
        texts[1, 1:] = 0
        return images, texts

    images, texts = some(rows, 3, 4)
    ids = np.arange(rows) % (rows - 1)
    batch = {"image": images[ids], "text": texts, "image_id": ids.astype(np.int64) + 2**24}
    if kind == "texts":
        batch |= {"image": images, "image_id": np.arange(rows), "text_image_id": np.arange(rows)[::-1] // 2}
        batch["text"] = np.concatenate([texts, texts[::-1]])
        batch["text_image_id"] = np.repeat(batch["text_image_id"], 2)
    if kind.endswith("sampled"):
        images, texts = some(5, 2, 6)
        batch |= {"negative_image": images, "negative_image_id": np.arange(5) + 2**24}
        batch |= {"negative_text": texts, "negative_text_id": np.arange(5)[::-1] + 2**24}
    if kind == "classes":
        batch["class_id"] = np.array([0, 1, 0, 2, 3, 2, 0])[:rows]
    return batch


def in_chunks_by_hand(model: DualEncoder, batch: dict[str, Any], size: int) -> dict[str, Any]:
    """What `call` returns in training, from one plain call of an encoder a chunk, all under one tape."""
    outputs = {}
    for side in ("image", "text"):
        encode = model.encode_images if side == "image" else model.encode_texts
        for name in (side, f"negative_{side}"):
            if name in batch:
                rows = batch[name]
                parts = [encode(rows[k : k + size], training=True) for k in range(0, len(rows), size)]
                outputs[name] = tf.concat(parts, axis=0)
    return outputs


def loss_and_gradients(
    model: DualEncoder, batch: dict[str, np.ndarray], forward: Any, graph: bool = False
) -> list[np.ndarray]:
    """The loss and the gradient of every weight; in a graph, for any number of rows."""

    def step(tensors: dict[str, Any]) -> Any:
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x=tensors, y_pred=forward(tensors))
        variables = [variable.value for variable in model.trainable_variables]
        return loss, [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]

    if graph:
        unknown = {name: tf.TensorSpec((None, *value.shape[1:]), value.dtype) for name, value in batch.items()}
        step = tf.function(step, input_signature=[unknown], autograph=False)
    loss, gradients = step({name: tf.constant(value) for name, value in batch.items()})
    return [loss.numpy(), *(gradient.numpy() for gradient in gradients)]


def state_of(model: DualEncoder) -> list[np.ndarray]:
    return [keras.ops.convert_to_numpy(variable) for variable in model.non_trainable_variables]


def check_same(results: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(results) == len(expected)
    for number, (one, other) in enumerate(zip(results, expected, strict=True)):
        # Gradients that cancel are compared with the largest entry of their weight.
        scale = {"rtol": CHUNKED["rtol"], "atol": CHUNKED["atol"] * max(1.0, np.abs(other).max())}
        np.testing.assert_allclose(one, other, **scale, err_msg=str(number))


def check_chunks(case: Case, graph: bool = False) -> None:
    """Checks that a step in chunks of three has the gradients, and leaves the seeds, of one call a chunk."""
    batch = make_batch(case[1])
    whole = make_model(case)
    expected = loss_and_gradients(whole, batch, lambda x: in_chunks_by_hand(whole, x, 3))
    model = make_model(case, chunk_size=3)
    before = state_of(model)
    in_chunks = loss_and_gradients(model, batch, lambda x: model(x, training=True), graph)
    check_same(in_chunks, expected)
    assert all(np.abs(gradient).max() > 0 for gradient in expected)
    # Seeds have moved on as far.
    for one, other in zip(state_of(model), state_of(whole), strict=True):
        np.testing.assert_array_equal(one, other)
    assert any((a != b).any() for a, b in zip(state_of(model), before, strict=True))


def check_fit_with_chunks(case: Case) -> None:
    """Checks that training in chunks, in graph, is training without."""
    plain = fitted(make_model(case, dropout=0.0), case[1], eager=True)
    chunked = fitted(make_model(case, dropout=0.0, chunk_size=3), case[1])
    assert plain[0][1] < plain[0][0]
    np.testing.assert_allclose(chunked[0], plain[0], rtol=1e-4)
    for one, other in zip(chunked[1], plain[1], strict=True):
        # Four steps of momentum carry the roundings on.
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_every_loss_has_a_case() -> None:
    of_cases = {type(loss()) for loss, _, _ in CASES.values()}
    assert of_cases == {type(losses.get(kind)) for kind in registry.BASE.parts["loss"]}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_chunks_give_the_gradients_of_the_whole_batch(case: Case) -> None:
    check_chunks(case)


def test_in_a_graph_chunks_give_the_same_gradients() -> None:
    check_chunks(CASES["recurrent"], graph=True)


def test_without_dropout_any_chunk_size_equals_the_plain_step() -> None:
    batch = make_batch("")
    expected, *others = (
        loss_and_gradients(model, batch, lambda x, model=model: model(x, training=True))
        for model in (make_model("infonce", dropout=0.0, chunk_size=size) for size in (None, 1, 2, ROWS, 50))
    )
    for each in others:
        check_same(each, expected)


def test_dropout_draws_other_masks_for_every_chunk_and_step() -> None:
    model = make_model("infonce", chunk_size=3)
    batch = make_batch("")
    batch["image"][:] = batch["image"][:1]
    first, second = (model({"image": batch["image"]}, training=True)["image"].numpy() for _ in range(2))
    assert len(np.unique(first, axis=0)) > 3
    assert not np.allclose(first, second)
    # Outside training nothing is dropped, and nothing cut into chunks.
    plain = model({"image": batch["image"]})["image"].numpy()
    np.testing.assert_allclose(plain, np.repeat(plain[:1], ROWS, axis=0), rtol=1e-6)


def fitted(
    model: DualEncoder, kind: str = "", batches: int = 2, eager: bool = False
) -> tuple[list[float], list[np.ndarray]]:
    model.run_eagerly = eager
    rows = [make_batch(kind, 8 if number % 2 else ROWS, number) for number in range(batches)]
    signature = {name: tf.TensorSpec((None, *each.shape[1:]), each.dtype) for name, each in rows[0].items()}
    data = tf.data.Dataset.from_generator(lambda: iter(rows), output_signature=signature)
    # Else Keras warns at the end of each epoch that the data have run out.
    data = data.apply(tf.data.experimental.assert_cardinality(batches))
    history = model.fit(data, epochs=2, shuffle=False, verbose=0)
    return history.history["loss"], model.get_weights()


def test_fit_with_chunks_equals_fit_without() -> None:
    check_fit_with_chunks(CASES["ranking-hardest"])


def test_adam_sees_the_dense_gradient_of_words() -> None:
    weights = []
    for size in (None, 3):
        model = make_model("infonce", dropout=0.0, chunk_size=size)
        model.text_encoder.words.dense_gradient = True
        model.compile(keras.optimizers.Adam(0.01), loss=InfoNCE(), jit_compile=False)
        weights.append(fitted(model, eager=True)[1])
    for one, other in zip(*weights, strict=True):
        # Adam divides by gradients, so that where they nearly vanish a step keeps few digits.
        np.testing.assert_allclose(one, other, rtol=1e-2, atol=1e-3)


def test_mixed_precision() -> None:
    losses = [
        fitted(make_model("infonce", dropout=0.0, chunk_size=size, dtype="mixed_bfloat16"), eager=True)[0]
        for size in (None, 3)
    ]
    # bfloat16 has 8 bits; products of chunks and of the whole round apart.
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-2)


def test_float16_with_loss_scaling() -> None:
    model = make_model("infonce", dropout=0.0, chunk_size=3)
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, momentum=0.9), initial_scale=1024.0)
    model.compile(scaled, loss=InfoNCE(), jit_compile=False)
    plain = make_model("infonce", dropout=0.0)
    for one, other in zip(fitted(model, eager=True)[1], fitted(plain, eager=True)[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def with_batch_normalization(**options: Any) -> DualEncoder:
    keras.utils.set_random_seed(2)
    inputs = keras.Input((2, 2, 3))
    outputs = keras.layers.BatchNormalization(momentum=0.5)(keras.layers.Flatten()(inputs))
    images = PixelEncoder(keras.Model(inputs, outputs), ImageEncoder(DIM), frozen_statistics=False)
    texts = LinearSentenceEncoder(WordEmbedding(WORDS, DIM))
    model = DualEncoder(images, texts, **options)
    model.build({"image": (None, 2, 2, 3), "text": (None, None)})
    model.compile("sgd", loss=InfoNCE(), jit_compile=False)
    return model


def test_statistics_are_updated_once_a_chunk() -> None:
    batch = make_batch("")
    batch["image"] = np.random.default_rng(1).normal(size=(ROWS, 2, 2, 3)).astype(np.float32)
    whole, model = with_batch_normalization(), with_batch_normalization(chunk_size=3)
    expected = loss_and_gradients(whole, batch, lambda x: in_chunks_by_hand(whole, x, 3))
    results = loss_and_gradients(model, batch, lambda x: model(x, training=True), graph=True)
    check_same(results, expected)
    for one, other in zip(state_of(model), state_of(whole), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    mean = next(v for v in model.image_encoder.non_trainable_variables if v.path.endswith("moving_mean"))
    by_hand = np.zeros(12)
    for k in range(0, ROWS, 3):
        by_hand = 0.5 * by_hand + 0.5 * batch["image"][k : k + 3].reshape(-1, 12).mean(axis=0)
    np.testing.assert_allclose(mean.numpy(), by_hand, rtol=1e-4, atol=1e-6)


def test_an_encoder_without_trained_weights() -> None:
    model = make_model("infonce", chunk_size=3)
    model.text_encoder.trainable = False
    batch = make_batch("")
    gradients = loss_and_gradients(model, batch, lambda x: model(x, training=True))
    assert len(gradients) == 1 + len(model.image_encoder.trainable_variables) + 1


def test_losses_that_an_encoder_adds_are_refused() -> None:
    model = make_model("infonce", chunk_size=3)
    model.image_encoder.affine.activity_regularizer = keras.regularizers.L2(0.1)
    with pytest.raises(VsembError):
        model(make_batch(""), training=True)


def test_regularisers_of_weights_are_counted_once() -> None:
    losses = []
    for size in (None, 3):
        model = make_model("infonce", dropout=0.0, chunk_size=size)
        model.image_encoder.affine.kernel.regularizer = keras.regularizers.L2(0.5)
        tensors = {name: tf.constant(value) for name, value in make_batch("").items()}
        losses.append(float(model.compute_loss(x=tensors, y_pred=model(tensors, training=True))))
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


@pytest.mark.parametrize("name", ["chunk_size", "block_size"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, float("nan")])
def test_bad_sizes(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=name):
        make_model("ranking-hardest", **{name: value})


def test_sizes_are_kept() -> None:
    config = make_model("ranking-hardest", chunk_size=3, block_size=2).get_config()
    again = DualEncoder.from_config(config)
    assert (again.chunk_size, again.block_size) == (3, 2)

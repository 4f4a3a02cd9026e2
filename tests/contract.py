"""The one checker that every layer, loss, similarity and model passes.

A new layer's test is

    def make(dtype="float32"):
        return MyLayer(dim=4, dtype=dtype)

    def test_contract(tmp_path):
        check_layer(make, [features], tmp_path)

and, where it reads token ids, `check_padding(make(), token_ids)`.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

#: Eager, compiled and reloaded calls run the same float32 operations in another order at most.
SAME = {"rtol": 1e-5, "atol": 1e-6}

#: bfloat16 has 8 bits of mantissa, 2**-8 = 0.4 % a step; a few layers of it stay within 5 %.
BFLOAT16 = {"rtol": 0.05, "atol": 0.05}

LAYER_ARGUMENTS = {"name", "trainable", "dtype"}


def constructor_arguments(cls: type) -> set[str]:
    """Returns the names of a constructor's arguments, with those that its `**kwargs` hands on to a base of ours."""
    names: set[str] = set()
    for owner in cls.__mro__:
        if "__init__" not in vars(owner) or owner.__module__.startswith("keras"):
            continue
        parameters = list(inspect.signature(owner.__init__).parameters.values())[1:]
        named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        names |= {p.name for p in named if not names or p.default is not p.empty}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return names


def check_config(instance: Any) -> Any:
    """Checks that the config is the constructor's arguments, no more and no less, and rebuilds from it."""
    cls, config = type(instance), instance.get_config()
    expected = constructor_arguments(cls) if cls.__init__ is not object.__init__ else set()
    if isinstance(instance, keras.layers.Layer):
        expected |= LAYER_ARGUMENTS
    assert set(config) == expected
    for name in constructor_arguments(cls) if expected else ():
        assert hasattr(instance, name), f"no attribute for the constructor's argument {name}"
    # As it is after a trip through a file.
    stored = json.loads(json.dumps(keras.saving.serialize_keras_object(instance)))
    rebuilt = keras.saving.deserialize_keras_object(copy.deepcopy(stored))
    assert type(rebuilt) is cls
    assert _without_shapes(keras.saving.serialize_keras_object(rebuilt)) == _without_shapes(stored)
    for _ in range(2):  # Rebuilding leaves the config as it was.
        assert type(cls.from_config(config)) is cls
    return rebuilt


def _without_shapes(serialized: Any) -> Any:
    """A serialized object without what it was built for, tuples as lists."""
    if isinstance(serialized, dict):
        return {k: _without_shapes(v) for k, v in serialized.items() if k != "build_config"}
    return [_without_shapes(v) for v in serialized] if isinstance(serialized, (list, tuple)) else serialized


def check_layer(
    make: Callable[..., keras.layers.Layer],
    inputs: Sequence[np.ndarray],
    tmp_path: Path,
    *,
    sequence: bool = False,
) -> np.ndarray:
    """Checks one layer in every way that it is used.

    Args:
        make: makes the layer; takes `dtype`, a name of a dtype policy.
        inputs: the arrays of a call, the batch first.
        tmp_path: where the saved model goes.
        sequence: whether axis 1 is time, of any length.

    Returns:
        The layer's output, float32.
    """
    layer = make()
    expected = keras.ops.convert_to_numpy(layer(*inputs))
    assert expected.dtype == np.float32
    check_config(layer)
    shapes = [x.shape for x in inputs]
    assert tuple(layer.compute_output_shape(*shapes)) == expected.shape

    # The shapes of one row, time of any length.
    variable = [(None, *x.shape[2:]) if sequence else x.shape[1:] for x in inputs]
    symbols = [keras.Input(s, dtype=str(x.dtype)) for s, x in zip(variable, inputs, strict=True)]
    output = layer(*symbols)
    assert output.shape == tuple(layer.compute_output_shape(*((None, *shape) for shape in variable)))
    model = keras.Model(symbols, output)
    np.testing.assert_allclose(model(list(inputs)), expected, **SAME)

    model.save(tmp_path / "layer.keras")
    reloaded = keras.saving.load_model(tmp_path / "layer.keras")
    np.testing.assert_allclose(reloaded(list(inputs)), expected, **SAME)

    _check_bfloat16(make, layer, inputs, expected)
    _check_gradients(layer, inputs)
    return expected


def _check_bfloat16(make: Any, layer: Any, inputs: Any, expected: np.ndarray) -> None:
    mixed = make(dtype="mixed_bfloat16")
    mixed(*inputs)
    mixed.set_weights(layer.get_weights())
    output = mixed(*inputs)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    assert all(v.dtype == "float32" for v in mixed.weights)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(output).astype(np.float32), expected, **BFLOAT16)


def _check_gradients(layer: Any, inputs: Any) -> None:
    import tensorflow as tf

    with tf.GradientTape() as tape:
        total = tf.reduce_sum(layer(*inputs, **_training(layer)) ** 2)
    gradients = tape.gradient(total, [v.value for v in layer.trainable_variables])
    for variable, gradient in zip(layer.trainable_variables, gradients, strict=True):
        assert gradient is not None, f"{variable.path} gets no gradient"
        assert np.isfinite(tf.convert_to_tensor(gradient).numpy()).all(), variable.path


def _training(layer: Any) -> dict[str, bool]:
    return {"training": True} if "training" in inspect.signature(layer.call).parameters else {}


def check_padding(layer: keras.layers.Layer, token_ids: np.ndarray, pad: int = 3) -> None:
    """Checks that padding changes nothing: more of it, none of it, and a row without any word.

    Args:
        layer: from token ids to one vector a row.
        token_ids: (batch, steps) int, rows of different lengths, padded with 0 on the right; or (batch, steps, n).
        pad: how many columns of padding are added.
    """
    expected = keras.ops.convert_to_numpy(layer(token_ids))
    inner = token_ids.shape[2:]
    wider = keras.ops.convert_to_numpy(layer(np.pad(token_ids, [(0, 0), (0, pad), *[(0, 0)] * len(inner)])))
    np.testing.assert_allclose(wider, expected, **SAME)
    for row, ids in enumerate(token_ids):
        words = ids.reshape(len(ids), -1).any(axis=1)
        alone = keras.ops.convert_to_numpy(layer(ids[words][None]))
        np.testing.assert_allclose(alone[0], expected[row], **SAME)
    nothing = keras.ops.convert_to_numpy(layer(np.zeros((2, pad, *inner), token_ids.dtype)))
    assert np.isfinite(nothing).all()


def check_similarity(similarity: Any, images: np.ndarray, texts: np.ndarray) -> None:
    """Checks a similarity: config, geometry, pairs, and that blocks score as the whole.

    Args:
        similarity: the similarity.
        images: random encoder outputs of images, rows first.
        texts: the same of texts.
    """
    import tensorflow as tf

    check_config(similarity)
    normalized = similarity.normalize(tf.cast(images, tf.bfloat16))
    assert normalized.dtype == tf.float32
    # In the similarity's own geometry already: a second time changes nothing.
    np.testing.assert_allclose(similarity.normalize(normalized), normalized, rtol=1e-6)
    images, texts = similarity.normalize(images), similarity.normalize(texts)
    whole = similarity.scores(images, texts)
    assert whole.shape == (len(images), len(texts)) and whole.dtype == tf.float32
    pairs = similarity.pair_scores(images[:, None], texts[None])
    np.testing.assert_allclose(pairs, whole, rtol=1e-5, atol=1e-6)
    for size in (1, 3, len(images)):
        blocks = [similarity.scores(images[i : i + size], texts) for i in range(0, len(images), size)]
        np.testing.assert_allclose(tf.concat(blocks, 0), whole, rtol=1e-5, atol=1e-6)


def check_loss(loss: keras.losses.Loss, labels: np.ndarray, mask: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Checks a loss over a batch: config, one finite value a query, dtypes, symbolic and compiled calls, the mask.

    Args:
        loss: the loss.
        labels: (queries, candidates), one 1 a row.
        mask: (queries, candidates) bool, false for some that are no query's own.
        scores: (queries, candidates) of any float type.

    Returns:
        (queries,) float32, the value of each query.
    """
    import tensorflow as tf

    rebuilt, scores = check_config(loss), scores.astype(np.float32)
    rows = keras.ops.convert_to_numpy(loss.call(labels, scores, mask))
    assert rows.shape == (len(labels),)
    assert np.isfinite(rows).all()
    total = rows.sum() if loss.reduction == "sum" else rows.mean()
    np.testing.assert_allclose(float(loss(labels, scores, mask)), total, **SAME)
    np.testing.assert_allclose(float(rebuilt(labels, scores, mask)), total, **SAME)
    unknown = [tf.TensorSpec([None, None], dtype) for dtype in (tf.int32, tf.float32, tf.bool)]
    symbolic = tf.function(lambda *given: loss(*given), autograph=False, input_signature=unknown)
    np.testing.assert_allclose(float(symbolic(labels, scores, mask)), total, **SAME)
    low = loss(labels, tf.cast(scores, tf.bfloat16), mask)
    assert low.dtype == tf.float32
    # A candidate to ignore counts for nothing, whatever its score, and gets no gradient.
    assert not mask.all()
    changed = tf.constant(np.where(mask, scores, 1e4).astype(np.float32))
    with tf.GradientTape() as tape:
        tape.watch(changed)
        value = loss(labels, changed, mask)
    np.testing.assert_allclose(float(value), total, **SAME)
    gradient = tape.gradient(value, changed).numpy()
    assert np.isfinite(gradient).all() and not gradient[~mask].any()
    # No mask is one that lets all count.
    everything = np.ones_like(mask)
    np.testing.assert_allclose(float(loss(labels, scores)), float(loss(labels, scores, everything)), **SAME)
    return rows

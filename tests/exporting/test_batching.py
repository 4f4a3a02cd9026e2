"""What TensorFlow Serving's batching does to requests, and that no row notices it.

It concatenates the inputs of several requests along their 0th dimension, pads the batch with copies of a row
up to an allowed size, and splits the outputs along their 0th dimension.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from vsemb.encoders import ImageEncoder, RecurrentSentenceEncoder, WordEmbedding
from vsemb.exporting import ServedModel
from vsemb.exporting.reference_outputs import compare, golden_images, golden_k, golden_texts
from vsemb.models import DualEncoder
from vsemb.text import CharacterTokenizer


def characters() -> ServedModel:
    tokenizer = CharacterTokenizer()
    words = WordEmbedding(len(tokenizer.vocabulary), 8)
    encoder = RecurrentSentenceEncoder(words, 6, units=4, pooling="mean")
    model = DualEncoder(ImageEncoder(6), encoder, "dot")
    model.build({"image": (None, 8), "text": (None, None)})
    return ServedModel(model, tokenizer)


@pytest.fixture(scope="module", params=["features", "everything", "characters", "order"])
def served(request) -> ServedModel:
    if request.param == "characters":
        return characters()
    if request.param == "everything":
        return request.getfixturevalue("served_everything")
    run = request.getfixturevalue("tiny_run")
    if request.param == "features":
        return run.encoders()
    # The same weights in the geometry of an order, whose scores are no inner products.
    model = DualEncoder(run.model.image_encoder, run.model.text_encoder, "order")
    return ServedModel(model, run.tokenizer)


def inputs_of(name: str, served: ServedModel) -> dict[str, np.ndarray]:
    if name == "describe":
        return {"fact": np.array([b"similarity", b"unknown", b"", b"similarity"], object)}
    texts = name in ("serving_default", "encode_text", "search_text")
    rows = golden_texts(served.tokenizer) if texts else golden_images()
    found = {"text" if texts else "image_bytes": np.array(rows, object)}
    if name.startswith("search"):
        found["k"] = golden_k(len(rows))
    return found


def call(function, inputs):
    tensors = {name: tf.constant(values.tolist() or [], function_dtype(name)) for name, values in inputs.items()}
    return {name: value.numpy() for name, value in function(**tensors).items()}


def function_dtype(name):
    return tf.int32 if name == "k" else tf.string


@pytest.mark.slow
def test_the_batch_is_the_0th_dimension_and_requests_may_be_joined_and_padded(served):
    for name, function in served.signatures.items():
        specs = tf.nest.flatten([function.structured_input_signature, function.structured_outputs])
        assert {spec.shape[0] for spec in specs} == {None} and len(specs) >= 3
        inputs = inputs_of(name, served)
        rows = len(next(iter(inputs.values())))
        parts = [slice(0, 2), slice(2, 3), slice(3, rows)]
        ties = next((it.ties for it in served.offered if it.name == name), None)
        joined = call(function, inputs)
        padded = call(function, {key: np.append(values, [values[0]] * 7) for key, values in inputs.items()})
        assert all(len(values) == rows + 7 for values in padded.values())
        assert compare(joined, {key: values[:rows] for key, values in padded.items()}, 1e-5, ties=ties)[1] is None
        for rows_of_one in parts:
            alone = call(function, {key: values[rows_of_one] for key, values in inputs.items()})
            split = {key: values[rows_of_one] for key, values in joined.items()}
            assert compare(split, alone, 1e-5, ties=ties)[1] is None, (name, rows_of_one)
        assert joined["valid"].any() and not joined["valid"].all()


def test_ten_megabytes_are_their_first_four_kilobytes(served):
    long = b"a red circle " * 800_000
    assert len(long) > 10_000_000
    rows = [b"a dog", long, b"two shapes", long[:4096], b"caf\xc3"]
    together = call(served.encode_text.get_concrete_function(), {"text": np.array(rows, object)})
    alone = call(served.encode_text.get_concrete_function(), {"text": np.array(rows[::2], object)})
    # The last has known characters and no known word.
    assert together["valid"][:4].all()
    np.testing.assert_array_equal(together["embedding"][1], together["embedding"][3])
    np.testing.assert_allclose(together["embedding"][::2], alone["embedding"], atol=1e-5)

"""Folded words: a SavedModel with tables of products embeds as the Keras model does, up to a size."""

from __future__ import annotations

import contextlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from vsemb.encoders import ImageEncoder, LinearSentenceEncoder, WordEmbedding
from vsemb.encoders.ensemble import Ensemble
from vsemb.encoders.recurrent import Recurrent, RecurrentSentenceEncoder
from vsemb.encoders.sequence_and_bag import SequenceAndBag
from vsemb.encoders.text_encoder import TextSpec, WordVectors
from vsemb.exporting import ServedModel, folding
from vsemb.exporting.card import version_card_path
from vsemb.exporting.folding import folded_words
from vsemb.exporting.savedmodel import write
from vsemb.models import DualEncoder
from vsemb.text import Vocabulary, WordTokenizer

TEXTS = tf.constant(["a dog runs", "", "cat", "a cat runs a dog unheard a dog"])
WORDS = ["a", "dog", "cat", "runs"]
# Rows of a table: the words, padding and the unknown word.
ROWS = len(WORDS) + 2

BOTH = SequenceAndBag(sequence=Recurrent(words=WordVectors(dim=5), units=4, directions="concat", pooling="mean"))
# Encoder -> its tables, each of 3 gates x 4 units.
PARTS = {
    "bag": (BOTH, 2),
    "ensemble": (Ensemble(encoder=BOTH, members=2), 4),
    "alone": (Recurrent(words=WordVectors(dim=5), units=4), 1),
}


def served(encoder: keras.layers.Layer, dtype: str = "float32") -> ServedModel:
    model = DualEncoder(ImageEncoder(8, dtype=dtype), encoder)
    model.build({"text": (None, None)})
    generator = np.random.default_rng(3)
    for weight in encoder.trainable_weights:  # biases included, which begin at 0
        weight.assign(generator.normal(scale=0.5, size=weight.shape))
    return ServedModel(model, WordTokenizer(Vocabulary(WORDS)))


def saved_shapes(directory) -> list[tuple[int, ...]]:
    return [tuple(shape) for _, shape in tf.train.list_variables(str(directory / "variables" / "variables"))]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("alone", "float32"),
        pytest.param("bag", "float32", marks=pytest.mark.slow),
        pytest.param("ensemble", "float32", marks=pytest.mark.slow),
        pytest.param("ensemble", "mixed_bfloat16", marks=pytest.mark.slow),
    ],
)
def test_a_savedmodel_looks_up_products(name: str, dtype: str, tmp_path) -> None:
    part, tables = PARTS[name]
    keras.utils.set_random_seed(0)
    given = served(part.build(8, TextSpec(ROWS, 64), dtype), dtype)
    # Traced before, without tables.
    expected = given.encode_text(TEXTS)["embedding"].numpy()
    (sentence,) = write(given, tmp_path)
    loaded = tf.saved_model.load(str(tmp_path))
    embedded = loaded.signatures["encode_text"](text=TEXTS)["embedding"]
    # In bfloat16, products of other sizes may be rounded to the next number.
    np.testing.assert_allclose(embedded, expected, atol=1e-6 if dtype == "float32" else given.tolerance)
    assert np.abs(expected[[0, 2, 3]]).max() > 0.1
    shapes = saved_shapes(tmp_path)
    assert shapes.count((ROWS, 12)) == tables
    assert (ROWS, 5) not in shapes and (5, 12) not in shapes
    assert " stored" in sentence and "not stored" not in sentence


def test_larger_tables_are_not_stored(tmp_path, monkeypatch) -> None:
    part, _ = PARTS["alone"]
    given = served(part.build(8, TextSpec(ROWS, 64), "float32"))
    size = ROWS * 12 * 4
    for limit, stored in ((size, True), (size - 1, False)):
        monkeypatch.setattr(folding, "MAX_BYTES", limit)
        (sentence,) = write(given, tmp_path / str(limit))
        shapes = saved_shapes(tmp_path / str(limit))
        assert ((ROWS, 12) in shapes, (ROWS, 5) in shapes) == (stored, not stored)
        assert ("not stored" in sentence) != stored


def test_a_model_without_recurrent_encoder_has_nothing_to_say() -> None:
    with folded_words(LinearSentenceEncoder(WordEmbedding(ROWS, 4))) as sentences:
        assert sentences == []


def test_the_card_states_it(exported, tiny_pixel_run) -> None:
    costs = re.split(r"^## ", version_card_path(exported / "1").read_text(), flags=re.MULTILINE)
    costs = next(section for section in costs if section.startswith("Costs"))
    with folded_words(tiny_pixel_run.model) as sentences:
        assert sentences and all(f"- {sentence}\n" in costs for sentence in sentences)


@pytest.mark.parametrize("outside", [-1, ROWS])
def test_ids_outside_the_words_are_refused_as_without_tables(outside: int) -> None:
    encoder = RecurrentSentenceEncoder(WordEmbedding(ROWS, 5), 4, units=4)
    ids = np.array([[2, outside, 0]], np.int32)
    for context in (contextlib.nullcontext(), encoder.folded()):
        encoder(ids[:, :1])
        with context, pytest.raises(tf.errors.InvalidArgumentError):
            encoder(ids)

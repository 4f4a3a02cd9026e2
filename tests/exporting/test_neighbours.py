"""A SavedModel whose rows depend on the other rows of their batch is neither written nor loaded."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import vsemb
from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.exporting import keras_model
from vsemb.models import DualEncoder

TEXTS = ["a red dog", "a blue cat", "a yellow fish by a big red tree"]
DIM = 4


def model(
    mask_zero: bool = True,
    image: keras.layers.Layer | None = None,
    tokenizer: bool = True,
    text: keras.layers.Layer | None = None,
) -> DualEncoder:
    keras.utils.set_random_seed(0)
    words = keras.layers.TextVectorization(20)
    words.adapt(TEXTS)
    tower = keras.Sequential(
        [keras.layers.Embedding(20, DIM, mask_zero=mask_zero, name="words"), keras.layers.GRU(DIM)]
    )
    made = DualEncoder(image or keras.layers.Dense(DIM), text or tower, tokenizer=words if tokenizer else None)
    made.build({"image": (None, 3), "text": (None, None)})
    return made


@keras.saving.register_keras_serializable("tests")
class BatchMean(keras.layers.Dense):
    """Subtracts the mean of the batch, in inference too."""

    def call(self, rows, training=False):
        outputs = super().call(rows)
        return outputs - keras.ops.mean(outputs, axis=0)


@pytest.mark.parametrize("tokenizer", [True, False])
def test_an_encoder_that_reads_padding_is_refused_with_its_layer(tokenizer: bool, tmp_path: Path) -> None:
    with raises_argument("text_encoder"):
        model(mask_zero=False, tokenizer=tokenizer).export(tmp_path / "1")
    assert not (tmp_path / "1").exists()


@keras.saving.register_keras_serializable("tests")
class ChunkMean(keras.layers.Layer):
    """The mean over chunks of 8 tokens of 1 plus each chunk's mean over its tokens; chunks of padding alone count."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.words = keras.layers.Embedding(20, DIM)

    def call(self, ids):
        ids = keras.ops.pad(ids, [[0, 0], [0, -keras.ops.shape(ids)[1] % 8]])
        ids = keras.ops.reshape(ids, (keras.ops.shape(ids)[0], -1, 8))
        tokens = keras.ops.cast(ids != 0, "float32")[..., None]  # (batch, chunks, 8, 1)
        means = keras.ops.sum(self.words(ids) * tokens, 2) / keras.ops.maximum(keras.ops.sum(tokens, 2), 1)
        return keras.ops.mean(1.0 + means, 1)


@keras.saving.register_keras_serializable("tests")
class WordsAndPlaces(keras.layers.Layer):
    """The sum over words and their places, of which there are 20."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.words, self.places = keras.layers.Embedding(20, DIM), keras.layers.Embedding(20, DIM)

    def call(self, ids):
        both = self.words(ids) + self.places(keras.ops.arange(keras.ops.shape(ids)[1]))
        return keras.ops.sum(both * keras.ops.cast(ids != 0, "float32")[..., None], 1)


def test_an_encoder_that_reads_padding_of_long_texts_alone_is_refused(tmp_path: Path) -> None:
    with raises_argument("text_encoder"):
        model(text=ChunkMean(), tokenizer=False).export(tmp_path / "1")


def test_an_encoder_that_fails_for_long_texts_is_refused_with_a_tokenizer_alone(tmp_path: Path) -> None:
    with raises_argument("text_encoder"):
        model(text=WordsAndPlaces()).export(tmp_path / "1")
    # Who sends token ids knows how many there may be.
    model(text=WordsAndPlaces(), tokenizer=False).export(tmp_path / "2")


def test_an_image_encoder_that_mixes_rows_is_refused(tmp_path: Path) -> None:
    with raises_argument("image_encoder"):
        model(image=BatchMean(DIM)).export(tmp_path / "1")


def test_a_saved_model_that_reads_padding_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras_model, "require_independence", lambda *arguments: None)
    model(mask_zero=False).export(tmp_path / "1")
    with pytest.raises(DataError, match="alone"):
        vsemb.load(tmp_path).encode_texts(["a red dog"])


def test_masked_padding_is_exported_and_loaded(tmp_path: Path) -> None:
    model().export(tmp_path / "1")
    loaded = vsemb.load(tmp_path)
    alone, beside = loaded.encode_texts(TEXTS[:1]), loaded.encode_texts(TEXTS)
    # float32: products of other sizes add in another order.
    np.testing.assert_allclose(beside[:1], alone, rtol=1e-5, atol=1e-6)
    assert tf.io.gfile.exists(str(tmp_path / "1" / "saved_model.pb"))

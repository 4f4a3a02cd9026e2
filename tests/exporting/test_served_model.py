"""The served functions: rows independent of each other, empty batches, and what evaluation computes."""

from __future__ import annotations

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb.encoders import ImageEncoder, PixelEncoder, RecurrentSentenceEncoder, WordEmbedding
from vsemb.evaluation import Embedder
from vsemb.exporting import Corpus, ImageInput, ServedModel, TextInput
from vsemb.image.backbones import BackboneConfig, build_backbone
from vsemb.models import DualEncoder
from vsemb.text import CharacterTokenizer, Vocabulary, WordTokenizer
from vsemb.text.subwords import WordPieceTokenizer

CONFIG = BackboneConfig("SmallConvNet", size=32)


@functools.cache
def words() -> WordTokenizer:
    return WordTokenizer(Vocabulary(["a", "dog", "cat", "runs"]))


def small_model(dtype: str = "float32", similarity: str = "cosine") -> DualEncoder:
    keras.utils.set_random_seed(4)
    head = ImageEncoder(6, dtype=dtype)
    words = WordEmbedding(6, 5, dtype=dtype)
    text = RecurrentSentenceEncoder(words, 6, units=4, directions="concat", pooling="mean", dtype=dtype)
    model = DualEncoder(PixelEncoder(build_backbone(CONFIG), head, dtype=dtype), text, similarity)
    model.build({"image": (None, 32, 32, 3), "text": (None, None)})
    return model


@pytest.fixture(scope="module")
def served() -> ServedModel:
    return ServedModel(small_model(), words(), ImageInput(CONFIG))


def images(count: int) -> list[bytes]:
    pixels = np.random.default_rng(2).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    return [tf.io.encode_png(image).numpy() for image in pixels]


def run(function, rows: list) -> tuple[np.ndarray, list[bool]]:
    outputs = function(tf.constant(rows, tf.string))
    assert outputs["embedding"].dtype == tf.float32 and outputs["valid"].dtype == tf.bool
    return outputs["embedding"].numpy(), outputs["valid"].numpy().tolist()


def test_a_text_without_a_word_is_a_zero_row_and_disturbs_no_other(served):
    rows = ["a dog", "", " ?! ", b"\xff\xfe", "a \xff dog runs", "unheard"]
    embeddings, valid = run(served.encode_text, rows)
    assert valid == [True, False, False, False, True, False]
    assert not embeddings[[1, 2, 3, 5]].any()
    np.testing.assert_allclose(np.linalg.norm(embeddings[[0, 4]], axis=1), 1, atol=1e-6)
    for row in (0, 4):
        np.testing.assert_allclose(embeddings[row], run(served.encode_text, [rows[row]])[0][0], atol=1e-6)


def test_the_share_of_known_words_decides_whether_a_text_is_valid(served):
    texts = tf.constant(["a dog", "a xylophonic dog", "xylophonic", "", "a dog qwrt zyzzyva"])
    outputs = served.encode_text(texts)
    assert outputs["valid"].numpy().tolist() == [True, True, False, False, True]
    np.testing.assert_allclose(outputs["known"], [1, 2 / 3, 0, 0, 1 / 2])
    assert outputs["embedding"].numpy().any(axis=1).tolist() == [True, True, False, False, True]
    corpus = Corpus(np.eye(6, dtype=np.float32), np.arange(6), list("abcdef"))
    search = ServedModel(served.model, words(), ImageInput(CONFIG), corpus=corpus).functions
    found = search["search_text"](text=texts, k=tf.fill([5], 2))
    assert found["valid"].numpy().tolist() == outputs["valid"].numpy().tolist()
    np.testing.assert_array_equal(found["known"], outputs["known"])
    assert "known" not in search["search_image"](tf.constant(images(1)), tf.constant([1]))


@pytest.mark.parametrize(
    ("make", "texts", "known"),
    [
        (lambda: WordPieceTokenizer(Vocabulary(["dog", "##s", "a"])), ["dogs", "a dogx", "x"], [1, 1 / 2, 0]),
        (CharacterTokenizer, ["a dog", "aé", "犬"], [1, 1 / 2, 0]),
    ],
)
def test_the_share_counts_subwords_and_characters(make, texts, known):
    tokenizer = make()
    share = TextInput(tokenizer).known_share(tokenizer(texts))
    np.testing.assert_allclose(share, known)


def test_bytes_that_are_no_image_are_a_zero_row_and_disturb_no_other(served):
    first, second = images(2)
    embeddings, valid = run(served.encode_image, [b"", first, first[:60], b"GIF89a", second, b"\xff\xd8\xff"])
    assert valid == [False, True, False, False, True, False]
    assert not embeddings[[0, 2, 3, 5]].any()
    np.testing.assert_allclose(embeddings[[1, 4]], run(served.encode_image, [first, second])[0], atol=1e-6)


def test_a_batch_may_be_empty(served):
    for function in (served.encode_text, served.encode_image):
        embeddings, valid = run(function, [])
        assert embeddings.shape == (0, 6) and valid == []


def test_the_embeddings_are_those_of_evaluation(served):
    texts = ["a dog runs", "a", "cat runs a dog a dog"]
    wanted = Embedder(served.model).texts(*words().encode(texts))
    np.testing.assert_allclose(run(served.encode_text, texts)[0], wanted, atol=1e-6)
    encoded = images(3)
    pixels = tf.stack([tf.io.decode_png(image) for image in encoded])  # 32 x 32 already: no resizing
    wanted = served.model.encode_images(tf.cast(pixels, tf.float32))
    np.testing.assert_allclose(run(served.encode_image, encoded)[0], wanted, atol=1e-6)


def test_float32_comes_out_of_a_bfloat16_model():
    served = ServedModel(small_model("mixed_bfloat16", "dot"), words(), ImageInput(CONFIG))
    assert np.isfinite(run(served.encode_text, ["a dog"])[0]).all()
    assert np.isfinite(run(served.encode_image, images(1))[0]).all()


def test_no_kernel_of_a_gpu_is_traced(monkeypatch):
    model = small_model()
    layers = [layer for layer in model._flatten_layers() if hasattr(layer, "use_cudnn")]
    seen = []
    encode = model.encode_texts

    def spy(ids):
        seen.extend(layer.use_cudnn for layer in layers)
        return encode(ids)

    monkeypatch.setattr(model, "encode_texts", spy)
    ServedModel(model, words()).encode_text(tf.constant(["a"]))
    assert len(layers) >= 2 and seen == [False] * len(layers)
    assert {layer.use_cudnn for layer in layers} == {"auto"}


def test_without_an_image_input_there_is_no_encode_image(served):
    alone = ServedModel(served.model, words())
    assert alone.encode_image is None and [signature.name for signature in alone.offered] == ["encode_text", "describe"]


def test_a_model_from_pixels_takes_one_view():
    with raises_argument("crops"):
        ImageInput(BackboneConfig("SmallConvNet", crops=10))


def test_features_come_through_the_backbone():
    config = BackboneConfig("SmallConvNet", size=32, crops=10)
    backbone = build_backbone(config, seed=7)
    features, valid = ImageInput(config, backbone)(tf.constant([*images(1), b"no"]))
    assert features.shape == (2, 256) and valid.numpy().tolist() == [True, False]


class Words(TextInput):
    """Takes words that are split already, as a system's own input may."""

    name = "words"
    specs = (tf.TensorSpec([None, None], tf.string, name="words"),)

    def ids(self, words):
        return self.tokenizer(tf.strings.reduce_join(words, axis=1, separator=" "))

    def from_strings(self, served):
        return lambda text: served.text_rows(words=tf.convert_to_tensor(text)[:, None])

    def examples(self, short=False):
        return {"words": np.array([[b"a", b"dog"], [b"", b""]], object)}


def test_texts_may_be_something_else(served):
    other = ServedModel(served.model, Words(words()))
    assert list(other.signatures) == ["serving_default", "encode_words", "describe"]
    found = other.functions["encode_words"](words=tf.constant([["a", "dog"], ["", ""]]))
    assert found["valid"].numpy().tolist() == [True, False]
    wanted = served.encode_text(tf.constant(["a dog"]))
    np.testing.assert_allclose(found["embedding"][:1], wanted["embedding"], atol=1e-6)
    np.testing.assert_allclose(run(other.encode_text, ["a dog"])[0], wanted["embedding"], atol=1e-6)


def test_a_corpus_has_embeddings_of_the_models_size(served):
    corpus = Corpus(np.zeros((2, 5), np.float32), np.arange(2), ["a", "b"])
    with raises_argument("corpus"):
        ServedModel(served.model, words(), corpus=corpus)

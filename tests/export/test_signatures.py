"""The served functions: rows independent of each other, empty batches, and what evaluation computes."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from vsemb.encoders import ImageEncoder, PixelEncoder, RecurrentSentenceEncoder, WordEmbedding
from vsemb.errors import InvalidArgumentError
from vsemb.evaluation import Embedder
from vsemb.export import ClassPrompts, ImageInput, ServedModel
from vsemb.image.backbones import BackboneConfig, build_backbone
from vsemb.models import DualEncoder
from vsemb.text import Vocabulary, WordTokenizer

CONFIG = BackboneConfig("SmallConvNet", size=32)
WORDS = WordTokenizer(Vocabulary(["a", "dog", "cat", "runs"]))


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
    return ServedModel(small_model(), WORDS, ImageInput(CONFIG))


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
    # A word that is not known is a word: it has an embedding of its own.
    assert valid == [True, False, False, False, True, True]
    assert not embeddings[[1, 2, 3]].any()
    np.testing.assert_allclose(np.linalg.norm(embeddings[[0, 4, 5]], axis=1), 1, atol=1e-6)
    for row in (0, 4, 5):
        np.testing.assert_allclose(embeddings[row], run(served.encode_text, [rows[row]])[0][0], atol=1e-6)


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
    wanted = Embedder(served.model).texts(*WORDS.encode(texts))
    np.testing.assert_allclose(run(served.encode_text, texts)[0], wanted, atol=1e-6)
    encoded = images(3)
    pixels = tf.stack([tf.io.decode_png(image) for image in encoded])  # 32 x 32 already: no resizing
    wanted = served.model.encode_images(tf.cast(pixels, tf.float32))
    np.testing.assert_allclose(run(served.encode_image, encoded)[0], wanted, atol=1e-6)


def test_float32_comes_out_of_a_bfloat16_model():
    served = ServedModel(small_model("mixed_bfloat16", "dot"), WORDS, ImageInput(CONFIG))
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
    ServedModel(model, WORDS).encode_text(tf.constant(["a"]))
    assert len(layers) >= 2 and seen == [False] * len(layers)
    assert {layer.use_cudnn for layer in layers} == {"auto"}


def test_without_an_image_input_there_is_no_encode_image():
    served = ServedModel(small_model(), WORDS)
    assert served.encode_image is None and list(served.signatures) == ["serving_default", "encode_text"]


def test_a_model_from_pixels_takes_one_view():
    with pytest.raises(InvalidArgumentError, match="crops"):
        ImageInput(BackboneConfig("SmallConvNet", crops=10))


def test_features_come_through_the_backbone():
    config = BackboneConfig("SmallConvNet", size=32, crops=10)
    backbone = build_backbone(config, seed=7)
    features, valid = ImageInput(config, backbone)(tf.constant([*images(1), b"no"]))
    assert features.shape == (2, 256) and valid.numpy().tolist() == [True, False]


def some_classes(seed: int = 5) -> ClassPrompts:
    """Three classes of two prompts, at unit length and without a negative entry."""
    embeddings = np.abs(np.random.default_rng(seed).normal(size=(3, 2, 6))).astype(np.float32)
    return ClassPrompts(("dog", "Katze", "鳥"), embeddings / np.linalg.norm(embeddings, axis=-1, keepdims=True))


@pytest.mark.parametrize("similarity", ["cosine", "dot", "order", "order-reversed"])
def test_classes_score_by_the_mean_over_their_prompts(similarity):
    classes = some_classes()
    served = ServedModel(small_model(similarity=similarity), WORDS, ImageInput(CONFIG), classes)
    encoded = images(2)
    outputs = served.classify(tf.constant([encoded[0], b"no image", encoded[1]]))
    assert outputs["valid"].numpy().tolist() == [True, False, True]
    names = [name.encode() for name in classes.names]
    assert outputs["classes"].numpy().tolist() == [names] * 3
    embedded = run(served.encode_image, encoded)[0]
    flat = classes.embeddings.reshape(6, 6)
    each = np.asarray(served.model.similarity.scores(embedded, flat)).reshape(2, 3, 2)
    scores = outputs["scores"].numpy()
    np.testing.assert_allclose(scores[[0, 2]], each.mean(axis=-1), atol=1e-5)
    assert scores.dtype == np.float32 and not scores[1].any() and np.ptp(each.mean(axis=-1)) > 1e-3
    empty = served.classify(tf.constant([], tf.string))
    assert empty["scores"].shape == empty["classes"].shape == (0, 3) and empty["valid"].shape == (0,)


def test_classify_is_a_signature_where_there_are_classes(served):
    assert "classify" not in served.signatures and served.classify is None
    with_classes = ServedModel(served.model, WORDS, ImageInput(CONFIG), some_classes())
    assert list(with_classes.signatures)[-1] == "classify"
    with pytest.raises(InvalidArgumentError, match=r"classes=\['dog', 'Katze', '鳥'\].*no image network"):
        ServedModel(served.model, WORDS, None, some_classes())
    with pytest.raises(InvalidArgumentError, match="prompts, dim"):
        ClassPrompts(("dog",), np.zeros((2, 1, 6), np.float32))

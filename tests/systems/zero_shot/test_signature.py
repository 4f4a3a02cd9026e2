"""Recognition in a served model: classes and their names, and encoders of characters."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb import similarities
from vsemb.encoders import ImageEncoder, PixelEncoder, RecurrentSentenceEncoder, WordEmbedding
from vsemb.exporting import ImageInput, ServedModel, export_savedmodel
from vsemb.exporting.card import card_path
from vsemb.exporting.reference_outputs import golden_texts
from vsemb.image.backbones import BackboneConfig, build_backbone
from vsemb.models import DualEncoder
from vsemb.systems.zero_shot.class_names import ClassTokenizer
from vsemb.systems.zero_shot.classify import ClassNamesInput, ClassPrompts
from vsemb.systems.zero_shot.text_encoders import CHARACTER_STAGES, AttributeEncoder, ConvolutionalSentenceEncoder
from vsemb.text import CharacterTokenizer, Vocabulary, WordTokenizer

CONFIG = BackboneConfig("SmallConvNet", size=32)


@functools.cache
def words() -> WordTokenizer:
    return WordTokenizer(Vocabulary(["a", "dog", "cat", "runs"]))


def pixel_model(similarity: str = "cosine") -> DualEncoder:
    keras.utils.set_random_seed(4)
    words = WordEmbedding(6, 5)
    text = RecurrentSentenceEncoder(words, 6, units=4, directions="concat", pooling="mean")
    model = DualEncoder(PixelEncoder(build_backbone(CONFIG), ImageEncoder(6)), text, similarity)
    model.build({"image": (None, 32, 32, 3), "text": (None, None)})
    return model


def images(count: int) -> list[bytes]:
    pixels = np.random.default_rng(2).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    return [tf.io.encode_png(image).numpy() for image in pixels]


def small_model(text_encoder: keras.layers.Layer) -> DualEncoder:
    keras.utils.set_random_seed(3)
    model = DualEncoder(ImageEncoder(6), text_encoder, "dot")
    model.build({"image": (None, 8), "text": (None, None)})
    return model


@pytest.mark.slow
def test_a_model_of_characters(tmp_path):
    keras.utils.set_random_seed(1)
    tokenizer = CharacterTokenizer()
    words = WordEmbedding(len(tokenizer.vocabulary), 8)
    # The paper's lengths, and few filters.
    stages = [(8, *sizes) for _, *sizes in CHARACTER_STAGES]
    encoder = ConvolutionalSentenceEncoder(words, 6, length=201, stages=stages, recurrent="rnn", units=5, hidden=7)
    model = small_model(encoder)
    path = export_savedmodel(ServedModel(model, tokenizer), tmp_path / "characters")
    served = tf.saved_model.load(str(path)).signatures["encode_text"]
    texts = ["A yellow bird!", "", "犬", " \n", "a yellow bird", "long " * 100, "long " * 41]
    outputs = {name: value.numpy() for name, value in served(text=tf.constant(texts)).items()}
    assert outputs["valid"].tolist() == [True, False, False, False, True, True, True]
    np.testing.assert_allclose(outputs["known"], [1, 0, 0, 0, 1, 1, 1])
    wanted = model.encode_texts(tokenizer(texts))
    valid = outputs["valid"]
    np.testing.assert_allclose(outputs["embedding"][valid], wanted.numpy()[valid], atol=1e-5)
    assert not outputs["embedding"][~valid].any()
    assert np.abs(outputs["embedding"][0] - outputs["embedding"][4]).max() > 1e-4
    # Both are "long long … l" behind the cut at 201.
    np.testing.assert_allclose(outputs["embedding"][5], outputs["embedding"][6], atol=1e-6)


def test_a_model_of_classes(tmp_path):
    tokenizer = ClassTokenizer(Vocabulary(["Blue Jay", "Crow"]))
    encoder = AttributeEncoder(classes=2, attributes=3, dim=6)
    encoder.set_attributes(np.array([[0, 0, 0], [0, 0, 0], [1, 0, 0.5], [0, 2, 0]]))
    model = small_model(encoder)
    path = export_savedmodel(ServedModel(model, ClassNamesInput(tokenizer)), tmp_path / "classes")
    served = tf.saved_model.load(str(path)).signatures["encode_text"]
    outputs = served(text=tf.constant(["Crow", " ", " Blue Jay\n", "crow"]))
    assert outputs["valid"].numpy().tolist() == [True, False, True, False]
    wanted = model.encode_texts(np.array([[3], [2]])).numpy()
    np.testing.assert_allclose(outputs["embedding"].numpy()[[0, 2]], wanted, atol=1e-6)
    card = card_path(path.parent).read_text()
    assert "Embeds names of 2 classes as" in card and "sentences" not in card and "tokens." not in card
    assert "A text must be one of the names of 2 classes, spelled as in training" in card
    assert golden_texts(tokenizer)[0] == b"Blue Jay" and golden_texts(tokenizer)[2] == b"Crow"


def some_classes(seed: int = 5) -> ClassPrompts:
    """Three classes of two prompts, at unit length and without a negative entry."""
    embeddings = np.abs(np.random.default_rng(seed).normal(size=(3, 2, 6))).astype(np.float32)
    unit = embeddings / np.linalg.norm(embeddings, axis=-1, keepdims=True)
    return ClassPrompts(("dog", "Katze", "鳥"), unit, scale=4.0)


@pytest.mark.parametrize("similarity", ["cosine", "order"])
def test_classes_score_by_the_mean_over_their_prompts(similarity):
    classes = some_classes()
    served = ServedModel(pixel_model(similarity), words(), ImageInput(CONFIG), extras=[classes.signature])
    encoded = images(2)
    outputs = served.functions["classify"](tf.constant([encoded[0], b"no image", encoded[1]]))
    assert outputs["valid"].numpy().tolist() == [True, False, True]
    names = [name.encode() for name in classes.names]
    assert outputs["classes"].numpy().tolist() == [names] * 3
    embedded = served.encode_image(tf.constant(encoded))["embedding"].numpy()
    flat = classes.embeddings.reshape(6, 6)
    each = np.asarray(served.model.similarity.scores(embedded, flat)).reshape(2, 3, 2)
    scores = outputs["scores"].numpy()
    np.testing.assert_allclose(scores[[0, 2]], each.mean(axis=-1), atol=1e-5)
    assert scores.dtype == np.float32 and not scores[1].any() and np.ptp(each.mean(axis=-1)) > 1e-3
    logits = np.exp(4 * each.mean(axis=-1))
    probabilities = outputs["probabilities"].numpy()
    np.testing.assert_allclose(probabilities[[0, 2]], logits / logits.sum(axis=1, keepdims=True), atol=1e-5)
    assert not probabilities[1].any()
    empty = served.functions["classify"](tf.constant([], tf.string))
    assert empty["scores"].shape == empty["classes"].shape == (0, 3) and empty["valid"].shape == (0,)


@pytest.mark.parametrize("kind", ["cosine", "dot", "order", "order-reversed"])
def test_scores_in_every_similarity_are_means_over_prompts(kind):
    similarity, classes = similarities.get(kind), some_classes()
    # Not at unit length, which only a cosine does without.
    embedded = similarity.normalize(3 * np.random.default_rng(1).normal(size=(4, 6)))
    pairs = similarity.pair_scores(embedded[:, None, None], classes.embeddings[None])
    np.testing.assert_allclose(classes.scores(embedded, similarity), np.mean(pairs, axis=-1), atol=1e-5)


def test_classify_is_a_signature_where_there_are_classes():
    model, classes = pixel_model(), some_classes()
    served = ServedModel(model, words(), ImageInput(CONFIG), extras=[classes.signature])
    assert list(served.signatures)[-1] == "classify"
    with raises_argument("classes"):
        ServedModel(model, words(), extras=[classes.signature])
    sets = SimpleNamespace(image=object(), multi_vector=True)
    with raises_argument("classes"):
        classes.signature(sets)  # type: ignore[arg-type]
    with raises_argument("embeddings"):
        ClassPrompts(("dog",), np.zeros((2, 1, 6), np.float32))

"""Captioners: words become texts, models become captioners, in graph and exported."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from vsemb.encoders import ImageEncoder, WordEmbedding
from vsemb.systems.captions.captioner import NeuralCaptioner, detokenize
from vsemb.systems.captions.decoding import Sampler, SearchOptions
from vsemb.systems.captions.multimodal_rnn import MultimodalRNN
from vsemb.text import Vocabulary

VOCABULARY = Vocabulary(["a", "dog", "'s", "ball", "größer", "犬"])


def in_python(ids) -> str:
    text = ""
    for word in (VOCABULARY.tokens[i] for i in ids if i):
        text += word if word.startswith("'") or not text else f" {word}"
    return text


def test_words_become_texts():
    ids = np.random.default_rng(0).integers(0, len(VOCABULARY), (50, 3, 6))
    wanted = [[in_python(row) for row in some] for some in ids]
    got = tf.function(detokenize, autograph=False)(tf.constant(ids), tf.constant(VOCABULARY.tokens)).numpy()
    assert [[text.decode() for text in row] for row in got] == wanted
    assert detokenize(tf.constant([2, 3, 4, 5]), VOCABULARY.tokens).numpy() == b"a dog's ball"
    assert detokenize(tf.constant([4, 3]), VOCABULARY.tokens).numpy() == b"'s dog"


@pytest.mark.parametrize("shape", [(0, 4), (2, 0), (0, 3, 5)])
def test_no_words(shape):
    texts = detokenize(tf.zeros(shape, tf.int32), VOCABULARY.tokens)
    assert texts.shape == shape[:-1] and not any(texts.numpy().ravel())


@pytest.fixture(scope="module")
def model() -> MultimodalRNN:
    keras.utils.set_random_seed(3)
    model = MultimodalRNN(ImageEncoder(4 * 12), WordEmbedding(len(VOCABULARY), 6), units=12)
    model.build({"image": (None, 5), "text": (None, 4)})
    for weight in model.trainable_variables:
        weight.assign(keras.random.normal(weight.shape, seed=len(weight.shape)))
    return model


IMAGES = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32)


def ids_of(text: str) -> list[int]:
    return [VOCABULARY.tokens.index(word) for word in text.replace("'s", " 's").split()]


@pytest.mark.parametrize("options", [{"beam": 5}, {"sampler": "top-p=0.9"}])
def test_what_is_said_of_captions_is_the_models(model, options):
    sampler = Sampler.parse(options["sampler"], seed=1) if "sampler" in options else None
    search = SearchOptions(beam=options.get("beam", 7), n_best=4, max_words=9)
    captioner = NeuralCaptioner(model, VOCABULARY, search, sampler)
    texts, log_probs = captioner(IMAGES)
    assert texts.shape == log_probs.shape == (6, 4) and captioner.n_best == 4
    compared = 0
    for image, row, values in zip(IMAGES, texts.numpy(), log_probs.numpy(), strict=True):
        for text, value in zip(row, values, strict=True):
            ids = ids_of(text.decode())
            assert 1 not in ids
            if 0 < len(ids) < 9:
                inputs = {"image": image[None], "text": np.array([ids], np.int32)}
                wanted = np.sum(model.log_likelihoods(inputs))
                np.testing.assert_allclose(value, wanted, rtol=1e-4)
                compared += 1
    assert compared


def test_what_is_missing_is_empty(model):
    captioner = NeuralCaptioner(model, VOCABULARY, SearchOptions(n_best=3), Sampler("greedy"))
    texts, log_probs = captioner(IMAGES)
    assert all(texts.numpy()[:, 0]) and not any(texts.numpy()[:, 1:].ravel())
    assert log_probs.numpy()[:, 0].all() and not log_probs.numpy()[:, 1:].any()


def test_rows_may_be_unknown_or_none_and_each_stands_alone(model):
    captioner = NeuralCaptioner(model, VOCABULARY, SearchOptions(beam=3, n_best=2, max_words=6))
    together = captioner(IMAGES)
    in_graph = tf.function(captioner, autograph=False, input_signature=[tf.TensorSpec([None, 5], tf.float32)])
    for rows in ([0], [2, 4], [], range(6)):
        texts, log_probs = in_graph(IMAGES[list(rows)])
        np.testing.assert_array_equal(texts, together.texts.numpy()[list(rows)])
        # Products of matrices add in another order for another number of rows.
        np.testing.assert_allclose(log_probs, together.log_probs.numpy()[list(rows)], rtol=1e-5)


@pytest.mark.slow
def test_captioners_can_be_exported(model, tmp_path):
    module = tf.Module()
    search = SearchOptions(beam=3, n_best=2, max_words=3)
    rules = (None, "greedy", "top-k=3")
    module.captioners = [
        NeuralCaptioner(model, VOCABULARY, search, rule and Sampler.parse(rule, seed=2)) for rule in rules
    ]
    module.caption = tf.function(
        lambda images: [captioner(images)._asdict() for captioner in module.captioners],
        input_signature=[tf.TensorSpec([len(IMAGES), 5], tf.float32)],
        autograph=False,
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    for got, captioner in zip(loaded.caption(IMAGES), module.captioners, strict=True):
        wanted = captioner(IMAGES)
        np.testing.assert_array_equal(got["texts"], wanted.texts)
        np.testing.assert_allclose(got["log_probs"], wanted.log_probs, rtol=1e-5)

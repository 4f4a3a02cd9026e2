"""Measuring models of the next word after every epoch: by hand, and what they write."""

from __future__ import annotations

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.systems.captions.test_next_word import make_model
from vsemb import Run
from vsemb.data.sources import FeatureImages, ImageSource
from vsemb.errors import DataError
from vsemb.systems.captions.captioner import NeuralCaptioner
from vsemb.systems.captions.decoding import SearchOptions
from vsemb.systems.captions.sentences import Sentences, sentence_batches
from vsemb.systems.captions.validation import CiderValidation, PerplexityValidation


def word_batches(texts: list[list[int]]) -> tf.data.Dataset:
    def padded():
        for text in texts:
            yield {"text": np.array([text], np.int32)}

    return tf.data.Dataset.from_generator(padded, output_signature={"text": tf.TensorSpec((None, None), tf.int32)})


def test_by_hand() -> None:
    # Of words 3 and 2 and the end 1, 3 and 3 bits: 3 + 3 + 1 and 3 + 1, over five targets.
    model = make_model()
    model.scores.assign(np.log([0.5, 0.25, 0.125, 0.125]))
    validation = PerplexityValidation(word_batches([[3, 2, 0, 0], [2]]))
    validation.set_model(model)
    logs: dict[str, float] = {}
    validation.on_epoch_end(0, logs)
    assert logs["val_log2_likelihood"] == pytest.approx(-11 / 5)
    assert logs["val_perplexity"] == pytest.approx(2 ** (11 / 5))


def test_the_moving_average_is_what_is_measured() -> None:
    model = make_model()
    model.compile(keras.optimizers.SGD(1.0, use_ema=True, ema_momentum=0.9), loss=model.loss)
    data = word_batches([[3, 3]])
    model.fit(data, verbose=0, shuffle=False)
    average = model.optimizer._model_variables_moving_average[0].numpy()
    validation = PerplexityValidation(data)
    validation.set_model(model)
    expected = tf.nn.log_softmax(average).numpy()
    likelihood = validation.measure().log2_likelihood
    assert likelihood == pytest.approx((2 * expected[3] + expected[0]) / 3 / math.log(2), rel=1e-5)
    assert likelihood != pytest.approx((2 * tf.nn.log_softmax(model.scores).numpy()[3]) / 3, rel=1e-2)


def test_no_sentences_and_a_model_that_came_apart() -> None:
    validation = PerplexityValidation(word_batches([]))
    validation.set_model(make_model())
    with pytest.raises(DataError, match="sentence"):
        validation.on_epoch_end(0, {})
    model = make_model()
    model.scores.assign([1e6, 0, 0, 0])
    validation = PerplexityValidation(word_batches([[3, 2]]))
    validation.set_model(model)
    logs: dict[str, float] = {}
    validation.on_epoch_end(0, logs)
    assert logs["val_perplexity"] == math.inf and logs["val_log2_likelihood"] < -1e5


class Features(ImageSource):
    spec = tf.TensorSpec((2,), tf.float32)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        return np.arange(10, dtype=np.float32).reshape(5, 2)[rows]


def test_batches_have_every_sentence_with_its_image() -> None:
    ids, offsets = np.arange(2, 8, dtype=np.int32), np.array([0, 3, 3, 4, 6])
    rows = np.array([4, 4, 0, 2])
    batches = sentence_batches(Sentences(ids, offsets, images=Features(), image_rows=rows), batch_size=3)
    images = {}
    for batch in batches:
        for image, text in zip(batch["image"].numpy(), batch["text"].numpy(), strict=True):
            images[tuple(text[text > 0].tolist())] = image.tolist()
    assert images == {(2, 3, 4): [8, 9], (): [8, 9], (5,): [0, 1], (6, 7): [4, 5]}
    assert len(list(batches)) == 2


def test_captions_are_those_of_the_greedy_captioner(scenes, caption_run: Run) -> None:
    pytest.importorskip("pycocoevalcap", reason="the extra captions is not installed")
    from vsemb.systems.captions.caption_metrics import cider

    run, split = Run.open(caption_run.path), scenes.split("val")
    images = run.images_of(scenes, split)
    assert isinstance(images, FeatureImages)
    run.model.compile()
    encoded = run.tokenizer.encode(split.captions)
    batches = sentence_batches(Sentences(*encoded, images=images, image_rows=split.caption_rows))
    validation = CiderValidation(batches, split, images, run.tokenizer)
    validation.set_model(run.model)
    captioner = NeuralCaptioner(run.model, run.vocabulary, SearchOptions(beam=1))
    expected = [text.decode() for text in captioner(images.gather(np.arange(12))).texts.numpy()[:, 0]]
    assert validation.captions() == expected
    logs: dict[str, float] = {}
    validation.on_epoch_end(0, logs)
    references = list(split.caption_lists())
    assert logs["val_cider"] == pytest.approx(100 * cider(expected, references)[0])
    assert logs["val_perplexity"] == pytest.approx(2 ** -run.info["best_log2_likelihood"], rel=1e-5)

"""The score of an image and a text as a sum over the steps of the text."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.raising import raises_argument
from tests.tiny import tiny
from vsemb import recipes
from vsemb.cli.__main__ import main
from vsemb.encoders import LinearSentenceEncoder, RecurrentSentenceEncoder, WordEmbedding
from vsemb.encoders.pooling import step_terms
from vsemb.systems.zero_shot.api import trace
from vsemb.systems.zero_shot.text_encoders import BinaryBagOfWords, ConvolutionalSentenceEncoder

# Words that are unknown, repeated, in another order; texts of several lengths.
IDS = np.array([[2, 3, 4, 3, 5, 6], [7, 1, 7, 0, 0, 0], [9, 0, 0, 0, 0, 0]])
STAGES = ((6, 2, 2, 2), (5, 2, 1, 1))


def words() -> WordEmbedding:
    return WordEmbedding(vocabulary_size=10, dim=4)


ENCODERS = {
    "sum": lambda: LinearSentenceEncoder(words()),
    "mean with a map": lambda: LinearSentenceEncoder(words(), "mean", dim=3),
    "sum with a map": lambda: LinearSentenceEncoder(words(), "sum", dim=3),
    "lstm": lambda: RecurrentSentenceEncoder(words(), dim=3, cell="lstm", units=5, pooling="mean"),
    "both directions": lambda: RecurrentSentenceEncoder(words(), dim=10, units=5, directions="concat", pooling="mean"),
    "cnn-rnn": lambda: ConvolutionalSentenceEncoder(words(), 3, length=6, stages=STAGES, recurrent="rnn", units=5),
    "distinct words": lambda: BinaryBagOfWords(10, 3),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_the_terms_of_the_steps_add_up_to_the_embedding(name: str) -> None:
    tf.random.set_seed(0)
    encoder = ENCODERS[name]()
    encoder(IDS)
    for weight in encoder.weights:  # Biases start at zero.
        weight.assign_add(0.1 * tf.random.normal(weight.shape))
    terms = encoder.step_terms(IDS).numpy()
    np.testing.assert_allclose(terms.sum(axis=1), encoder(IDS), atol=1e-5)
    if name != "cnn-rnn":  # Which reads padding, too.
        assert not terms[1, 3:].any() and terms[1, 0].any()


def test_terms_by_hand() -> None:
    # The mean of (1, 0) and (0, 2), times a column of ones, plus 0.5: 1.5 + 0.5. Each step has 0.25 of the bias.
    states, mask = np.array([[[1.0, 0.0], [0.0, 2.0], [9.0, 9.0]]], np.float32), np.array([[True, True, False]])
    found = step_terms(states, mask, "mean", lambda x: tf.reduce_sum(x, -1, keepdims=True) + 0.5)
    np.testing.assert_allclose(found, [[[0.75], [1.25], [0.0]]])


def test_a_step_of_a_convolution_reads_its_span() -> None:
    encoder = ENCODERS["cnn-rnn"]()
    ids = np.array([[2, 3, 4, 5, 6, 7]])
    before = encoder.step_terms(ids).numpy()[0]
    spans = encoder.step_spans
    # 6 words are 5 pairs, which are pooled by two into 2 steps, and a pair of these is left: 1 step of 5 words.
    assert spans == [(0, 5)] and len(before) == len(spans)
    longer = ConvolutionalSentenceEncoder(words(), 3, length=9, stages=STAGES, recurrent="rnn", units=5)
    ids = np.array([[2, 3, 4, 5, 6, 7, 8, 9, 2]])
    before, spans = longer.step_terms(ids).numpy()[0], longer.step_spans
    assert spans == [(0, 5), (2, 7), (4, 9)]
    for step, (_, end) in enumerate(spans[:-1]):
        changed = ids.copy()
        changed[0, end:] = 1
        np.testing.assert_array_equal(longer.step_terms(changed)[0, : step + 1], before[: step + 1])


def test_pooling_that_is_no_sum_is_refused() -> None:
    with raises_argument("pooling"):
        RecurrentSentenceEncoder(words(), dim=5, units=5).step_terms(IDS)
    with raises_argument("recurrent"):
        ConvolutionalSentenceEncoder(words(), 3, length=6, stages=STAGES).step_terms(IDS)


@pytest.mark.parametrize("encoder", ["char-cnn-rnn", "word-lstm", "bow"])
def test_the_score_of_a_run(sje_run, flowers, encoder: str) -> None:
    run, split = sje_run(encoder), flowers.split("val")
    text = split.captions[0]
    traced = trace(run, split.keys[0], text)
    image = run.model.encode_images(run.images_of(flowers, split).gather(np.array([0])))
    expected = run.model.similarity.scores(image, run.model.encode_texts(run.tokenizer(tf.constant([text]))))
    np.testing.assert_allclose(traced.score, expected[0, 0], rtol=1e-4)
    np.testing.assert_allclose(traced.steps[-1].score, traced.score, rtol=1e-5)
    # The parts of the text are the text.
    assert "".join(step.text for step in traced.steps).replace(" ", "") == text.lower().replace(" ", "")


def test_the_cosine_of_a_run(trained, scenes, capsys, tmp_path) -> None:
    run = trained("linear-run", tiny(recipes.get("kiros2014-linear")), scenes)
    key, out, found = scenes.split("val").keys[0], tmp_path / "traced.png", tmp_path / "traced.json"
    assert main(["trace", str(run.path), key, "a red circle", "--out", str(out), "--json", str(found)]) == 0
    assert str(out) in capsys.readouterr().out
    with Image.open(out) as picture:
        assert picture.width > picture.height
    written = json.loads(found.read_text())
    assert [step["text"] for step in written["steps"]] == ["a", "red", "circle"]
    image = run.model.encode_images(run.images_of(scenes, scenes.split("val")).gather(np.array([0])))
    text = run.model.encode_texts(run.tokenizer(tf.constant(["a red circle"])))
    np.testing.assert_allclose(written["score"], run.model.similarity.scores(image, text)[0, 0], rtol=1e-4)
    np.testing.assert_allclose(sum(step["evidence"] for step in written["steps"]), written["score"], rtol=1e-5)


def test_a_run_without_such_a_sum(tiny_run, scenes, monkeypatch) -> None:
    monkeypatch.delattr(type(tiny_run.model.text_encoder), "step_terms")
    with raises_argument("run"):
        trace(tiny_run, scenes.split("val").keys[0], "a red circle")


def test_a_run_with_a_correction_for_hubs(trained, scenes) -> None:
    # Its embeddings have further entries, which are not a sum over the steps.
    run = trained("linear-hubs", tiny(recipes.get("kiros2014-linear"), "hub_bank=20"), scenes)
    with raises_argument("run"):
        trace(run, scenes.split("val").keys[0], "a red circle")

"""Likelihoods by shared beginnings, against the model on one pair at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from vsemb.encoders import ImageEncoder, WordEmbedding
from vsemb.errors import DataError
from vsemb.systems.captions import likelihoods as likelihoods_module
from vsemb.systems.captions.likelihoods import Likelihoods, log_mean
from vsemb.systems.captions.multimodal_rnn import AttentiveRNN, MultimodalRNN, SpatialFeatureEncoder

# The empty caption, one caption twice, and captions that begin alike; the first word of some is the only difference.
CAPTIONS = [[3, 4, 5], [], [3, 4], [3, 4, 5], [2, 4, 5, 6, 7], [3, 4, 5, 6], [7]]
IMAGES = 5


def model_of(dtype: str = "float32", **options: Any) -> MultimodalRNN:
    keras.utils.set_random_seed(3)
    gates = {"rnn": 1, "gru": 3, "lstm": 4}[options["cell"]]
    words = WordEmbedding(9, 6, dtype=dtype)
    if options.pop("attentive", False):
        model: MultimodalRNN = AttentiveRNN(
            SpatialFeatureEncoder(4, 8, dtype=dtype), words, units=8, heads=2, **options
        )
    else:
        model = MultimodalRNN(ImageEncoder(gates * 8, dtype=dtype), words, units=8, **options)
    model.build({"image": (None, 12), "text": (None, None)})
    random = np.random.default_rng(4)
    for weight in model.trainable_weights:
        weight.assign(random.normal(size=weight.shape))
    return model


def inputs() -> tuple[tf.Tensor, np.ndarray, np.ndarray]:
    images = np.random.default_rng(5).normal(size=(IMAGES, 12)).astype(np.float32)
    ids = np.array([word for caption in CAPTIONS for word in caption], np.int32)
    return tf.constant(images), ids, np.cumsum([0, *map(len, CAPTIONS)])


@pytest.mark.parametrize(
    ("options", "batch"),
    [
        ({"cell": "rnn"}, 1000),
        ({"cell": "gru", "image_steps": "all"}, 10),
        ({"cell": "lstm"}, 1),
        ({"cell": "lstm"}, 4),
        ({"cell": "lstm", "image_steps": "all", "attentive": True}, 10),
    ],
    ids=str,
)
def test_likelihoods_are_those_of_single_pairs(options, batch, monkeypatch) -> None:
    monkeypatch.setattr(likelihoods_module, "_PAIRS", batch)
    model = model_of(**options)
    images, ids, offsets = inputs()
    measured = Likelihoods(SimpleNamespace(model=model)).of_all(images, ids, offsets)
    assert measured.shape == (IMAGES, len(CAPTIONS))
    for image, row in zip(images.numpy(), measured, strict=True):
        for caption, likelihood in zip(CAPTIONS, row, strict=True):
            pair = {"image": image[None], "text": np.array([[*caption, 0]], np.int32)}
            assert likelihood == pytest.approx(model.log_likelihoods(pair).numpy().sum(), rel=1e-5, abs=1e-5)


def test_one_step_per_image_and_distinct_beginning(monkeypatch) -> None:
    """Beginnings: of no word 1; 2, 3, 7; 24, 34; 245, 345; 2456, 3456; 24567. So 1 + 3 + 2 + 2 + 2 + 1 = 11."""
    likelihoods = Likelihoods(SimpleNamespace(model=model_of(cell="lstm")))
    rows = []
    stepped = likelihoods._step
    monkeypatch.setattr(
        likelihoods, "_step", lambda state, before, *rest: rows.append(len(before)) or stepped(state, before, *rest)
    )
    likelihoods.of_all(*inputs())
    assert rows == [IMAGES * count for count in (1, 3, 2, 2, 2, 1)]


def test_pairs_in_any_order_are_those_of_all() -> None:
    likelihoods = Likelihoods(SimpleNamespace(model=model_of(cell="gru")))
    images, ids, offsets = inputs()
    every = likelihoods.of_all(images, ids, offsets)
    random = np.random.default_rng(6)
    rows, captions = random.integers(0, IMAGES, 20), random.integers(0, len(CAPTIONS), 20)
    measured = likelihoods.of_pairs(images, ids, offsets, rows, captions)
    np.testing.assert_allclose(measured, every[rows, captions], rtol=1e-5)


def test_bfloat16_is_that_of_the_run() -> None:
    low, high = (
        Likelihoods(SimpleNamespace(model=model_of(dtype, cell="lstm"))).of_all(*inputs())
        for dtype in ("mixed_bfloat16", "float32")
    )
    assert 0 < np.abs(low - high).max() < 0.05 * np.abs(high).max()


def test_a_broken_model_is_refused() -> None:
    model = model_of(cell="gru")
    model.output_bias.assign(np.full(9, np.nan))
    with pytest.raises(DataError):
        Likelihoods(SimpleNamespace(model=model)).of_all(*inputs())


def test_the_mean_of_small_probabilities_does_not_vanish() -> None:
    """The mean of e^-1000 and e^-1001 is e^-1000 (1 + 1/e) / 2."""
    assert log_mean(np.array([[-1000.0], [-1001.0]]))[0] == pytest.approx(-1000 + np.log((1 + np.exp(-1)) / 2))

"""Similarities: geometry, scores, names."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.contract import check_config
from vsemb import similarities
from vsemb.errors import InvalidArgumentError
from vsemb.similarities import Cosine, Dot


@pytest.mark.parametrize("name", similarities.SIMILARITIES)
def test_contract(name: str) -> None:
    similarity = similarities.get(name)
    check_config(similarity)
    x = tf.cast(np.random.default_rng(0).normal(size=(3, 8)), tf.bfloat16)
    normalised = similarity.normalize(x)
    assert normalised.dtype == tf.float32
    # In the similarity's own geometry already: a second time changes nothing.
    np.testing.assert_allclose(similarity.normalize(normalised), normalised, rtol=1e-6)
    scores = similarity.scores(normalised, normalised[:2])
    assert scores.shape == (3, 2) and scores.dtype == tf.float32


@pytest.mark.parametrize("name", similarities.SIMILARITIES)
def test_blocks_equal_the_whole(name: str) -> None:
    similarity = similarities.get(name)
    generator = np.random.default_rng(1)
    images, texts = (similarity.normalize(generator.normal(size=(n, 6))) for n in (7, 5))
    whole = similarity.scores(images, texts)
    for size in (1, 3, 7):
        blocks = [similarity.scores(images[i : i + size], texts) for i in range(0, 7, size)]
        np.testing.assert_allclose(tf.concat(blocks, 0), whole, rtol=1e-5, atol=1e-6)


def test_by_hand() -> None:
    image, text = np.array([[3.0, 4.0]], np.float32), np.array([[0.0, 2.0]], np.float32)
    assert float(Dot().scores(image, text)[0, 0]) == 8
    cosine = Cosine()
    # (3, 4)/5 times (0, 1).
    np.testing.assert_allclose(
        cosine.scores(cosine.normalize(image), cosine.normalize(text)), [[0.8]], rtol=1e-6
    )


def test_get() -> None:
    cosine = Cosine()
    assert similarities.get(cosine) is cosine
    with pytest.raises(InvalidArgumentError, match="Did you mean 'cosine'"):
        similarities.get("cosin")

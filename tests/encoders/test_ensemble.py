"""An ensemble of text encoders: embeddings one behind the other, a loss of each member's own."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from tests.raising import raises_argument
from tests.tiny import tiny
from vsemb.encoders import ImageEncoder, LinearSentenceEncoder, WordEmbedding
from vsemb.encoders.ensemble import Ensemble, EnsembleEncoder
from vsemb.losses import PairwiseRanking
from vsemb.models import DualEncoder
from vsemb.recipes import get
from vsemb.similarities import MeanCosine

BATCH = {
    "image": np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32),
    "text": np.array([[1, 2], [3, 0], [4, 5], [6, 0]], np.int32),
    "image_id": np.arange(4),
}


def member(seed: int) -> LinearSentenceEncoder:
    encoder = LinearSentenceEncoder(WordEmbedding(9, 3, init_scale=1.0))
    encoder.build((None, None))
    encoder.words.table.assign(np.random.default_rng(seed).normal(size=(9, 3)))
    return encoder


def loss_of(model: DualEncoder) -> float:
    model.compile("sgd", loss=PairwiseRanking(0.2))
    tensors = {name: tf.constant(value) for name, value in BATCH.items()}
    return float(model.compute_loss(x=tensors, y_pred=model(tensors)))


def test_each_member_has_a_loss_of_its_own() -> None:
    together = DualEncoder(ImageEncoder(6), EnsembleEncoder([member(1), member(2)]), MeanCosine(2))
    together.build({"image": (None, 6), "text": (None, None)})
    kernel = together.image_encoder.affine.kernel.numpy()
    losses, scores = [], []
    for number in range(2):
        alone = DualEncoder(ImageEncoder(3), member(number + 1))
        alone.build({"image": (None, 6), "text": (None, None)})
        alone.image_encoder.affine.kernel.assign(kernel[:, 3 * number : 3 * number + 3])
        losses.append(loss_of(alone))
        images, texts = alone.encode_images(BATCH["image"]), alone.encode_texts(BATCH["text"])
        scores.append(alone.similarity.scores(images, texts).numpy())
    np.testing.assert_allclose(loss_of(together), np.mean(losses), rtol=1e-5)
    images, texts = together.encode_images(BATCH["image"]), together.encode_texts(BATCH["text"])
    np.testing.assert_allclose(together.similarity.scores(images, texts), np.mean(scores, axis=0), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(images, axis=1), 1.0, rtol=1e-5)


def test_saved_and_loaded(tmp_path) -> None:
    model = DualEncoder(ImageEncoder(6), EnsembleEncoder([member(1), member(2)]), MeanCosine(2))
    model.build({"image": (None, 6), "text": (None, None)})
    model.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(again.encode_texts(BATCH["text"]), model.encode_texts(BATCH["text"]))


def test_sizes_that_do_not_divide() -> None:
    recipe = tiny(get("best", "frozen"), "embedding_dim=16", "text.encoder.members=3")
    with raises_argument("embedding_dim"):
        recipe.build(20, {"feature_dim": 5}, "float32")
    with raises_argument("text.encoder.encoder"):
        Ensemble(get("dvsa").text.encoder)

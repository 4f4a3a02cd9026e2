"""Encoders with a learned factor: contracts, the factor by hand, its bound, and the parts of recipes."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from tests.contract import check_layer, check_padding
from tests.raising import raises_argument
from vsemb import recipes
from vsemb.encoders import ImageEncoder, LinearSentenceEncoder, WordEmbedding
from vsemb.systems.hyperbolic.scaling import LearnedFactor, Scaled, ScaledImageEncoder, ScaledTextEncoder

IDS = np.array([[2, 3, 0], [4, 5, 6]], np.int32)
FEATURES = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)


def texts(dtype: str = "float32") -> ScaledTextEncoder:
    words = WordEmbedding(9, 4, init_scale=1.0, dtype=dtype)
    return ScaledTextEncoder(LinearSentenceEncoder(words, dtype=dtype), dtype=dtype)


def test_contracts(tmp_path) -> None:
    check_layer(texts, [IDS], tmp_path, sequence=True)
    check_layer(lambda dtype="float32": ScaledImageEncoder(4, dtype=dtype), [FEATURES], tmp_path)
    check_padding(texts(), IDS)


def test_the_embedding_times_one_over_the_root_of_its_size() -> None:
    scaled = ScaledImageEncoder(4)
    embeddings = scaled(FEATURES)
    plain = ImageEncoder(4)
    plain.build(FEATURES.shape)
    plain.set_weights(scaled.affine.get_weights())
    np.testing.assert_allclose(embeddings, plain(FEATURES) / 2, rtol=1e-6)
    layer = texts()
    np.testing.assert_allclose(layer(IDS), layer.encoder(IDS) / 2, rtol=1e-6)


def test_the_factor_is_bounded() -> None:
    layer = LearnedFactor(1.0, maximum=2.0)
    layer.build((None, 4))
    optimizer = keras.optimizers.SGD(10.0)
    optimizer.apply([np.float32(-1.0)], [layer.log_factor])
    np.testing.assert_allclose(layer(np.ones((1, 2))), 2.0, rtol=1e-6)
    with raises_argument("initial"):
        LearnedFactor(3.0, maximum=2.0)


def test_a_wrong_encoder_is_refused() -> None:
    with raises_argument("text.encoder.encoder"):
        recipes.get("meru").with_overrides(["text.encoder.encoder=contextual-tokens"])


@pytest.mark.parametrize("kind", ["linear", "recurrent"])
def test_any_text_encoder_of_one_vector(kind: str) -> None:
    recipe = recipes.get("meru").with_overrides([f"text.encoder.encoder={kind}", "embedding_dim=300"])
    assert isinstance(recipe.text.encoder, Scaled)
    model = recipe.build(9, {"feature_dim": 6}, "float32")
    assert model.encode_texts(IDS).shape == (2, 300) and model.encode_images(FEATURES).shape == (4, 300)

"""Encoders of normal distributions: contracts, the start by hand, and the parts of recipes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contract import check_layer, check_padding
from tests.raising import raises_argument
from vsemb import recipes
from vsemb.encoders import LinearSentenceEncoder, WordEmbedding
from vsemb.systems.probabilistic.gaussians import total_variance
from vsemb.systems.probabilistic.heads import Gaussian, GaussianImageEncoder, GaussianTextEncoder

IDS = np.array([[2, 3, 0], [4, 5, 6]], np.int32)
FEATURES = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)


def texts(dtype: str = "float32") -> GaussianTextEncoder:
    words = WordEmbedding(9, 4, init_scale=1.0, dtype=dtype)
    return GaussianTextEncoder(LinearSentenceEncoder(words, dtype=dtype), dtype=dtype)


def test_contracts(tmp_path) -> None:
    check_layer(texts, [IDS], tmp_path, sequence=True)
    check_layer(lambda dtype="float32": GaussianImageEncoder(4, dtype=dtype), [FEATURES], tmp_path)
    check_padding(texts(), IDS)


def test_an_item_without_evidence_has_the_variance_of_the_start() -> None:
    layer = GaussianImageEncoder(8, variance=0.5)
    np.testing.assert_allclose(total_variance(layer(np.zeros((1, 6)))), [0.5], rtol=1e-6)
    np.testing.assert_allclose(total_variance(texts()(np.zeros((1, 3), np.int32))), [0.1], rtol=1e-6)


def test_odd_sizes_are_refused() -> None:
    with raises_argument("embedding_dim"):
        GaussianImageEncoder(5)
    with raises_argument("embedding_dim"):
        recipes.get("pcme").with_overrides(["embedding_dim=9"]).build(9, {"feature_dim": 6}, "float32")
    with raises_argument("embedding_dim"):
        GaussianTextEncoder(LinearSentenceEncoder(WordEmbedding(9, 5)))(IDS)


def test_a_wrong_encoder_is_refused() -> None:
    with raises_argument("text.encoder.encoder"):
        recipes.get("pcme").with_overrides(["text.encoder.encoder=contextual-tokens"])


@pytest.mark.parametrize("kind", ["linear", "recurrent"])
def test_any_text_encoder_of_one_vector(kind: str) -> None:
    recipe = recipes.get("pcme").with_overrides([f"text.encoder.encoder={kind}", "embedding_dim=300"])
    assert isinstance(recipe.text.encoder, Gaussian)
    model = recipe.build(9, {"feature_dim": 6}, "float32")
    rows = np.asarray(model.encode_texts(IDS)), np.asarray(model.encode_images(FEATURES))
    assert [len(row[0]) for row in rows] == [300, 300]
    for each in rows:
        np.testing.assert_allclose(np.linalg.norm(each[:, :150], axis=1), 1, rtol=1e-5)

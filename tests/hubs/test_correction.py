"""Embeddings corrected for hubs: scores in loops, length, ensembles, what is saved and refused."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from tests.contract import SAME
from tests.raising import raises_argument
from vsemb.hubs import HubCorrection
from vsemb.similarities import MeanCosine

SIZE, NEIGHBOURS, DIM = 7, 3, 6


def unit(rows: int, seed: int, dim: int = DIM) -> np.ndarray:
    # Around a common vector, as embeddings of real models are.
    vectors = np.random.default_rng(seed).normal(size=(rows, dim)) + 0.5
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def filled(members: int = 1, dim: int = DIM) -> HubCorrection:
    layer = HubCorrection(dim, members=members, size=SIZE, neighbours=NEIGHBOURS)
    similarity = MeanCosine(members)
    layer.fill(*(np.asarray(similarity.normalize(unit(SIZE, seed, dim))) for seed in (1, 2)))
    return layer


def nearness(items: np.ndarray, others: np.ndarray) -> np.ndarray:
    return np.array([np.mean(sorted(other @ item for other in others)[-NEIGHBOURS:]) for item in items])


def test_scores_in_loops() -> None:
    images, texts, bank_images, bank_texts = unit(5, 3), unit(4, 4), unit(SIZE, 1), unit(SIZE, 2)
    of_images = nearness(images, bank_texts) - nearness(bank_images, bank_texts).mean()
    of_texts = nearness(texts, bank_images) - nearness(bank_texts, bank_images).mean()
    own = [-(1 - 0.3**2) / 0.6 * each for each in (of_images, of_texts)]
    assert max(np.abs(each).max() for each in own) < 0.7
    lengths = [np.sqrt(1 - 0.09 - each**2) for each in own]
    expected = [
        [lengths[0][i] * lengths[1][j] * (images[i] @ texts[j]) + 0.3 * (own[0][i] + own[1][j]) for j in range(4)]
        for i in range(5)
    ]
    layer = filled()
    extended = [np.asarray(layer(rows, side=side)) for side, rows in (("image", images), ("text", texts))]
    np.testing.assert_allclose(extended[0] @ extended[1].T, expected, atol=1e-6)
    np.testing.assert_allclose([np.linalg.norm(each, axis=1).mean() for each in extended], 1, atol=1e-6)


def test_members_are_corrected_one_by_one() -> None:
    similarity, layer = MeanCosine(2), filled(members=2)
    rows = np.asarray(similarity.normalize(unit(5, 3)))
    extended = layer(rows, side="image")
    assert extended.shape == layer.compute_output_shape((5, DIM)) == (5, DIM + 4)
    # An ensemble takes the result for embeddings of its own.
    np.testing.assert_allclose(similarity.normalize(extended), extended, **SAME)
    for number, part in enumerate(similarity.split(ops.convert_to_tensor(rows))):
        alone = HubCorrection(DIM // 2, size=SIZE, neighbours=NEIGHBOURS)
        banks = [np.asarray(similarity.split(similarity.normalize(unit(SIZE, seed)))[number]) for seed in (1, 2)]
        alone.fill(*banks)
        np.testing.assert_allclose(similarity.split(extended)[number], alone(part, side="image"), **SAME)


def test_an_empty_bank_changes_no_order_and_zeros_stay_zeros() -> None:
    layer = HubCorrection(DIM, size=SIZE, neighbours=NEIGHBOURS)
    images, texts = unit(5, 3), unit(9, 4)
    extended = [np.asarray(layer(rows, side=side)) for side, rows in (("image", images), ("text", texts))]
    np.testing.assert_allclose(extended[0] @ extended[1].T, 0.91 * images @ texts.T, atol=1e-6)
    for side in ("image", "text"):
        np.testing.assert_array_equal(filled()(np.zeros((2, DIM), np.float32), side=side), np.zeros((2, DIM + 2)))


def test_corrected_embeddings_fill_a_bank_as_well() -> None:
    for members in (1, 2):
        layer = filled(members)
        weights = layer.get_weights()
        rows = [np.asarray(MeanCosine(members).normalize(unit(SIZE, seed))) for seed in (1, 2)]
        layer.fill(*(np.asarray(layer(each, side=side)) for each, side in zip(rows, ("image", "text"), strict=True)))
        for weight, expected in zip(layer.get_weights(), weights, strict=True):
            np.testing.assert_allclose(weight, expected, atol=1e-6)


def test_saved_with_its_bank(tmp_path: Path) -> None:
    layer = filled()
    inputs = keras.Input((DIM,))
    keras.Model(inputs, layer(inputs, side="text")).save(tmp_path / "model.keras")
    reloaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(reloaded(unit(3, 5)), layer(unit(3, 5), side="text"), **SAME)


@pytest.mark.parametrize(
    ("options", "argument"),
    [({"members": 4}, "dim"), ({"neighbours": 8}, "neighbours")],
)
def test_arguments_that_do_not_fit(options: dict, argument: str) -> None:
    with raises_argument(argument):
        HubCorrection(DIM, **{"size": SIZE, "neighbours": NEIGHBOURS, **options})


def test_a_bank_of_another_size() -> None:
    with raises_argument("text"):
        filled().fill(unit(SIZE, 0), unit(3, 0))

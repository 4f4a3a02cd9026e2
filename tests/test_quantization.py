"""Codes of one byte and one bit, against values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.evaluation import evaluate_retrieval
from vsemb.quantization import dequantize, int8_codes, quantize
from vsemb.searching.index import SearchIndex
from vsemb.similarities import MeanCosine

# Unit vectors of eight numbers: the largest magnitudes are 0.8 and 0.5.
ROWS = np.array([[0.8, -0.6, 0, 0, 0, 0, 0, 0], [0.5, 0.5, -0.5, -0.5, 0, 0, 0, 0]], np.float32)


def unit_rows(count: int, dim: int = 64, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def test_a_byte_is_the_share_of_the_largest_magnitude() -> None:
    # -0.6 / 0.8 * 127 = -95.25
    codes = quantize(ROWS, "int8")
    assert codes.dtype == np.int8
    assert codes.tolist() == [[127, -95, 0, 0, 0, 0, 0, 0], [127, 127, -127, -127, 0, 0, 0, 0]]
    # Without lengths: 127 / sqrt(127² + 95²) = 0.80076
    np.testing.assert_allclose(dequantize(codes)[0, :2], [0.80076, -0.59899], atol=1e-5)
    assert int8_codes(np.zeros((1, 3)))[0].tolist() == [[0, 0, 0]]
    assert dequantize(np.zeros((1, 3), np.int8)).tolist() == [[0, 0, 0]]


def test_rows_are_quantized_by_themselves() -> None:
    rows = unit_rows(50)
    for precision in ("int8", "ubinary"):
        alone = np.concatenate([quantize(row[None], precision) for row in rows])
        np.testing.assert_array_equal(quantize(rows, precision), alone)


def test_a_bit_is_a_sign() -> None:
    bits = quantize(ROWS, "ubinary")
    assert bits.dtype == np.uint8 and bits.tolist() == [[0b10000000], [0b11000000]]
    rows = unit_rows(20, 24)
    np.testing.assert_array_equal(quantize(rows, "ubinary"), np.packbits(rows > 0, axis=1))
    # One of eight bits differs: 1 - 2 / 8.
    assert np.matmul(*dequantize(bits)).item() == pytest.approx(0.75)
    with raises_argument("precision"):
        quantize(unit_rows(2, 12), "ubinary")


def test_cosines_of_int8_are_near() -> None:
    images, texts = unit_rows(30), unit_rows(40, seed=1)
    coded = dequantize(quantize(images, "int8")) @ dequantize(quantize(texts, "int8")).T
    assert 0 < np.abs(coded - images @ texts.T).max() < 0.01


def test_numbers_and_names() -> None:
    rows = unit_rows(2)
    assert quantize(rows, "float32") is rows
    np.testing.assert_array_equal(dequantize(rows), rows)
    # Signed bits have the dtype of int8 codes, and could not be told from them.
    for unknown in ("binary", "uint8", "float16"):
        with raises_argument("precision"):
            quantize(rows, unknown)  # type: ignore[arg-type]


@pytest.mark.parametrize("similarity", ["cosine", MeanCosine(2)])
def test_evaluation_and_index_read_codes(similarity) -> None:
    images = unit_rows(40)
    for precision in ("int8", "ubinary"):
        coded = quantize(images, precision)
        metrics = evaluate_retrieval(coded, coded, similarity=similarity)
        assert metrics.image_to_text["R@1"] == metrics.text_to_image["R@1"] == 100
        mixed = evaluate_retrieval(coded, images, similarity=similarity)
        assert mixed.image_to_text["R@1"] == 100
        index = SearchIndex.from_arrays(coded, similarity=similarity)
        assert index.dim == 64 and index.search(images, 1)[0][:, 0].tolist() == list(range(40))
    # Inner products of raw vectors keep integers as numbers: 2 x 2 = 4 is more than 2 x 1.
    raw = evaluate_retrieval(np.array([[1], [2]], np.int8), np.array([[1], [2]], np.int8), similarity="dot")
    assert raw.image_to_text["R@1"] == 50

"""Ranks from rounded scores: those of brute force, with ties and near ties, or none at all."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.evaluation.test_retrieval import DOT, random_split, slow_ranks
from vsemb.evaluation import rank_scan, retrieval, retrieval_ranks
from vsemb.evaluation.rank_scan import scanned_ranks

CAPTIONS = 3


def unit_vectors(images: int, dim: int, noise: float, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Unit vectors of images, of texts around them, and the image of each text."""
    generator = np.random.default_rng(seed)
    vectors = generator.normal(size=(images, dim))
    own = np.repeat(np.arange(images), CAPTIONS)
    texts = vectors[own] + noise * generator.normal(size=(len(own), dim))
    order = generator.permutation(len(own))
    vectors, texts = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (vectors, texts))
    return vectors.astype(np.float32), texts[order].astype(np.float32), own[order]


def brute_force(images: np.ndarray, texts: np.ndarray, own: np.ndarray) -> list[list[int]]:
    # Pair by pair, as the scan scores what rounding cannot decide.
    scores = np.stack([np.einsum("nd,nd->n", np.broadcast_to(row, texts.shape), texts) for row in images])
    positive = own[None] == np.arange(len(images))[:, None]
    return [slow_ranks(scores, positive), slow_ranks(scores.T, positive.T)]


def check_ranks(images: np.ndarray, texts: np.ndarray, own: np.ndarray, *tile: int) -> tuple[np.ndarray, ...]:
    """Check that a scan ranks as brute force does, and return its ranks."""
    ranks = scanned_ranks(images, texts, own, *tile)
    assert ranks is not None
    assert [of_side.tolist() for of_side in ranks] == brute_force(images, texts, own)
    return ranks


@pytest.fixture(autouse=True, params=[0.0, 2.0], ids=["counted", "looked up"])
def however_much_is_close(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of counting, and neither gives up."""
    monkeypatch.setattr(rank_scan, "_FEW", request.param)
    monkeypatch.setattr(rank_scan, "_MOST", 2.0)


@pytest.mark.parametrize("noise", [0.5, 2.0, 20.0], ids=["good", "fair", "bad"])
@pytest.mark.parametrize("tile", [(7, 70), (50, 40), (1000, 1000)])
def test_equals_brute_force(noise: float, tile: tuple[int, int]) -> None:
    images, texts, own = unit_vectors(50, 24, noise)
    check_ranks(images, texts, own, *tile)


@pytest.mark.parametrize("seed", range(3))
def test_ties(seed: int) -> None:
    inputs = random_split(seed, images=40)
    order = np.argsort(inputs["image_ids"])
    own = order[np.searchsorted(inputs["image_ids"], inputs["text_image_ids"], sorter=order)]
    ranks = scanned_ranks(inputs["images"], inputs["texts"], own, 16, 90)
    assert ranks is not None
    for mine, plain in zip(ranks, retrieval_ranks(**inputs, similarity=DOT), strict=True):
        np.testing.assert_array_equal(mine, plain)


def test_near_ties_that_rounding_would_turn() -> None:
    """Every text is all but its image, and so is every other image: nothing is decided by rounded scores."""
    images, texts, own = unit_vectors(20, 16, 1e-4)
    images = (images[:1] + 1e-4 * images).astype(np.float32)
    texts = (texts[:1] + 1e-4 * texts).astype(np.float32)
    check_ranks(images, texts, own, 20, 90)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dim", [1, 2])
def test_where_the_bound_is_tight(dim: int, seed: int) -> None:
    """In one dimension Cauchy's inequality is an equation, and rounding decides most ranks by itself."""
    generator = np.random.default_rng(seed)
    own = generator.permutation(np.repeat(np.arange(60), CAPTIONS))
    images = (1 + 0.02 * generator.random((60, dim))).astype(np.float32)
    texts = (1 + 0.02 * generator.random((len(own), dim))).astype(np.float32)
    check_ranks(images, texts, own, 25, 90)


def test_equal_vectors_tie_over_blocks() -> None:
    images, texts, own = unit_vectors(40, 16, 1.0)
    images[20:] = images[:20]
    texts[60:] = texts[:60]
    ranks = check_ranks(images, texts, own, 13, 90)
    # Every image has a double, which scores as high as it does.
    assert (ranks[1] >= 1).all()


def test_lengths_of_all_sizes() -> None:
    images, texts, own = unit_vectors(30, 16, 1.0)
    lengths = np.random.default_rng(1)
    images *= (10 ** lengths.uniform(-3, 3, (30, 1))).astype(np.float32)
    texts *= (10 ** lengths.uniform(-3, 3, (len(texts), 1))).astype(np.float32)
    check_ranks(images, texts, own, 30, 90)


def test_windows_hold_what_rounding_makes_of_a_score_and_little_more() -> None:
    exact, error = np.random.default_rng(0).normal(size=1000).astype(np.float32), np.float32(0.01)
    windows = rank_scan._windows(exact, error)
    for score in (exact - error, exact, exact + error):
        rounded = tf.cast(tf.cast(score, tf.bfloat16), tf.float32).numpy()
        assert ((windows.low <= rounded) & (rounded <= windows.high)).all()
    # bfloat16 has eight bits.
    assert (windows.high - windows.low <= 2 * (error + 1.1 * 2**-8 * (np.abs(exact) + error))).all()


def test_tiles_are_as_few_as_the_size_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    images, texts, own = unit_vectors(20, 16, 1.0)
    shapes, multiply = [], tf.matmul
    monkeypatch.setattr(
        rank_scan.tf, "matmul", lambda x, y, **o: shapes.append((len(x), len(y))) or multiply(x, y, **o)
    )
    assert scanned_ranks(images, texts, own, 7, 25) is not None
    assert len(shapes) == 9 and sum(height * width for height, width in shapes) == 20 * 60
    assert max(shapes) <= (7, 25)


@pytest.mark.parametrize("columns", [40, 64, 70])
def test_what_is_ahead_and_what_is_close(columns: int) -> None:
    """Most scores are far behind, so that each condition decides for some groups alone; some are the limits."""
    generator = np.random.default_rng(columns)
    scores = generator.integers(-250, 9, (200, columns)).astype(np.float32)
    low_row, low_column = np.float32(6 + generator.integers(3, size=(200, 1))), np.float32(5 + np.arange(columns) % 5)
    high_row, high_column = low_row + 1, low_column + 1

    def groups(marked: np.ndarray) -> np.ndarray:
        starts = range(0, columns, rank_scan._GROUP)
        return np.stack([marked[:, start : start + rank_scan._GROUP].any(axis=1) for start in starts], axis=1)

    products = tf.constant(scores, tf.bfloat16)
    marked = groups((scores >= low_row) | (scores >= low_column))
    np.testing.assert_array_equal(rank_scan._mark_not_behind(products, low_row, low_column[None]), marked)
    assert 0.1 < marked.mean() < 0.9
    in_rows, in_columns, close = rank_scan._count(products, low_row, high_row, low_column[None], high_column[None])
    np.testing.assert_array_equal(in_rows, (scores > high_row).sum(axis=1))
    np.testing.assert_array_equal(in_columns, (scores > high_column).sum(axis=0))
    row_close = (scores >= low_row) & (scores <= high_row)
    column_close = (scores >= low_column) & (scores <= high_column)
    np.testing.assert_array_equal(close, groups(row_close | column_close))


def test_rows_whose_squares_underflow() -> None:
    images, texts, own = unit_vectors(20, 16, 1.0)
    images[7] *= np.float32(1e-24)
    texts *= np.float32(1e18)
    check_ranks(images, texts, own, 20, 90)


def test_what_it_leaves_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    images, texts, own = unit_vectors(20, 16, 1.0)
    for value in (np.nan, np.inf, 1e30):
        broken = images.copy()
        broken[3, 2] = value
        assert scanned_ranks(broken, texts, own, 20, 90) is None
    with monkeypatch.context() as patch:
        # A processor whose products are worse than the bound.
        patch.setattr(rank_scan.tf, "matmul", lambda x, y, **_: tf.cast(1.1 * images @ texts.T, tf.bfloat16))
        assert scanned_ranks(images, texts, own, 20, 90) is None
    monkeypatch.setattr(rank_scan, "_FEW", 0.05)
    monkeypatch.setattr(rank_scan, "_MOST", 0.15)
    assert scanned_ranks(np.ones_like(images), np.ones_like(texts), own, 20, 90) is None


def test_many_scores_are_scanned_with_the_same_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    images, texts, own = unit_vectors(60, 24, 2.0)
    ids = np.random.default_rng(0).permutation(60)
    plain = retrieval_ranks(images, texts, ids, ids[own], DOT)
    monkeypatch.setattr(retrieval, "worth_a_scan", lambda images, texts: True)
    scans = []

    def counted(*arguments):
        scans.append(scanned_ranks(*arguments))
        return scans[-1]

    monkeypatch.setattr(retrieval, "scanned_ranks", counted)
    for mine, theirs in zip(retrieval_ranks(images, texts, ids, ids[own], DOT), plain, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert len(scans) == 1 and scans[0] is not None


def test_what_is_worth_a_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_scan, "multiplies_bfloat16", lambda: True)
    assert rank_scan.worth_a_scan(5000, 25_000) and not rank_scan.worth_a_scan(1000, 5000)
    monkeypatch.setattr(rank_scan, "multiplies_bfloat16", lambda: False)
    assert not rank_scan.worth_a_scan(5000, 25_000)

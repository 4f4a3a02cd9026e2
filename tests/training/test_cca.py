"""Canonical correlation against correlations that are known."""

from __future__ import annotations

import numpy as np
import pytest

from vsemb.errors import DataError
from vsemb.training.initialization import canonical_correlation


def data():
    """Images with three hidden traits; each caption names, for each trait, its sign."""
    generator = np.random.default_rng(0)
    traits = generator.normal(size=(500, 3))
    features = traits @ generator.normal(size=(3, 20)) + 0.1 * generator.normal(size=(500, 20))
    named = 2 + 2 * np.arange(3) + (traits > 0)  # (500, 3), words 2 and 3 for trait 0, and so on
    ids = np.repeat(named, 2, axis=0).reshape(-1).astype(np.int32)
    return ids, 3 * np.arange(1001), np.repeat(np.arange(500), 2), features.astype(np.float32)


def test_maps_correlate_as_much_as_they_say():
    ids, offsets, rows, features = data()
    words, image, correlations = canonical_correlation(
        ids, offsets, rows, features, np.ones(8), 6, text_ridge=1e-4, image_ridge=1e-4
    )
    # A normal variable and its sign correlate by sqrt(2 / pi) = 0.798.
    np.testing.assert_allclose(correlations[:3], 0.798, atol=0.04)
    assert (correlations[3:] < 0.01).all()
    bags = np.zeros((1000, 8))
    bags[np.repeat(np.arange(1000), 3), ids] = 1 / np.sqrt(3)
    seen, text = features[rows] @ image[:, :3], bags @ words[:, :3]
    measured = [np.corrcoef(seen[:, k], text[:, k])[0, 1] for k in range(3)]
    # The ridge shrinks what is reported a little below what is there.
    np.testing.assert_allclose(measured, correlations[:3], atol=0.01)


def test_more_dimensions_than_the_data_has_are_zero():
    words, image, _ = canonical_correlation(*data(), np.ones(8), 32)
    assert words.shape == (8, 32) and image.shape == (20, 32)
    assert not words[:, 8:].any() and not image[:, 8:].any()
    assert np.isfinite(words).all()


def test_rare_words_are_left_out():
    # Words 6 and 7 are those of the third trait: without them two correlations are left.
    words, _, correlations = canonical_correlation(*data(), np.ones(8), 6, max_words=6)
    assert not words[6:].any() and words[2:6].any()
    assert (correlations[:2] > 0.5).all() and (correlations[2:] < 0.1).all()


def test_captions_that_are_all_the_same_are_refused():
    ids, offsets = np.tile([2, 3], 10).astype(np.int32), 2 * np.arange(11)
    features = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    with pytest.raises(DataError, match="initialization=random"):
        canonical_correlation(ids, offsets, np.arange(10), features, np.ones(4), 2)
    with pytest.raises(DataError):
        canonical_correlation(ids % 4, offsets, np.arange(10), np.ones((10, 4), np.float32), np.ones(4), 2)

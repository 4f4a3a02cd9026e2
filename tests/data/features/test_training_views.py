"""Views that are drawn from in training: mirror images and ten crops, beside the image itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.data.features.compute import cache_features
from vsemb.data.sources import FeatureImages
from vsemb.image.backbones import BackboneConfig

CONFIG = BackboneConfig("SmallConvNet", size=32)
TEN = replace(CONFIG, crops=10)


@pytest.fixture
def dataset(tiny, tmp_path):
    return tiny.write(tiny.records(5), tmp_path / "data")


@pytest.mark.slow
def test_mirror_images_are_views_for_training_only(dataset) -> None:
    plain = cache_features(dataset, CONFIG, weights=None, batch_size=2)
    both = cache_features(dataset, CONFIG, weights=None, batch_size=2, mirror=True)
    assert both.shape == (5, 2, 256) and list(both.training_views) == [0, 1] and not plain.training_views
    assert both.fingerprint != plain.fingerprint
    ids = np.array([4, 0, 2])
    # Other batches of the same images may differ in the last bits.
    np.testing.assert_allclose(both.rows(ids), plain.rows(ids), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(both.rows(ids), both.views(ids)[:, 0])
    assert not np.allclose(both.views(ids)[:, 1], both.views(ids)[:, 0])
    split = dataset.split(dataset.splits[0])
    images = FeatureImages(both, split, augment=True)
    rows = np.zeros(64, np.int64)
    drawn = next(images.stream([rows], np.array([[1, 2]])))
    (views,) = both.views(split.ids[:1])
    is_first, is_second = ((drawn == view).all(axis=1) for view in views)
    assert (is_first | is_second).all() and 16 < is_first.sum() < 48  # 32 +- 4 deviations
    np.testing.assert_array_equal(images.gather(rows), FeatureImages(both, split).gather(rows))
    # The same views are drawn where features do not fit in memory.
    on_disk = FeatureImages(both, split, augment=True, memory=0)
    np.testing.assert_array_equal(next(on_disk.stream([rows], np.array([[1, 2]]))), drawn)
    with raises_argument("mirror"):
        cache_features(dataset, TEN, weights=None, mirror=True)


@pytest.mark.slow
def test_ten_crops_are_drawn_in_training_and_the_whole_image_is_measured(dataset) -> None:
    plain = cache_features(dataset, CONFIG, weights=None, batch_size=2)
    crops = cache_features(dataset, TEN, weights=None, batch_size=2, keep_crops=True)
    store = cache_features(dataset, CONFIG, weights=None, batch_size=2, training_crops=True)
    assert store.shape == (5, 11, 256) and list(store.training_views) == list(range(1, 11))
    assert len({plain.fingerprint, crops.fingerprint, store.fingerprint}) == 3
    assert not crops.training_views
    # Other batches of the same images may differ in the last bits.
    close = {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(store.rows(store.ids), plain.rows(store.ids), **close)
    np.testing.assert_allclose(store.views(store.ids)[:, 1:], crops.views(store.ids), **close)
    split = dataset.split("train")
    images = FeatureImages(store, split, augment=True)
    rows = np.zeros(200, np.int64)
    drawn = next(images.stream([rows], np.array([[1, 2]])))
    (views,) = store.views(split.ids[:1])
    counts = (drawn[:, None] == views).all(axis=2).sum(axis=0)
    # Never the whole image; each crop 20 times, give or take four deviations of 4.2.
    assert counts[0] == 0 and counts.sum() == 200 and counts[1:].min() > 3 and counts[1:].max() < 37
    # The whole image where nothing is drawn, in training data and for measuring.
    for source in (images, FeatureImages(store, split)):
        np.testing.assert_array_equal(source.gather(rows), views[:1].repeat(200, axis=0))
    with raises_argument("training_crops"):
        cache_features(dataset, TEN, weights=None, training_crops=True)
    with raises_argument("mirror"):
        cache_features(dataset, CONFIG, weights=None, mirror=True, training_crops=True)

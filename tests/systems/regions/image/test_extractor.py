"""From bytes to regions: configuration, the extractor in and out of graphs, selective search."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf

from vsemb.data.synthetic import generate
from vsemb.errors import InvalidArgumentError, MissingExtraError
from vsemb.image.backbones import BackboneConfig, build_backbone
from vsemb.image.decode import decode_images
from vsemb.systems.regions.image import (
    RegionConfig,
    RegionExtractor,
    feature_maps,
    objectness,
    selective_search,
)
from vsemb.systems.regions.image import extractor as module

SMALL = BackboneConfig("SmallConvNet", size=32)


@pytest.fixture(scope="module")
def backbone() -> keras.Model:
    return build_backbone(SMALL)


@pytest.fixture(scope="module")
def encoded() -> list[bytes]:
    return [record.image for record in generate({"val": 5}, seed=2)]


def test_configuration_round_trip_and_defaults():
    config = RegionConfig("selective-search", count=7, overlap=1, pooling="crops", rank="confidence")
    assert RegionConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert isinstance(config.overlap, float)
    assert RegionConfig() == RegionConfig("grid", 19, 0.5, "map", "objectness")
    assert RegionConfig().in_graph and not RegionConfig("detections").in_graph


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "grids"}, "Did you mean 'grid'"),
        ({"count": -1}, "count=-1"),
        ({"count": True}, "count=True"),
        ({"count": 501}, "from 0 to 500"),
        ({"overlap": 1.5}, "overlap=1.5"),
        ({"overlap": "half"}, "overlap='half'"),
        ({"overlap": float("nan")}, "overlap=nan"),
        ({"pooling": "crop"}, "Did you mean 'crops'"),
        ({"rank": "confidense"}, "Did you mean 'confidence'"),
        ({"rank": "confidence"}, "'objectness' for boxes of a grid"),
        ({"pool": "map"}, "Did you mean 'pooling'"),
    ],
)
def test_bad_configurations(options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        RegionConfig.from_json(options)


@pytest.fixture(scope="module", params=["map", "crops"])
def extract(request, backbone: keras.Model) -> Iterator[RegionExtractor]:
    """An extractor of four regions whose crops go through the network two images at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PIXELS_AT_ONCE", 2 * 4 * 32 * 32)
        yield RegionExtractor(SMALL, RegionConfig(count=3, pooling=request.param), backbone)


def test_regions_of_images(extract, backbone, encoded):
    cropped = extract.regions.pooling == "crops"
    assert (extract.count, extract.dim) == (4, 256 if cropped else 128)
    regions = extract(tf.constant(encoded))
    assert regions.features.shape == (5, 4, extract.dim) and regions.features.dtype == tf.float32
    assert regions.boxes.shape == (5, 4, 4) and regions.scores.shape == (5, 4)
    features, boxes, scores, valid = (part.numpy() for part in regions)
    assert valid.all()
    np.testing.assert_array_equal(boxes[:, 0], np.tile([0, 0, 1, 1], (5, 1)))
    np.testing.assert_array_equal(scores[:, 0], 1)
    padding = (boxes == 0).all(axis=-1)
    np.testing.assert_array_equal((features == 0).all(axis=-1), padding)
    np.testing.assert_array_equal(scores == 0, padding)
    pixels, _ = decode_images(tf.constant(encoded), 32)
    whole = backbone(pixels) if cropped else tf.reduce_mean(feature_maps(backbone, SMALL)(pixels), (1, 2))
    np.testing.assert_allclose(features[:, 0], whole, rtol=1e-4, atol=1e-5)  # batches of other sizes


def test_bad_images_leave_the_others_alone(extract, encoded):
    good = extract(tf.constant(encoded))
    regions = extract(tf.constant([encoded[0], b"", encoded[1], b"no image", *encoded[2:], encoded[0][:40]]))
    rows = [0, 2, 4, 5, 6]
    np.testing.assert_array_equal(np.flatnonzero(regions.valid), rows)
    np.testing.assert_array_equal(tf.gather(regions.boxes, rows), good.boxes)
    np.testing.assert_array_equal(tf.gather(regions.scores, rows), good.scores)
    # The network's last bits may differ in a batch of another size.
    np.testing.assert_allclose(tf.gather(regions.features, rows), good.features, rtol=1e-4, atol=1e-5)
    for part in (regions.features, regions.boxes, regions.scores):
        assert not part.numpy()[[1, 3, 7]].any()


def test_in_a_saved_model_with_any_batch(extract, backbone, encoded, tmp_path):
    exported = tf.Module()
    exported.backbone = backbone
    exported.extract = tf.function(
        lambda images: extract(images)._asdict(), [tf.TensorSpec([None], tf.string)], autograph=False
    )
    assert exported.extract.get_concrete_function().output_shapes["features"][1:] == (4, extract.dim)
    tf.saved_model.save(exported, tmp_path / "saved")
    loaded = tf.saved_model.load(tmp_path / "saved")
    got = loaded.extract(tf.constant(encoded))
    for part, expected in extract(tf.constant(encoded))._asdict().items():
        np.testing.assert_allclose(got[part], expected, rtol=1e-6, atol=1e-6)
    empty = loaded.extract(tf.zeros(0, tf.string))
    assert {name: tuple(part.shape) for name, part in empty.items()} == {
        "features": (0, 4, extract.dim),
        "boxes": (0, 4, 4),
        "scores": (0, 4),
        "valid": (0,),
    }


def candidates() -> np.ndarray:
    boxes = np.zeros((2, 6, 4), np.float32)
    boxes[0, :5] = [
        [0.5, 0.5, 0.25, 0.25],
        [0.52, 0.5, 0.25, 0.25],  # overlaps the first
        [-0.5, 0.0, 0.75, 0.5],  # clipped: x from 0, a quarter wide
        [0.0, 0.0, 1.0, 0.99],  # the whole image again
        [1.5, 0.0, 0.2, 0.2],  # outside
    ]
    boxes[1, :3] = [[0.1, np.nan, 0.2, 0.2], [0.2, 0.2, 0.0, 0.3], [0.1, 0.2, 0.3, 0.4]]
    return boxes


def test_candidates_come_best_first(backbone, encoded):
    extract = RegionExtractor(SMALL, RegionConfig("detections", count=3), backbone)
    regions = extract(tf.constant(encoded[:2]), candidates())
    expected = np.zeros((2, 4, 4), np.float32)
    expected[:, 0] = [0, 0, 1, 1]
    expected[0, 1:3] = [[0.5, 0.5, 0.25, 0.25], [0, 0, 0.25, 0.5]]
    expected[1, 1] = [0.1, 0.2, 0.3, 0.4]
    np.testing.assert_allclose(regions.boxes, expected, rtol=1e-6, atol=1e-6)  # x + w - x
    np.testing.assert_allclose(regions.scores[0], [1, 1, 1 / 3, 0], rtol=1e-6)
    wider = np.pad(candidates(), [(0, 0), (0, 5), (0, 0)])
    for part, again in zip(regions, extract(tf.constant(encoded[:2]), wider), strict=True):
        np.testing.assert_array_equal(part, again)


def test_candidates_with_scores(backbone, encoded):
    extract = RegionExtractor(SMALL, RegionConfig("detections", count=3), backbone)
    scores = np.array([[0.1, 0.3, 0.9, 1.0, 1.0, 1.0], [1, 1, 0.5, 0, 0, 0]], np.float32)
    regions = extract(tf.constant(encoded[:2]), candidates(), scores)
    np.testing.assert_allclose(regions.boxes[0, 1:3], [[0, 0, 0.25, 0.5], [0.52, 0.5, 0.25, 0.25]], atol=1e-6)
    np.testing.assert_allclose(regions.scores, [[1, 0.9, 0.3, 0], [1, 0.5, 0, 0]], rtol=1e-6)


def test_candidates_by_objectness(backbone, encoded):
    extract = RegionExtractor(SMALL, RegionConfig("selective-search", count=2, overlap=1), backbone)
    boxes = np.array([[[0.1, 0.1, 0.3, 0.3], [0.2, 0.4, 0.5, 0.5], [0.6, 0.1, 0.2, 0.6]]], np.float32)
    regions = extract(tf.constant(encoded[:1]), boxes)
    scores = objectness(decode_images(tf.constant(encoded[:1]), 32)[0], boxes).numpy()[0]
    order = np.argsort(-scores)[:2]
    np.testing.assert_allclose(regions.boxes[0, 1:], boxes[0, order], atol=1e-6)
    np.testing.assert_allclose(regions.scores[0, 1:], scores[order], rtol=1e-6)


def test_candidates_by_the_networks_own_confidence(backbone, encoded):
    features = keras.Input((None, 128))
    classifier = keras.Model(features, keras.layers.Dense(10, kernel_initializer="he_normal")(features))
    config = RegionConfig("selective-search", count=3, overlap=1, rank="confidence")
    extract = RegionExtractor(SMALL, config, backbone, classifier)
    regions = extract(tf.constant(encoded), np.tile(candidates()[:1], (5, 1, 1)))
    for row in range(5):
        rows = regions.boxes.numpy()[row, 1:].any(axis=-1)
        expected = tf.nn.softmax(classifier(regions.features[row : row + 1, 1:])[0]).numpy().max(axis=-1)
        np.testing.assert_allclose(regions.scores[row, 1:][rows], expected[rows], rtol=1e-4)
        assert (np.diff(expected[rows]) <= 1e-6).all() and rows.sum() == 3


def test_what_does_not_go_together(backbone, encoded):
    with pytest.raises(InvalidArgumentError, match="boxes=None"):
        RegionExtractor(SMALL, RegionConfig("detections"), backbone)(tf.constant(encoded))
    with pytest.raises(InvalidArgumentError, match="with the source 'grid'"):
        RegionExtractor(SMALL, RegionConfig(), backbone)(tf.constant(encoded), tf.zeros((5, 1, 4)))
    with pytest.raises(InvalidArgumentError, match="crops=10"):
        RegionExtractor(BackboneConfig("SmallConvNet", crops=10), RegionConfig(), backbone)
    with pytest.raises(InvalidArgumentError, match="'crops' with the layer fc7"):
        RegionExtractor(BackboneConfig("VGG16", layer="fc7"), RegionConfig(), backbone)


def test_the_whole_image_alone(backbone, encoded):
    regions = RegionExtractor(SMALL, RegionConfig(count=0, pooling="crops"), backbone)(tf.constant(encoded))
    np.testing.assert_array_equal(regions.boxes, np.tile([0, 0, 1, 1], (5, 1, 1)))
    pixels, _ = decode_images(tf.constant(encoded), 32)
    np.testing.assert_allclose(regions.features[:, 0], backbone(pixels), rtol=1e-4, atol=1e-5)


def test_selective_search():
    pytest.importorskip("cv2.ximgproc", reason="the extra regions is not installed")
    pixels = np.full((60, 80, 3), 250, np.uint8)
    pixels[10:40, 20:50] = (200, 30, 30)
    boxes = selective_search(pixels)
    assert boxes.dtype == np.float32 and boxes.shape[1] == 4
    assert np.abs(boxes - [20 / 80, 10 / 60, 30 / 80, 30 / 60]).max(axis=1).min() < 0.05
    areas = boxes[:, 2] * boxes[:, 3]
    assert (np.diff(areas) <= 1e-6).all() and (boxes[:, :2] + boxes[:, 2:] <= 1 + 1e-6).all()
    for _ in range(3):
        np.testing.assert_array_equal(selective_search(pixels), boxes)
    assert len(selective_search(np.zeros((3, 700, 3), np.uint8)))


def test_selective_search_of_what_is_no_image():
    pytest.importorskip("cv2.ximgproc", reason="the extra regions is not installed")
    for wrong in (np.zeros((4, 4, 3)), np.zeros((4, 4), np.uint8), np.zeros((0, 4, 3), np.uint8)):
        with pytest.raises(InvalidArgumentError, match="pixels"):
            selective_search(wrong)


def test_selective_search_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingExtraError, match=r"vsemb\[regions\]"):
        selective_search(np.zeros((4, 4, 3), np.uint8))

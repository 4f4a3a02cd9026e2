"""From bytes to regions, in and out of graphs: maps, crops, classifiers, the extractor."""

from __future__ import annotations

from collections.abc import Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb.data.synthetic import generate
from vsemb.errors import DataError
from vsemb.image.backbones import BackboneConfig, build_backbone, save_backbone_weights
from vsemb.image.decode import decode_images
from vsemb.systems.regions import extractor as module
from vsemb.systems.regions.extractor import (
    RegionExtractor,
    build_classifier,
    crop_regions,
    feature_maps,
    pool_regions,
)
from vsemb.systems.regions.proposals import objectness
from vsemb.systems.regions.region_store import RegionConfig
from vsemb.weights import save_weights

SMALL = BackboneConfig("SmallConvNet", size=32)
MOBILE = BackboneConfig("MobileNetV2", size=64)
RANDOM = np.random.default_rng(3)
WHOLE = np.array([0, 0, 1, 1], np.float32)


@pytest.fixture(scope="module")
def backbone() -> keras.Model:
    return build_backbone(SMALL)


@pytest.fixture(scope="module")
def mobile() -> keras.Model:
    return build_backbone(MOBILE)


@pytest.fixture(scope="module")
def encoded() -> list[bytes]:
    return [record.image for record in generate({"val": 5}, seed=2)]


@pytest.fixture(scope="module", params=["map", "crops"])
def extract(request, backbone: keras.Model) -> Iterator[RegionExtractor]:
    """An extractor of four regions whose crops go through the network two images at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PIXELS_AT_ONCE", 2 * 4 * 32 * 32)
        extractor = RegionExtractor(SMALL, RegionConfig(count=3, pooling=request.param), backbone)
        # One graph for batches of any size.
        extractor._extract.get_concrete_function(tf.TensorSpec([None], tf.string), None, None)
        yield extractor


@pytest.mark.slow
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


@pytest.mark.slow
def test_in_a_saved_model_with_any_batch(extract, backbone, encoded, tmp_path):
    exported = tf.Module()
    exported.backbone = backbone
    exported.extract = tf.function(
        lambda images: extract(images)._asdict(), [tf.TensorSpec([None], tf.string)], autograph=False
    ).get_concrete_function()
    assert exported.extract.output_shapes["features"][1:] == (4, extract.dim)
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
    with raises_argument("boxes"):
        RegionExtractor(SMALL, RegionConfig("detections"), backbone)(tf.constant(encoded))
    with raises_argument("boxes"):
        RegionExtractor(SMALL, RegionConfig(), backbone)(tf.constant(encoded), tf.zeros((5, 1, 4)))
    with raises_argument("crops"):
        RegionExtractor(BackboneConfig("SmallConvNet", crops=10), RegionConfig(), backbone)
    with raises_argument("layer"):
        RegionExtractor(BackboneConfig("VGG16", layer="fc7"), RegionConfig(), backbone)


def test_the_whole_image_alone(backbone, encoded):
    regions = RegionExtractor(SMALL, RegionConfig(count=0, pooling="crops"), backbone)(tf.constant(encoded))
    np.testing.assert_array_equal(regions.boxes, np.tile([0, 0, 1, 1], (5, 1, 1)))
    pixels, _ = decode_images(tf.constant(encoded), 32)
    np.testing.assert_allclose(regions.features[:, 0], backbone(pixels), rtol=1e-4, atol=1e-5)


def boxes_within(batch: int, n: int) -> np.ndarray:
    sides = RANDOM.uniform(0.05, 0.9, (batch, n, 2))
    return np.concatenate([RANDOM.uniform(0, 1, (batch, n, 2)) * (1 - sides), sides], -1).astype(np.float32)


def test_means_over_boxes_are_weighted_by_area():
    places = RANDOM.normal(size=(2, 3, 5, 4)).astype(np.float32)
    boxes = boxes_within(2, 6)
    boxes[0, 0], boxes[0, 1], boxes[1, 5] = WHOLE, [0.2, 1 / 3, 0.2, 1 / 3], 0
    got = pool_regions([places], boxes).numpy()
    for image in range(2):
        for number, (x, y, w, h) in enumerate(boxes[image].astype(float)):
            total, area = np.zeros(4), 0.0
            for row in range(3):
                for column in range(5):
                    across = max(0, min(5 * (x + w), column + 1) - max(5 * x, column))
                    down = max(0, min(3 * (y + h), row + 1) - max(3 * y, row))
                    total += across * down * places[image, row, column]
                    area += across * down
            expected = total / area if area else total
            np.testing.assert_allclose(got[image, number], expected, rtol=1e-4, atol=1e-5)  # float32 sums
    np.testing.assert_allclose(got[0, 0], places[0].mean((0, 1)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[0, 1], places[0, 1, 1], rtol=1e-5, atol=1e-6)  # exactly one cell
    assert not got[1, 5].any()


def test_several_maps_are_put_one_behind_the_other():
    maps = [tf.random.normal((2, 4, 4, 3)), tf.cast(tf.random.normal((2, 2, 2, 5)), tf.bfloat16)]
    boxes = boxes_within(2, 3)
    got = pool_regions(maps, boxes)
    assert got.shape == (2, 3, 8) and got.dtype == tf.float32
    np.testing.assert_array_equal(got[..., 3:], pool_regions(maps[1:], boxes))


def test_gradients_flow_into_the_map():
    places = tf.Variable(tf.random.normal((1, 2, 2, 1)))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(pool_regions([places], [[[0.0, 0.0, 0.75, 0.5], [0.0, 0.0, 0.0, 0.0]]]))
    # The box holds cell (0, 0) and half of (0, 1): weights 2/3 and 1/3.
    np.testing.assert_allclose(tape.gradient(loss, places)[0, :, :, 0], [[2 / 3, 1 / 3], [0, 0]], rtol=1e-6)


def test_crops_are_what_resizing_a_slice_gives():
    pixels = RANDOM.uniform(0, 255, (1, 48, 48, 3)).astype(np.float32)
    boxes = np.array([[WHOLE, [0, 0, 0, 0]]])
    shrunk = crop_regions(pixels, boxes, 16).numpy()
    expected = tf.image.resize(pixels, (16, 16), antialias=True).numpy()
    np.testing.assert_allclose(shrunk[:, 0], expected, rtol=1e-4)  # the same sums in another order
    assert not shrunk[:, 1].any()
    enlarged = crop_regions(pixels, boxes, 96).numpy()
    expected = tf.image.resize(pixels, (96, 96), antialias=True).numpy()
    np.testing.assert_allclose(enlarged[:, 0], expected, rtol=1e-4)


def test_crops_of_whole_pixels_are_those_pixels():
    pixels = RANDOM.uniform(0, 255, (2, 32, 40, 3)).astype(np.float32)
    box = np.array([10 / 40, 4 / 32, 8 / 40, 8 / 32], np.float32)
    got = crop_regions(pixels, np.broadcast_to(box, (2, 1, 4)), 8).numpy()
    np.testing.assert_allclose(got[:, 0], pixels[:, 4:12, 10:18], rtol=1e-4)


def test_no_pixel_is_left_out_when_shrinking():
    stripes = np.zeros((1, 64, 64, 3), np.float32)
    stripes[:, :, ::4] = 255
    crop = crop_regions(stripes, [[WHOLE]], 8).numpy()
    # Every crop pixel covers two periods, but for the two at the edges, whose filter is cut off.
    np.testing.assert_allclose(crop[0, 0, :, 1:-1], 255 / 4, rtol=1e-4)


def test_maps_are_what_the_network_pools(mobile):
    maps = feature_maps(mobile, MOBILE)
    pixels = RANDOM.uniform(0, 255, (2, 64, 64, 3)).astype(np.float32)
    assert [tuple(places.shape[1:]) for places in maps.outputs] == [(4, 4, 576), (2, 2, 320), (2, 2, 1280)]
    inner, before, last = (places.numpy() for places in maps(pixels))
    expected = np.concatenate([last.mean((1, 2)), last.max((1, 2)), inner.mean((1, 2)), before.mean((1, 2))], 1)
    np.testing.assert_allclose(mobile(pixels), expected, rtol=1e-4, atol=1e-5)
    small = BackboneConfig("SmallConvNet", size=32)
    assert len(feature_maps(build_backbone(small), small).outputs) == 1


def test_a_layer_has_no_map():
    config = BackboneConfig("VGG16", size=32, layer="fc7")
    with raises_argument("layer"):
        feature_maps(keras.Sequential([keras.Input((32, 32, 3))]), config)


@pytest.fixture(scope="module")
def whole() -> Iterator[keras.Model]:
    """MobileNetV2 with its classifier, which takes seconds to build and is every one that is built."""
    network = keras.applications.MobileNetV2(weights=None, input_shape=(224, 224, 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keras.applications, "MobileNetV2", lambda weights, input_shape: network)
        yield network


@pytest.mark.slow
def test_the_classifier_of_a_whole_network(whole, tmp_path):
    whole.save_weights(tmp_path / "whole.weights.h5")
    pixels = RANDOM.uniform(-1, 1, (2, 224, 224, 3)).astype(np.float32)
    wanted, pooled = keras.Model(whole.input, [whole.output, whole.layers[-2].output])(pixels)
    whole.layers[-1].set_weights([0 * weight for weight in whole.layers[-1].get_weights()])
    classifier = build_classifier(MOBILE, tmp_path / "whole.weights.h5")
    probabilities = tf.nn.softmax(classifier(pooled[:, None])[:, 0])
    np.testing.assert_allclose(probabilities, wanted, rtol=1e-4)  # float32, another order
    save_weights(classifier, tmp_path / "classifier.weights.h5")
    whole.layers[-1].set_weights([0 * weight for weight in whole.layers[-1].get_weights()])
    again = build_classifier(MOBILE, tmp_path / "classifier.weights.h5")
    np.testing.assert_array_equal(again(pooled[:, None]), classifier(pooled[:, None]))


@pytest.mark.usefixtures("whole")
def test_networks_and_weights_without_a_classifier(mobile, tmp_path, monkeypatch):
    path = tmp_path / "no-top.weights.h5"
    save_backbone_weights(mobile, path)
    with pytest.raises(DataError, match='rank="objectness"'):
        build_classifier(MOBILE, path)
    with pytest.raises(DataError, match=r"none\.weights\.h5"):
        build_classifier(MOBILE, tmp_path / "none.weights.h5")
    # Its classifier has a convolution before its logits, as here.
    pixels = keras.Input((224, 224, 3))
    pooled = keras.layers.GlobalAveragePooling2D(keepdims=True)(pixels)
    logits = keras.layers.Conv2D(5, 1)(keras.layers.Conv2D(4, 1)(pooled))
    network = keras.Model(pixels, keras.layers.Flatten()(logits))
    monkeypatch.setattr(keras.applications, "MobileNetV3Small", lambda weights, input_shape: network)
    for name in ("SmallConvNet", "MobileNetV3Small"):
        with raises_argument("rank"):
            build_classifier(BackboneConfig(name), path)

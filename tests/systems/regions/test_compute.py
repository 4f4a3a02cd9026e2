"""Cached regions: right, tied to their dataset, and the same bytes whatever interrupted them."""

from __future__ import annotations

import dataclasses
import functools
import io
import os
import shutil
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.raising import raises_argument
from tests.systems.regions.region_folders import CONFIG, IMAGES, REGIONS, content
from vsemb.data.features import compute as feature_compute
from vsemb.data.features import files as feature_files
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError, MissingExtraError
from vsemb.image.backbones import BackboneConfig, build_backbone, weights_sha256
from vsemb.systems.regions import compute
from vsemb.systems.regions.compute import cache_regions
from vsemb.systems.regions.detections import Detections, pad_rows
from vsemb.systems.regions.extractor import RegionExtractor
from vsemb.systems.regions.proposals import selective_search
from vsemb.systems.regions.region_store import RegionConfig, RegionStore, region_fingerprint

WHOLE = [0, 0, 1, 1]


@pytest.fixture(scope="module", autouse=True)
def one_graph_per_configuration():
    """`cache_regions` with other weights or images takes the graph it has: tracing one takes a second."""
    extractors: dict[tuple, RegionExtractor] = {}

    def extractor(config, regions, backbone, classifier=None) -> RegionExtractor:
        if classifier is not None:
            return RegionExtractor(config, regions, backbone, classifier)
        kept = extractors.setdefault((config, regions), RegionExtractor(config, regions, backbone))
        kept.backbone.set_weights(backbone.get_weights())
        return kept

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compute, "RegionExtractor", extractor)
        patch.setattr(compute, "_in_graph", functools.cache(compute._in_graph))
        yield


@pytest.fixture
def bare(tiny, tmp_path) -> StoredDataset:
    """The same dataset without regions."""
    return tiny.write(tiny.records(IMAGES), tmp_path / "bare")


def encoded(dataset: StoredDataset) -> list[bytes]:
    """The bytes of all images, in the order of their ids."""
    splits = [dataset.split(name) for name in dataset.splits]
    values = {int(i): split.read_image(row) for split in splits for row, i in enumerate(split.ids)}
    return [values[image] for image in sorted(values)]


@pytest.mark.slow
def test_regions_are_those_that_serving_computes(made):
    dataset = StoredDataset.open(made)
    store = RegionStore.find(dataset)
    ids = np.arange(IMAGES)
    assert store.ids.tolist() == ids.tolist() and store.count == 4
    assert store.shape == (IMAGES, 4, store.dim) and store.backbone == CONFIG and store.regions == REGIONS
    network = build_backbone(store.backbone, store.weights_path)
    assert weights_sha256(network) == store.manifest["weights_sha256"]
    served = RegionExtractor(store.backbone, store.regions, network)(tf.constant(encoded(dataset)))
    # float16 keeps 11 bits; below 2^-14 it loses more.
    np.testing.assert_allclose(store.rows(ids), served.features, rtol=2**-10, atol=2**-14)
    np.testing.assert_allclose(store.boxes(ids), served.boxes, atol=1e-6)
    np.testing.assert_allclose(store.scores(ids), served.scores, atol=1e-5)
    assert (store.boxes(ids)[:, 0] == WHOLE).all()
    assert np.load(store.directory / "features.npy").dtype == np.float16
    assert store.mean_count == (store.boxes(ids).sum(-1) > 0).sum() / IMAGES
    assert store.classifier_path is None


def test_rows_gather_in_any_order_with_repeats(made):
    store = RegionStore.find(StoredDataset.open(made))
    whole = np.load(store.directory / "features.npy")
    ids = np.array([5, 0, 5, 10])
    np.testing.assert_array_equal(store.rows(ids), whole[ids])
    assert store.rows(ids).dtype == store.boxes(ids).dtype == store.scores(ids).dtype == np.float32
    assert store.rows(np.zeros(0, np.int64)).shape == (0, 4, store.dim)
    np.testing.assert_array_equal(store.rows(ids, max_regions=2), whole[ids][:, :2])
    for unknown in (11, -1):
        with pytest.raises(DataError, match=f" {unknown} "):
            store.rows(np.array([0, unknown]))


def test_a_second_run_computes_nothing(with_regions, monkeypatch):
    monkeypatch.setattr(feature_compute, "FeatureWriter", None)
    assert cache_regions(with_regions, CONFIG, REGIONS, weights=None, batch_size=8).images_computed == 0


@pytest.mark.slow
@pytest.mark.parametrize("stop_after", [1, 2])
def test_an_interrupted_run_goes_on_and_ends_in_the_same_bytes(stop_after, made, bare, monkeypatch):
    monkeypatch.setattr(feature_files, "_COMMIT_SECONDS", 0.0)
    write = feature_files.FeatureWriter.write
    written = 0

    def failing(writer, ids, rows, **beside):
        nonlocal written
        if written == stop_after:
            raise RuntimeError("pulled the plug")
        written += 1
        write(writer, ids, rows, **beside)

    with monkeypatch.context() as patch:
        patch.setattr(feature_files.FeatureWriter, "write", failing)
        with pytest.raises(RuntimeError, match="plug"):
            cache_regions(bare, CONFIG, REGIONS, weights=None, batch_size=4)
    assert not list((bare.path / "regions").glob("[!.]*"))
    with pytest.raises(DataError, match="vsemb regions"):
        RegionStore.find(bare)
    store = cache_regions(bare, CONFIG, REGIONS, weights=None, batch_size=4)
    assert store.images_computed == IMAGES - 4 * stop_after
    assert content(store.directory) == content(RegionStore.find(StoredDataset.open(made)).directory)
    assert [path.name for path in store.directory.parent.iterdir()] == [store.fingerprint]


@pytest.mark.slow
def test_a_killed_process_is_taken_up(made, bare):
    script = f"""
import time
from vsemb.data.features import files as feature_files
from vsemb.systems.regions.compute import cache_regions
from vsemb.data.store import StoredDataset
from vsemb.image.backbones import BackboneConfig
from vsemb.systems.regions.region_store import RegionConfig
feature_files._COMMIT_SECONDS = 0.0
write = feature_files.FeatureWriter.write
def slow(writer, *arguments, **more):
    write(writer, *arguments, **more)
    print(writer.done, flush=True)
    time.sleep(60)
feature_files.FeatureWriter.write = slow
config = BackboneConfig("SmallConvNet", size=32)
dataset = StoredDataset.open({str(bare.path)!r})
cache_regions(dataset, config, RegionConfig(count=3), weights=None, batch_size=4)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline().strip() == "4"
    with pytest.raises(DataError):
        cache_regions(bare, CONFIG, REGIONS, weights=None, batch_size=4)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    store = cache_regions(bare, CONFIG, REGIONS, weights=None, batch_size=4)
    assert store.images_computed == IMAGES - 4
    assert content(store.directory) == content(RegionStore.find(StoredDataset.open(made)).directory)


def detected(ids, boxes, scores) -> Detections:
    return Detections(np.array(ids), np.array(boxes, np.float32).reshape(-1, 4), np.array(scores, np.float32))


def test_boxes_of_a_detector(bare):
    far = [0.1, 0.2, 0.25, 0.5]
    boxes = [far, [0.6, 0.6, 0.3, 0.3], far, [0.6, 0, 0.25, 0.25], [0, 0, 0.1, 0.1], [0.3, 0.6, 0.2, 0.2]]
    detections = detected([0, 0, 6, 6, 6, 6], boxes, [0.9, 0.5, 0.9, 0.8, 0.7, 0.6])
    config = RegionConfig("detections", count=3)
    store = cache_regions(bare, CONFIG, config, weights=None, detections=detections, batch_size=4)
    expected = np.zeros((3, 4, 4))
    expected[:, 0] = WHOLE
    expected[0, 1:3], expected[1, 1:] = boxes[:2], boxes[2:5]
    np.testing.assert_allclose(store.boxes(np.array([0, 6, 1])), expected, atol=1e-6)
    assert store.scores(np.array([6]))[0, 1:].tolist() == pytest.approx([0.9, 0.8, 0.7])
    rows = store.rows(np.arange(IMAGES))
    assert rows[[0, 6]].any(-1).tolist() == [[True] * 3 + [False], [True] * 4]
    assert rows[1].any(-1).tolist() == [True, False, False, False]
    assert store.mean_count == pytest.approx((IMAGES + 5) / IMAGES)
    other = detected([0], [far], [0.9])
    again = cache_regions(bare, CONFIG, config, weights=None, detections=other, batch_size=4)
    assert again.fingerprint != store.fingerprint
    with pytest.raises(DataError, match="SmallConvNet"):
        RegionStore.find(bare)
    assert RegionStore.find(bare, store.fingerprint[:9]).fingerprint == store.fingerprint


def squares(number: int) -> bytes:
    """A blue square of `number` + 14 pixels, and a red one, on grey."""
    pixels = np.full((64, 64, 3), 128, np.uint8)
    pixels[8 + number : 22 + 2 * number, 8 : 22 + number] = [0, 0, 255]
    pixels[40:60, 40:60] = [255, 0, 0]
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.slow
def test_selective_search_is_the_same_however_it_is_interrupted(tiny, tmp_path, monkeypatch):
    pytest.importorskip("cv2", reason="the extra regions is not installed")
    config = RegionConfig("selective-search", count=3)
    records = [dataclasses.replace(record, image=squares(n)) for n, record in enumerate(tiny.records(6))]
    data, other = (tiny.write(records, tmp_path / name) for name in ("data", "other"))
    whole = cache_regions(data, CONFIG, config, weights=None, batch_size=4)
    # A square of n + 14 pixels at (8, n + 8) in an image of 64.
    expected = [[8 / 64, (n + 8) / 64, (n + 14) / 64, (n + 14) / 64] for n in range(6)]
    away = np.abs(whole.boxes(np.arange(6)) - np.array(expected)[:, None]).max(axis=-1).min(axis=1)
    assert away.max() < 3 / 64
    monkeypatch.setattr(feature_files, "_COMMIT_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        commit = feature_files.FeatureWriter.commit
        patch.setattr(feature_files.FeatureWriter, "commit", lambda writer: (commit(writer), 1 / 0))
        with pytest.raises(ZeroDivisionError):
            cache_regions(other, CONFIG, config, weights=None, batch_size=4)
    again = cache_regions(other, CONFIG, config, weights=None, batch_size=4)
    assert again.images_computed == 6 - 4
    assert content(again.directory) == content(whole.directory)


def small_classifier(seed: int) -> keras.Model:
    """Stands for the classifier of a network that has one, which takes seconds to build."""
    keras.utils.set_random_seed(seed)
    features = keras.Input((None, 128))
    return keras.Model(features, keras.layers.Dense(10, kernel_initializer="he_normal")(features))


@pytest.mark.slow
def test_the_classifier_that_ranks_is_kept(tiny, tmp_path, monkeypatch):
    pytest.importorskip("cv2", reason="the extra regions is not installed")
    records = [dataclasses.replace(record, image=squares(n)) for n, record in enumerate(tiny.records(6))]
    data = tiny.write(records, tmp_path / "data")
    monkeypatch.setattr("vsemb.systems.regions.compute.build_classifier", lambda *_: small_classifier(4))
    config = RegionConfig("selective-search", count=2, overlap=0.7, rank="confidence")
    store = cache_regions(data, CONFIG, config, weights=None)
    kept = RegionStore.find(data).classifier_path
    assert kept == store.directory / "classifier.weights.h5"
    classifier = small_classifier(5)
    classifier.load_weights(kept)
    network, images = build_backbone(CONFIG, store.weights_path), encoded(data)
    boxes = pad_rows([selective_search(np.asarray(Image.open(io.BytesIO(image)))) for image in images])
    extract = RegionExtractor(CONFIG, config, network, classifier)
    served = extract(tf.constant(images), boxes)
    ids = np.arange(6)
    np.testing.assert_allclose(store.boxes(ids), served.boxes, atol=1e-6)
    np.testing.assert_allclose(store.scores(ids), served.scores, rtol=1e-4)  # batches of other sizes
    classifier.set_weights(small_classifier(5).get_weights())
    other = extract(tf.constant(images), boxes)
    assert np.abs(store.scores(ids) - other.scores).max() > 0.01
    kept.unlink()
    with pytest.raises(DataError, match=r"classifier\.weights\.h5.*vsemb regions"):
        RegionStore.find(data)


@pytest.mark.parametrize("source", ["grid", "selective-search"])
def test_images_that_no_longer_decode_are_named_whatever_the_source(source, bare, monkeypatch):
    if source == "selective-search":
        pytest.importorskip("cv2", reason="the extra regions is not installed")
    split = bare.split("val")
    broken = tf.data.Dataset.from_tensor_slices((split.ids, [b"?"] * len(split)))
    monkeypatch.setattr(split, "encoded_images", lambda: broken)
    with pytest.raises(DataError, match=r"2\.jpg \(id 2\), 5\.jpg \(id 5\), 8\.jpg"):
        cache_regions(bare, CONFIG, RegionConfig(source, count=3), weights=None)


def test_the_network_can_only_rank_boxes_with_its_classifier(bare):
    pytest.importorskip("cv2", reason="the extra regions is not installed")
    config = RegionConfig("selective-search", rank="confidence")
    with raises_argument("rank"):
        cache_regions(bare, CONFIG, config, weights=None)


def test_the_fingerprint_names_everything_that_matters():
    base = region_fingerprint(CONFIG, "a", REGIONS)
    others = [
        region_fingerprint(CONFIG, "b", REGIONS),
        region_fingerprint(BackboneConfig("SmallConvNet", size=33), "a", REGIONS),
        region_fingerprint(CONFIG, "a", RegionConfig(count=4)),
        region_fingerprint(CONFIG, "a", RegionConfig(count=3, overlap=0.25)),
        region_fingerprint(CONFIG, "a", RegionConfig(count=3, pooling="crops")),
        region_fingerprint(CONFIG, "a", RegionConfig("detections", count=3), "c"),
        region_fingerprint(CONFIG, "a", RegionConfig("detections", count=3), "d"),
    ]
    assert len({base, *others}) == 8


def test_regions_alike_are_found_by_their_network(bare):
    config = RegionConfig("detections", count=3)
    first, second = (detected([0], [[0, 0, 0.5, side]], [0.5]) for side in (0.5, 0.25))
    store = cache_regions(bare, CONFIG, config, weights=None, detections=first)
    cache_regions(bare, CONFIG, REGIONS, weights=None)
    assert RegionStore.find_alike(bare, "0" * 16, store.network).fingerprint == store.fingerprint
    with pytest.raises(DataError, match="'0{16}'.*detections"):
        RegionStore.find_alike(bare, "0" * 16, "another")
    other = cache_regions(bare, CONFIG, config, weights=None, detections=second)
    assert other.network == store.network
    assert RegionStore.find_alike(bare, other.fingerprint, store.network).fingerprint == other.fingerprint
    with pytest.raises(DataError, match="'0{16}'"):
        RegionStore.find_alike(bare, "0" * 16, store.network)


def test_regions_of_another_dataset_are_refused(with_regions, tiny, tmp_path):
    other = tiny.write(tiny.records(IMAGES - 1), tmp_path / "other")
    shutil.copytree(with_regions.path / "regions", other.path / "regions")
    with pytest.raises(DataError, match="vsemb regions"):
        RegionStore.find(other)
    with pytest.raises(DataError):
        cache_regions(other, CONFIG, REGIONS, weights=None)


def test_features_that_float16_cannot_hold_are_refused_by_name(bare, tmp_path):
    network = build_backbone(CONFIG)
    network.layers[2].weights[0].assign(np.full((6, 6, 3, 32), 1e6, np.float32))
    network.layers[2].save_weights(tmp_path / "w.weights.h5")
    with pytest.raises(DataError, match=r"65504.* 0\.jpg \(id 0\)"):
        cache_regions(bare, CONFIG, REGIONS, weights=tmp_path / "w.weights.h5")
    network.layers[2].weights[0].assign(np.full((6, 6, 3, 32), 1e38, np.float32))
    network.layers[2].save_weights(tmp_path / "w.weights.h5")
    with pytest.raises(DataError, match=r"NaN.* 0\.jpg \(id 0\)"):
        cache_regions(bare, CONFIG, REGIONS, weights=tmp_path / "w.weights.h5")


def test_bad_arguments(with_regions):
    with raises_argument("batch_size"):
        cache_regions(with_regions, CONFIG, REGIONS, weights=None, batch_size=0)
    with raises_argument("detections"):
        cache_regions(with_regions, CONFIG, RegionConfig("detections"), weights=None)
    with raises_argument("detections"):
        cache_regions(with_regions, CONFIG, REGIONS, weights=None, detections=detected([0], WHOLE, [1]))


def test_selective_search_without_its_extra_leaves_nothing_behind(bare, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingExtraError, match=r"vsemb\[regions\]"):
        cache_regions(bare, CONFIG, RegionConfig("selective-search"), weights=None)
    assert not (bare.path / "regions").exists()


def test_boxes_need_the_whole_image() -> None:
    """Boxes are fractions of the image, so none of it may be cropped."""
    cropped = BackboneConfig("SmallConvNet", resize="short-side")
    with raises_argument("resize"):
        RegionExtractor(cropped, REGIONS, build_backbone(cropped))

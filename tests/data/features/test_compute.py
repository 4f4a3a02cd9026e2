"""Cached features: right, tied to their dataset, and the same bytes whatever interrupted them."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.raising import raises_argument
from vsemb.data.features import compute as features
from vsemb.data.features import files as feature_files
from vsemb.data.features.compute import cache_features, write_precomputed
from vsemb.data.features.files import FeatureWriter
from vsemb.data.features.store import FeatureStore, feature_fingerprint
from vsemb.data.records import ImageRecord
from vsemb.data.sources import FeatureImages
from vsemb.data.store import StoredDataset
from vsemb.data.writing.writer import write_dataset
from vsemb.errors import DataError, VsembError
from vsemb.exporting.served_inputs import ImageInput
from vsemb.files import locked, sha256_bytes
from vsemb.image.backbones import BackboneConfig, build_backbone, weights_sha256

IMAGES = 23
CONFIG = BackboneConfig("SmallConvNet", size=32)
TEN = replace(CONFIG, crops=10)


def png(seed: int) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (24, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def make_dataset(path: Path, images: int = IMAGES, first_seed: int = 0, with_images: bool = True) -> StoredDataset:
    # Every third image is in val: ids of the two splits interleave, as in Karpathy's files.
    records = [
        ImageRecord(
            key=f"{number}.png",
            captions=(f"picture {number}",),
            split="val" if number % 3 == 2 else "train",
            image=png(first_seed + number) if with_images else None,
        )
        for number in range(images)
    ]
    source = {"format": "test", "path_name": "test", "sha256": {}, "options": {"seed": first_seed}}
    return write_dataset(records, path, name="test", source=source, total=images, images_per_shard=8)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A dataset with cached features; tests that change it work on a copy."""
    dataset = make_dataset(tmp_path_factory.mktemp("features") / "data")
    cache_features(dataset, CONFIG, weights=None, batch_size=4)
    return dataset.path


@pytest.fixture
def data(made, tmp_path) -> StoredDataset:
    shutil.copytree(made, tmp_path / "data")
    return StoredDataset.open(tmp_path / "data")


def encoded(dataset: StoredDataset, image: int) -> bytes:
    split = dataset.split("val" if image % 3 == 2 else "train")
    return split.read_image(int(np.flatnonzero(split.ids == image)[0]))


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


def rewrite(folder: Path, **changes: np.ndarray) -> None:
    """Replaces arrays of a features folder and keeps the manifest in step, but for what it says of ids."""
    for name, array in changes.items():
        np.save(folder / f"{name}.npy", array)
        if name == "ids":
            manifest = json.loads((folder / "manifest.json").read_text())
            manifest["ids_sha256"] = sha256_bytes(array.tobytes())
            (folder / "manifest.json").write_text(json.dumps(manifest))


def test_features_are_those_that_serving_computes(made):
    dataset = StoredDataset.open(made)
    store = FeatureStore.find(dataset)
    assert store.ids.tolist() == list(range(IMAGES)) and store.shape == (IMAGES, 256)
    assert store.backbone == CONFIG
    backbone = build_backbone(store.backbone, store.weights_path)
    assert weights_sha256(backbone) == store.manifest["weights_sha256"]
    rows = [encoded(dataset, image) for image in range(IMAGES)]
    served, valid = ImageInput(CONFIG, backbone)(tf.constant(rows))
    assert valid.numpy().all()
    np.testing.assert_allclose(store.rows(np.arange(IMAGES)), served, rtol=1e-5, atol=1e-5)


def test_maps_of_an_inner_layer_are_stored_in_half_the_space(tmp_path, monkeypatch):
    dataset = make_dataset(tmp_path / "data", images=3)
    config = BackboneConfig("SmallConvNet", size=32, layer="block2_relu")
    # One image at a time, which batches need not know.
    monkeypatch.setattr(features, "_PIXELS", 2 * 32**2)
    store = cache_features(dataset, config, weights=None, mirror=True)
    stored, network = np.load(store.directory / "features.npy"), build_backbone(config, store.weights_path)
    assert stored.dtype == np.float16
    rows = tf.constant([encoded(dataset, image) for image in range(3)])
    maps = ImageInput(config, network)(rows)[0].numpy()
    # Eleven bits: at most half of 2^-10 of a value.
    np.testing.assert_allclose(store.rows(np.arange(3)), maps, rtol=2**-11, atol=1e-6)
    assert store.rows(np.arange(3)).dtype == np.float32
    split = dataset.split("train")
    images = FeatureImages(store, split, augment=True)
    assert images.gather(np.array([1, 0])).dtype == np.float32
    np.testing.assert_array_equal(images.views(np.array([1])), store.views(split.ids[1:]).astype(np.float32))


def test_rows_gather_in_any_order_with_repeats(made):
    store = FeatureStore.find(StoredDataset.open(made))
    whole = np.load(store.directory / "features.npy")
    ids = np.array([5, 0, 5, 22])
    np.testing.assert_array_equal(store.rows(ids), whole[ids])
    np.testing.assert_array_equal(store.views(ids), whole[ids][:, None])
    assert store.rows(np.zeros(0, np.int64)).shape == (0, 256)
    assert store.rows(ids).dtype == np.float32
    for unknown in (23, -1):
        with pytest.raises(DataError, match=f"image id {unknown} "):
            store.rows(np.array([0, unknown]))


def test_a_second_run_computes_nothing(data, monkeypatch):
    monkeypatch.setattr(features, "FeatureWriter", None)
    store = cache_features(data, CONFIG, weights=None, batch_size=8)
    assert store.images_computed == 0


def test_a_work_folder_that_a_kill_after_publication_left_is_removed(data):
    (folder,) = FeatureStore.folders(data)
    left = folder.parent / f".{folder.name}.partial"
    left.mkdir()
    (left / "features.npy").touch()
    with locked(left, "busy"):
        cache_features(data, CONFIG, weights=None, batch_size=8)
        assert left.exists()
    cache_features(data, CONFIG, weights=None, batch_size=8)
    assert not left.exists()


@pytest.mark.parametrize("stop_after", [1, 3, 5])
def test_an_interrupted_run_goes_on_and_ends_in_the_same_bytes(stop_after, made, tmp_path, monkeypatch):
    dataset = make_dataset(tmp_path / "data")
    monkeypatch.setattr(feature_files, "_COMMIT_SECONDS", 0.0)
    write = feature_files.FeatureWriter.write
    written = 0

    def failing(writer, ids, rows):
        nonlocal written
        if written == stop_after:
            raise RuntimeError("pulled the plug")
        written += 1
        write(writer, ids, rows)

    with monkeypatch.context() as patch:
        patch.setattr(feature_files.FeatureWriter, "write", failing)
        with pytest.raises(RuntimeError, match="plug"):
            cache_features(dataset, CONFIG, weights=None, batch_size=4)
    assert not list((tmp_path / "data" / "features").glob("[!.]*"))
    store = cache_features(dataset, CONFIG, weights=None, batch_size=4)
    assert store.images_computed == IMAGES - 4 * stop_after
    whole = FeatureStore.find(StoredDataset.open(made))
    assert store.fingerprint == whole.fingerprint
    assert content(store.directory) == content(whole.directory)
    assert [path.name for path in store.directory.parent.iterdir()] == [store.fingerprint]


def test_damaged_work_is_made_again(tmp_path):
    ids, rows, random = np.arange(6), np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32), random_bits()
    order, arguments = ids[::-1], (tmp_path / "made", ids, (2,), {"fingerprint": "a"})
    with feature_files.FeatureWriter(*arguments, order=order) as writer:
        for batch in (order[:2], order[2:4]):
            writer.write(batch, rows[batch])
        writer.commit()
        work = writer.work
    files = [work / "features.npy", work / "progress.json"]
    whole = {path: path.read_bytes() for path in files}
    kept = []
    for path in files:
        for place in range(0, len(whole[path]), 5):
            for other in files:
                other.write_bytes(whole[other])
            flipped = bytearray(whole[path])
            flipped[place] ^= 1 << next(random)
            path.write_bytes(flipped)
            with feature_files.FeatureWriter(*arguments, order=order) as writer:
                assert writer.done == 0 or np.array_equal(writer.array("features")[2:], rows[2:])
                kept.append(writer.done)
    # White space, and rows not written yet, do no harm.
    assert set(kept) == {0, 4} and kept.count(4) < len(kept) / 3
    for path in files:
        path.write_bytes(whole[path])
    with feature_files.FeatureWriter(*arguments, order=order) as writer:
        assert writer.done == 4


def random_bits():
    random = np.random.default_rng(0)
    while True:
        yield int(random.integers(8))


def test_work_with_another_batch_size_starts_afresh(tmp_path, monkeypatch):
    dataset = make_dataset(tmp_path / "data", images=6)
    monkeypatch.setattr(feature_files, "_COMMIT_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(feature_files.FeatureWriter, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            cache_features(dataset, CONFIG, weights=None, batch_size=4)
    assert cache_features(dataset, CONFIG, weights=None, batch_size=3).images_computed == 6


@pytest.mark.slow
def test_a_killed_process_is_taken_up(made, tmp_path):
    dataset = make_dataset(tmp_path / "data")
    script = f"""
import sys, time
from vsemb.data.features import files as feature_files, compute as features
from vsemb.data.features.compute import cache_features
from vsemb.data.store import StoredDataset
from vsemb.image.backbones import BackboneConfig
feature_files._COMMIT_SECONDS = 0.0
write = feature_files.FeatureWriter.write
def slow(writer, ids, rows):
    write(writer, ids, rows)
    print(writer.done, flush=True)
    time.sleep(0.5 if writer.done < 12 else 60)
feature_files.FeatureWriter.write = slow
dataset = StoredDataset.open({str(tmp_path / "data")!r})
cache_features(dataset, BackboneConfig("SmallConvNet", size=32), weights=None, batch_size=4)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    while process.stdout.readline().strip() != "12":
        assert process.poll() is None
    with pytest.raises(DataError, match="Another process"):
        cache_features(dataset, CONFIG, weights=None, batch_size=4)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    started = time.monotonic()
    store = cache_features(dataset, CONFIG, weights=None, batch_size=4)
    assert store.images_computed == IMAGES - 12 and time.monotonic() - started < 30
    assert content(store.directory) == content(FeatureStore.find(StoredDataset.open(made)).directory)


@pytest.mark.slow
def test_ten_crops(tmp_path):
    dataset = make_dataset(tmp_path / "data", images=5)
    mean = cache_features(dataset, TEN, weights=None, batch_size=2)
    kept = cache_features(dataset, TEN, weights=None, batch_size=2, keep_crops=True)
    assert mean.shape == (5, 256) and kept.shape == (5, 10, 256) and kept.views_count == 10
    assert mean.fingerprint != kept.fingerprint and mean.manifest["crops"] == kept.manifest["crops"] == 10
    ids = np.array([4, 1])
    np.testing.assert_allclose(mean.rows(ids), kept.rows(ids), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(kept.views(ids).mean(1), kept.rows(ids))
    with pytest.raises(DataError):
        FeatureStore.find(dataset)
    assert FeatureStore.find(dataset, kept.fingerprint[:9]).views_count == 10
    with pytest.raises(DataError, match=f"No features 'zz'.*{mean.fingerprint}"):
        FeatureStore.find(dataset, "zz")
    with raises_argument("keep_crops"):
        cache_features(dataset, CONFIG, weights=None, keep_crops=True)


def test_reordered_rows_are_refused(tmp_path):
    dataset = make_dataset(tmp_path / "data", images=5)
    store = cache_features(dataset, CONFIG, weights=None)
    path = store.directory / "features.npy"
    np.save(path, np.load(path)[::-1])
    with pytest.raises(DataError, match="reordered"):
        FeatureStore.find(dataset)


def test_the_fingerprint_names_everything_that_matters():
    base = feature_fingerprint(CONFIG, "a")
    others = [
        feature_fingerprint(CONFIG, "b"),
        feature_fingerprint(CONFIG, "a", keep_views=True),
        feature_fingerprint(BackboneConfig("SmallConvNet", size=33), "a"),
        feature_fingerprint(BackboneConfig("SmallConvNet", size=32, pooling="max"), "a"),
        feature_fingerprint(BackboneConfig("SmallConvNet", size=32, crops=10), "a"),
    ]
    assert len({base, *others}) == 6


def test_no_features_yet(tmp_path):
    dataset = make_dataset(tmp_path / "data", images=3)
    with pytest.raises(DataError, match="vsemb features"):
        FeatureStore.find(dataset)


def test_features_of_another_dataset_are_refused(data, tmp_path):
    other = make_dataset(tmp_path / "other", first_seed=100)
    shutil.copytree(data.path / "features", other.path / "features")
    with pytest.raises(DataError):
        FeatureStore.find(other)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([*range(22), 30], "id 22"),
        ([*range(22), 21], "id 21"),
        ([1, 0, *range(2, 23)], "row 0"),
    ],
)
def test_wrong_ids_are_refused(ids, message, data):
    folder = FeatureStore.find(data).directory
    rewrite(folder, ids=np.array(ids, np.int64))
    with pytest.raises(DataError, match=message):
        FeatureStore.open(folder, data)


def test_features_with_ids_that_the_dataset_lacks(data):
    folder = FeatureStore.find(data).directory
    rewrite(folder, ids=np.arange(24), features=np.zeros((24, 256), np.float32))
    with pytest.raises(DataError, match="first 23"):
        FeatureStore.open(folder, data)


def test_features_that_another_process_has_made_meanwhile_are_opened(made, tmp_path, monkeypatch):
    dataset = StoredDataset.open(shutil.copytree(made, tmp_path / "data"))
    (folder,) = FeatureStore.folders(dataset)
    shutil.move(folder, tmp_path / "aside")

    class Late(feature_files.FeatureWriter):
        def __enter__(self):
            shutil.copytree(tmp_path / "aside", self.directory)
            return super().__enter__()

    def unused(argument):
        raise AssertionError("nothing is left to compute")

    monkeypatch.setattr(features, "FeatureWriter", Late)
    manifest, count = {"backbone": {"name": "SmallConvNet"}}, len(dataset.ids)
    given = (FeatureStore, dataset, folder.name, unused, (256,), manifest, unused)
    assert features.fill_folder(*given, batch_size=8).shape[0] == count
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_refused_by_name(value, data):
    folder = FeatureStore.find(data).directory
    rows = np.load(folder / "features.npy")
    rows[7, 3] = value
    rewrite(folder, features=rows)
    with pytest.raises(DataError, match=r"7\.png \(id 7\)\.$"):
        FeatureStore.open(folder, data)


def test_large_finite_features_are_not_taken_for_infinite():
    rows = np.full((2, 100), 3e38, np.float32)  # their sum overflows float32
    assert feature_files.not_finite(rows).tolist() == []


def test_damaged_folders_are_refused(data):
    folder = FeatureStore.find(data).directory
    whole = content(folder)

    def refused(named: str, name: str, value: bytes) -> None:
        (folder / name).write_bytes(value)
        with pytest.raises(DataError, match=named):
            FeatureStore.open(folder, data)
        (folder / name).write_bytes(whole[name])

    manifest = json.loads(whole["manifest.json"])
    refused("features.npy", "features.npy", whole["features.npy"][:-100])
    refused("features.npy", "features.npy", b"")
    refused("manifest.json", "manifest.json", b"{")
    refused("manifest.json", "manifest.json", b"{}")
    refused("version 9", "manifest.json", json.dumps({**manifest, "version": 9}).encode())
    refused("'dim'", "manifest.json", json.dumps({k: manifest[k] for k in manifest if k != "dim"}).encode())
    refused("ids.npy", "manifest.json", json.dumps({**manifest, "ids_sha256": ""}).encode())
    refused("256, .*7", "manifest.json", json.dumps({**manifest, "dim": 7}).encode())
    refused("preprocessing", "manifest.json", json.dumps({**manifest, "fingerprint": "0"}).encode())
    rewrite(folder, features=np.zeros((22, 256), np.float32))
    with pytest.raises(DataError, match="23.*22"):
        FeatureStore.open(folder, data)
    np.save(folder / "features.npy", np.zeros((23, 256)))
    with pytest.raises(DataError, match="float64"):
        FeatureStore.open(folder, data)
    np.save(folder / "features.npy", np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(DataError):
        FeatureStore.open(folder, data)


def test_images_that_no_longer_decode_are_named(tmp_path, monkeypatch):
    dataset = make_dataset(tmp_path / "data", images=6)
    split = dataset.split("train")
    broken = tf.data.Dataset.from_tensor_slices((split.ids, [b"?", png(1), b"", png(4)]))
    monkeypatch.setattr(split, "encoded_images", lambda: broken)
    with pytest.raises(DataError, match=r"0\.png \(id 0\), 3\.png \(id 3\)\.$"):
        cache_features(dataset, CONFIG, weights=None)


def test_a_damaged_shard_is_one_clear_error(data):
    shutil.rmtree(data.path / "features")
    shard = next(data.path.glob("train-*.tfrecord"))
    damaged = bytearray(shard.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    shard.write_bytes(damaged)
    with pytest.raises(DataError):
        cache_features(data, CONFIG, weights=None)


def test_a_full_disk_is_one_clear_error_and_the_run_goes_on_later(tmp_path, monkeypatch):
    dataset = make_dataset(tmp_path / "data", images=6)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for module, name in ((os, "posix_fallocate"), (np, "save")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, full)
            with pytest.raises(DataError, match="No space left on device"):
                cache_features(dataset, CONFIG, weights=None, batch_size=3)
    # The second failure came after the last row: nothing is left to compute.
    assert cache_features(dataset, CONFIG, weights=None, batch_size=3).images_computed == 0


def test_a_backbone_that_makes_nan_is_refused(tmp_path):
    dataset = make_dataset(tmp_path / "data", images=3)
    backbone = build_backbone(CONFIG)
    backbone.layers[2].weights[0].assign(np.full((6, 6, 3, 32), 1e38, np.float32))
    backbone.layers[2].save_weights(tmp_path / "w.weights.h5")
    with pytest.raises(DataError, match=r"0\.png"):
        cache_features(dataset, CONFIG, weights=tmp_path / "w.weights.h5")


@pytest.mark.parametrize("shape", [(7,), (10, 7)])
def test_precomputed_features(shape, tmp_path):
    dataset = make_dataset(tmp_path / "data", images=6, with_images=False)
    rows = np.random.default_rng(0).standard_normal((6, *shape)).astype(np.float32)
    order = np.array([3, 0, 5, 1, 4, 2])
    store = write_precomputed(dataset, order, rows)
    assert store.backbone is None and store.weights_path is None and store.dim == 7
    expected = rows if len(shape) == 1 else rows.mean(axis=1)
    np.testing.assert_array_equal(store.rows(order), expected)
    again = write_precomputed(dataset, order, [rows[:4], rows[4:]])
    assert again.directory == store.directory
    # What a killed call has committed is neither skipped nor put into the wrong rows.
    shutil.rmtree(store.directory)
    state = {"fingerprint": store.fingerprint}
    with FeatureWriter(store.directory, dataset.ids, shape, state) as killed:
        killed.write(order[:3], rows[:3] + 1)
        killed.commit()
    store = write_precomputed(dataset, order, [rows[:4], rows[4:]])
    np.testing.assert_array_equal(store.rows(order), expected)
    assert FeatureStore.find(dataset).fingerprint == store.fingerprint


def test_precomputed_features_that_are_wrong(tmp_path):
    dataset = make_dataset(tmp_path / "data", images=3, with_images=False)
    rows = np.ones((3, 4))

    def refused(named: str, ids, rows) -> None:
        with pytest.raises(DataError, match=named):
            write_precomputed(dataset, np.array(ids), rows)
        assert not list(dataset.path.glob("features/*")) and not list(dataset.path.glob("features/.*"))

    refused("3 .*2", [0, 1], rows)
    refused("id 2", [0, 1, 7], rows)
    refused("id 1", [0, 1, 1], rows)
    refused(r"\[\(4,\), \(5,\)\]", [0, 1, 2], [rows[:1], np.ones((2, 5))])
    refused(r"\[\(\)\]", [0, 1, 2], np.ones(3))
    refused(r"1\.png \(id 1\)", [0, 2, 1], np.diag([1, 1, np.nan]))


def test_bad_arguments(data):
    with raises_argument("batch_size"):
        cache_features(data, CONFIG, weights=None, batch_size=0)
    with raises_argument("crops"):
        cache_features(data, replace(CONFIG, crops=3), weights=None)


def test_features_are_computed_on_tensorflow_only(scenes_copy, monkeypatch) -> None:
    config = BackboneConfig("SmallConvNet", size=32)
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(VsembError, match="vsemb features"):
        cache_features(scenes_copy, config, weights=None)

"""Opening cached features: in full once, then by size and time."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from vsemb import files
from vsemb.data.features import store as stores
from vsemb.data.features.compute import write_precomputed
from vsemb.data.features.store import FeatureStore
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError

VERIFIED = ".verified.json"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files that were hashed."""
    names: list[str] = []
    hash_file = stores.sha256_file

    def noting(path: Path) -> str:
        names.append(Path(path).name)
        return hash_file(path)

    monkeypatch.setattr(stores, "sha256_file", noting)
    return names


@pytest.fixture
def cached(scenes_copy: StoredDataset) -> FeatureStore:
    """Features of a dataset that have never been opened."""
    store = FeatureStore.find(scenes_copy)
    (store.directory / VERIFIED).unlink(missing_ok=True)
    return store


def flip(path: Path) -> None:
    """Changes a byte of a file and keeps its size and time of modification."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_cache_is_read_in_full_once(cached: FeatureStore, scenes_copy: StoredDataset, reads: list[str]) -> None:
    for _ in range(3):
        assert FeatureStore.find(scenes_copy).fingerprint == cached.fingerprint
    assert reads == ["features.npy"]
    FeatureStore.open(cached.directory, scenes_copy, verify=True)
    assert reads == 2 * ["features.npy"]


def test_a_cache_that_was_written_is_read_in_full_once(scenes_copy: StoredDataset, reads: list[str]) -> None:
    ids = np.concatenate([scenes_copy.split(name).ids for name in scenes_copy.splits])
    store = write_precomputed(scenes_copy, ids, np.random.default_rng(0).normal(size=(len(ids), 4)).astype(np.float32))
    FeatureStore.open(store.directory, scenes_copy)
    assert reads == ["features.npy"]


def test_a_changed_file_is_read_again_and_refused(cached: FeatureStore, scenes_copy: StoredDataset) -> None:
    FeatureStore.find(scenes_copy)
    array = cached.directory / "features.npy"
    flip(array)
    with pytest.raises(DataError, match="features.npy"):
        FeatureStore.find(scenes_copy)


def test_features_that_are_not_finite_are_refused_in_a_copy_too(
    cached: FeatureStore, scenes_copy: StoredDataset
) -> None:
    FeatureStore.find(scenes_copy)
    rows = np.load(cached.directory / "features.npy")
    rows[3, 0] = np.nan
    np.save(cached.directory / "features.npy", rows)
    with pytest.raises(DataError):
        FeatureStore.find(scenes_copy)


def test_another_manifest_does_not_profit(cached: FeatureStore, scenes_copy: StoredDataset) -> None:
    FeatureStore.find(scenes_copy)
    manifest = cached.directory / "manifest.json"
    sha256 = cached.manifest["features_sha256"]
    manifest.write_text(manifest.read_text().replace(sha256, "0" * 64))
    with pytest.raises(DataError):
        FeatureStore.find(scenes_copy)


@pytest.mark.parametrize("left", ["", "{", "[]", '{"features": [1, 2]}', '{"features": null}'])
def test_a_damaged_memory_is_no_memory(
    cached: FeatureStore, scenes_copy: StoredDataset, reads: list[str], left: str
) -> None:
    (cached.directory / VERIFIED).write_text(left)
    FeatureStore.find(scenes_copy)
    FeatureStore.find(scenes_copy)
    assert reads == ["features.npy"]


def test_a_folder_that_cannot_be_written_to(
    cached: FeatureStore, scenes_copy: StoredDataset, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, value: object) -> None:
        raise PermissionError(13, "Read-only file system", str(path))

    # Not by its mode, which root need not heed.
    monkeypatch.setattr(files, "write_json", refuse)
    for _ in range(2):
        FeatureStore.find(scenes_copy)
    assert reads == 2 * ["features.npy"] and not (cached.directory / VERIFIED).exists()


def test_a_copy_that_keeps_times_is_read_once(
    cached: FeatureStore, scenes_copy: StoredDataset, reads: list[str], tmp_path: Path
) -> None:
    FeatureStore.find(scenes_copy)
    again = StoredDataset.open(shutil.copytree(scenes_copy.path, tmp_path / "again"))
    for _ in range(2):
        FeatureStore.find(again)
    assert reads == 2 * ["features.npy"]


def test_all_features_of_a_dataset_can_be_verified(
    cached: FeatureStore, scenes_copy: StoredDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    from vsemb.cli.__main__ import main

    assert main(["check", str(scenes_copy.path)]) == 0
    flip(cached.directory / "features.npy")
    assert main(["check", str(scenes_copy.path)]) == 1
    assert "damaged or reordered" in capsys.readouterr().out
    shutil.rmtree(cached.directory)
    with pytest.raises(DataError, match="`backbone`.*vsemb features"):
        FeatureStore.find(scenes_copy)

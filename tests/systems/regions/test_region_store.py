"""Configuration of regions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.raising import raises_argument
from tests.systems.regions.region_folders import IMAGES, content
from vsemb.errors import DataError
from vsemb.files import sha256_file
from vsemb.systems.regions.region_store import RegionConfig, RegionStore


def test_configuration_round_trip():
    config = RegionConfig("selective-search", count=7, overlap=1, pooling="crops", rank="confidence")
    assert RegionConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert isinstance(config.overlap, float)
    assert RegionConfig().candidates.in_graph and not RegionConfig("detections").candidates.in_graph


@pytest.mark.parametrize(
    "options",
    [
        {"source": "grids"},
        {"count": -1},
        {"count": True},
        {"count": 501},
        {"overlap": 1.5},
        {"overlap": "half"},
        {"overlap": float("nan")},
        {"pooling": "crop"},
        {"rank": "confidense"},
        {"rank": "confidence"},
    ],
)
def test_bad_configurations(options):
    (name,) = options
    with raises_argument(name):
        RegionConfig(**options)


def test_unknown_fields_of_a_file_are_refused():
    with pytest.raises(DataError, match="'pooling'"):
        RegionConfig.from_json({"pool": "map"})


def rewrite(folder: Path, **changes: np.ndarray) -> None:
    """Replaces arrays of a folder of regions and keeps the manifest in step."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name, array in changes.items():
        np.save(folder / f"{name}.npy", array)
        manifest[f"{name}_sha256"] = sha256_file(folder / f"{name}.npy")
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("array", "place", "value"),
    [
        ("features", (7, 0, 3), np.nan),
        ("features", (7, 0, 3), -np.inf),
        ("features", (7, 0, [3, 4]), [np.inf, -np.inf]),
        ("boxes", (7, 1, 3), np.nan),
        ("scores", (7, 1), np.inf),
        ("boxes", (7, 0, 2), 0.5),
        ("boxes", (7, 1), [0.5, 0.5, 0.6, 0.1]),
        ("boxes", (7, 1), [0.5, 0.5, 0.5, 0]),
        ("boxes", (7, 1), [-0.1, 0.5, 0.5, 0.1]),
        ("boxes", ([7, 7], [1, 3]), [[0] * 4, [0, 0, 0.5, 0.5]]),
        ("boxes", (7, slice(1, None)), 0),
    ],
    ids=["nan", "inf", "both", "nan-box", "inf-score", "part", "outside", "empty", "left", "gap", "padding"],
)
def test_regions_that_cannot_be_are_refused_by_name(array, place, value, with_regions):
    folder = RegionStore.find(with_regions).directory
    changed = np.load(folder / f"{array}.npy")
    changed[place] = value
    rewrite(folder, **{array: changed})
    with pytest.raises(DataError, match=r"7\.jpg \(id 7\)"):
        RegionStore.open(folder, with_regions)


def test_damaged_folders_are_refused(with_regions):
    folder = RegionStore.find(with_regions).directory
    whole = content(folder)

    def refused(value: str, **files: bytes) -> None:
        for stem, damaged in files.items():
            name = next(name for name in whole if name.startswith(stem))
            (folder / name).write_bytes(damaged)
        with pytest.raises(DataError, match=value):
            RegionStore.open(folder, with_regions)
        for name, stored in whole.items():
            (folder / name).write_bytes(stored)

    manifest = json.loads(whole["manifest.json"])

    def changed(**fields) -> bytes:
        return json.dumps({**manifest, **fields}).encode()

    for name in ("features", "boxes", "scores", "ids"):
        refused(rf"{name}\.npy", **{name: whole[f"{name}.npy"][:-100][:90]})
    refused(r"manifest\.json", manifest=b"{}")
    refused("version 9", manifest=changed(version=9))
    refused(
        "'boxes_sha256'",
        manifest=json.dumps({k: v for k, v in manifest.items() if k != "boxes_sha256"}).encode(),
    )
    for name in ("backbone", "regions"):
        refused("vsemb regions", manifest=changed(**{name: None}))
    refused("vsemb regions", manifest=changed(fingerprint="0"))
    refused("dim 128.* 7", manifest=changed(dim=7))
    for name in ("features", "boxes", "scores"):
        refused(rf"{name}\.npy", manifest=changed(**{f"{name}_sha256": ""}))
    (folder / "backbone.weights.h5").unlink()
    refused(r"backbone\.weights\.h5")
    np.save(folder / "features.npy", np.zeros((IMAGES, 4, 256), np.float32))
    refused("features float32")
    np.save(folder / "boxes.npy", np.zeros((IMAGES, 3, 4), np.float32))
    refused(r"'boxes': \(11, 3, 4\)")

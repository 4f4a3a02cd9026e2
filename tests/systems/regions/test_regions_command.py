"""`vsemb regions`."""

from __future__ import annotations

import json

import pytest

from tests.raising import raises_argument
from vsemb.cli.__main__ import main
from vsemb.image.backbones import build_backbone, weights_sha256
from vsemb.systems.regions import api
from vsemb.systems.regions.region_store import RegionStore, region_fingerprint
from vsemb.systems.regions.sources import Grid

DETECTIONS = ["--from", "detections", "--file"]
NETWORK = ["--backbone", "SmallConvNet", "--weights", "random", "--size", "32", "--count", "3"]


def regions(data, *options) -> int:
    return main(["regions", str(data.path), *map(str, options)])


@pytest.mark.slow
def test_a_grid_by_default(scenes_copy, tmp_path, capsys):
    report = tmp_path / "report.json"
    assert regions(scenes_copy, *NETWORK, "--overlap", 0.25, "--json", report) == 0
    values = json.loads(report.read_text())
    store = RegionStore.find(scenes_copy)
    assert (store.regions.source, store.regions.count, store.regions.overlap) == ("grid", 3, 0.25)
    assert values["shape"] == [72, 4, store.dim] == list(store.shape) and values["images_computed"] == 72
    assert 1 < values["regions_mean"] <= 4 and values["fingerprint"] == store.fingerprint
    assert values["next"] == f"vsemb train dvsa --data {scenes_copy.path} --out runs/dvsa"
    printed = capsys.readouterr().out
    for value in (store.fingerprint, f"72 x 4 x {store.dim}", store.directory, values["next"]):
        assert str(value) in printed
    assert regions(scenes_copy, *NETWORK, "--overlap", 0.25) == 0
    assert "nothing left to compute" in capsys.readouterr().out


@pytest.mark.slow
def test_boxes_of_a_detector(scenes_copy, tmp_path, capsys):
    entries = [
        {"image_id": entry["key"], "category_id": 1, "bbox": item["box"], "score": 0.5}
        for entry in scenes_copy.split("train").index.entries()
        for item in entry["objects"]
    ]
    path = tmp_path / "found.json"
    path.write_text(json.dumps(entries))
    assert regions(scenes_copy, *NETWORK, "--pooling", "crops", "--from", "detections", "--file", path) == 0
    store = RegionStore.find(scenes_copy)
    assert (store.regions.source, store.regions.rank) == ("detections", "confidence")
    train, val = scenes_copy.split("train"), scenes_copy.split("val")
    x, y, width, height = train.objects[0][0]["box"]
    expected = [x / 32, y / 32, width / 32, height / 32]
    assert min(abs(store.boxes(train.ids[:1])[0] - expected).max(axis=1)) < 1e-6
    assert not store.boxes(val.ids)[:, 1:].any()
    assert "24 of 72 images have no detection" in capsys.readouterr().err
    # With several, the next command names the one that was made.
    assert regions(scenes_copy, *NETWORK, "--overlap", 0.25) == 0
    other = next(path for path in store.directory.parent.iterdir() if path.name != store.fingerprint)
    assert f"--set image.fingerprint={other.name}" in capsys.readouterr().out


@pytest.mark.slow
def test_the_network_of_a_run(scenes_copy, tiny_pixel_run):
    assert regions(scenes_copy, "--weights", tiny_pixel_run.path, "--count", 2) == 0
    store = RegionStore.find(scenes_copy)
    assert (store.backbone.name, store.backbone.size) == ("SmallConvNet", 32)
    assert store.manifest["weights_sha256"] == weights_sha256(tiny_pixel_run.model.image_encoder.backbone)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", "selectivesearch"], "Did you mean 'selective-search'?"),
        ([*DETECTIONS, "none.json"], "detections none.json cannot be read"),
        ([*DETECTIONS, "{tmp}"], "cannot be read"),
        (["--from", "detections"], "`file` must be"),
        (["--images", "x.json"], "`images` must be omitted for grid; it is for detections"),
        ([*DETECTIONS, "{file}", "--images", "none.json"], "No list of images at none.json"),
        ([*DETECTIONS, "{file}"], "None of the 1 image_ids"),
        (["--count", "-1"], "`count` must be an integer from 0 to 500; got -1"),
        (["--overlap", "1.5"], "`overlap` must be a number in [0, 1]; got 1.5"),
        (["--overlap", "nan"], "`overlap` must be a number in [0, 1]; got nan"),
        (["--rank", "confidence"], "`rank` must be omitted for grid; it is for selective-search and detections"),
        (["--from", "published"], "must be omitted for published; it is for grid"),
        (["--batch-size", "0"], "`batch_size`"),
        (["--backbone", "Small"], "SmallConvNet; got 'Small'"),
        (["--size", "3"], "`size` must be a number of pixels >= 32; got 3"),
        (["--weights", "none.h5"], "No weights file at none.h5"),
        (["--weights", "{tmp}"], "must be a run directory"),
        (["--weights", "{run}"], "a run with its own network; got 'SmallConvNet'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_is_one_line(options, message, scenes_copy, tiny_pixel_run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.json").write_text('[{"image_id": 777, "bbox": [1, 1, 3, 3], "score": 1}]')
    before = sorted(scenes_copy.path.rglob("*"))
    places = {"tmp": tmp_path, "file": tmp_path / "file.json", "run": tiny_pixel_run.path}
    assert regions(scenes_copy, *NETWORK, *(option.format(**places) for option in options)) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert sorted(scenes_copy.path.rglob("*")) == before


def test_a_run_without_a_network_has_none_to_lend(scenes_copy, tiny_run, capsys):
    assert regions(scenes_copy, "--weights", tiny_run.path) == 1
    assert "a run that was trained from pixels" in capsys.readouterr().err


def test_the_function_refuses_what_a_source_does_not_take(scenes):
    for options, name in (
        ({"from_": "grids"}, "from_"),
        ({"from_": "published"}, "files"),
        ({"from_": "published", "files": ["a.npy"], "pooling": "map"}, "pooling"),
        ({"from_": "detections"}, "file"),
        ({"from_": Grid(), "count": 3}, "count"),
        ({"counts": 3}, "argument"),
    ):
        with raises_argument(name):
            api.regions(scenes, **options)


def test_a_preset_gives_its_own_weights(scenes_copy, preset_path):
    backbone = f"hub:{preset_path('resnet')}"
    assert regions(scenes_copy, "--backbone", backbone, "--count", 2, "--size", 32) == 0
    store = RegionStore.find(scenes_copy)
    sha256 = weights_sha256(build_backbone(store.backbone, "preset"))
    assert store.fingerprint == region_fingerprint(store.backbone, sha256, store.regions)

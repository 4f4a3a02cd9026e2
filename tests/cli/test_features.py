"""`vsemb features`."""

from __future__ import annotations

import json

import pytest

from vsemb.cli.__main__ import main
from vsemb.data.features.store import FeatureStore, feature_fingerprint
from vsemb.image.backbones import BackboneConfig, weights_sha256

NETWORK = ["--backbone", "SmallConvNet", "--weights", "random", "--size", "32"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "views"),
    [([], 2), (["--mirror"], 2), (["--no-mirror"], 1), (["--training-crops"], 11)],
)
def test_what_is_stored_of_each_image(scenes_copy, tmp_path, options, views):
    report = tmp_path / "report.json"
    arguments = ["features", str(scenes_copy.path), *NETWORK, *options, "--json", str(report)]
    assert main(arguments) == 0
    shape = json.loads(report.read_text())["shape"]
    assert shape[0] == 72 and (shape[1:-1] or [1]) == [views]


@pytest.mark.parametrize("options", [["--training-crops"], ["--crops", "10"]])
def test_mirror_images_beside_crops_are_refused(scenes_copy, options, capsys):
    before = sorted(scenes_copy.path.rglob("*"))
    assert main(["features", str(scenes_copy.path), *NETWORK, *options, "--mirror"]) == 1
    error = capsys.readouterr().err
    assert "`mirror` must be False with ten crops; got True" in error and error.count("\n") == 1
    assert sorted(scenes_copy.path.rglob("*")) == before


@pytest.mark.slow
def test_the_network_of_a_run_with_all_its_places(scenes_copy, tiny_pixel_run):
    arguments = [
        "features",
        str(scenes_copy.path),
        "--weights",
        str(tiny_pixel_run.path),
        "--pooling",
        "flat",
    ]
    assert main(arguments) == 0
    network = tiny_pixel_run.model.image_encoder.backbone
    config = BackboneConfig("SmallConvNet", 32, "flat")
    fingerprint = feature_fingerprint(config, weights_sha256(network), True)
    store = FeatureStore.find(scenes_copy, fingerprint)
    assert store.dim == 2 * 2 * 128


def test_a_run_lends_its_network_as_it_is(scenes_copy, tiny_pixel_run, capsys):
    arguments = ["features", str(scenes_copy.path), "--weights", str(tiny_pixel_run.path), "--size", "64"]
    assert main(arguments) == 1
    assert "`size` must be omitted" in capsys.readouterr().err

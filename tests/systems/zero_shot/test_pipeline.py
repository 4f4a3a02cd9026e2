"""The table of encoders on tiny flowers, and the image network trained on class labels."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from pipelines import class_backbone, zero_shot
from vsemb import Run
from vsemb.data.features.compute import cache_features
from vsemb.data.store import StoredDataset
from vsemb.image.backbones import BackboneConfig
from vsemb.systems.zero_shot.recognition import ZeroShotTask

QUICK = ["--set", "training.epochs=1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objectives", "seeds", "sentences"),
    [(["ds"], 1, ["1"]), pytest.param(["da", "ds"], 2, ["1", "2"], marks=pytest.mark.slow)],
    ids=["one", "all"],
)
def test_the_table_and_the_curves(flowers_path, tmp_path, capsys, objectives, seeds, sentences) -> None:
    command = ["--data", str(flowers_path), "--out", str(tmp_path / "out"), *QUICK, "--seeds", str(seeds)]
    command += ["--encoders", "bow", "attributes", "--objectives", *objectives, "--sentences", *sentences]
    command += ["--curve", "--typos", "0.2", "--json", str(tmp_path / "found.json")]
    assert zero_shot.main(command) == 0
    printed = capsys.readouterr().out
    content = json.loads((tmp_path / "found.json").read_text())
    assert (content["classes"], content["images"]) == (12, 24)
    for encoder in ("bow", "attributes"):
        assert list(content["table"][encoder]) == objectives
        for values in content["table"][encoder].values():
            assert 0 <= values["top1"] <= 100 and f"{values['top1']:.1f}" in printed
    # Attributes are no text: neither captions nor typing errors say anything about them.
    assert list(content["sentences"]["measured"]) == list(content["typos"]["all_texts"]) == ["bow"]
    assert content["curve"]["texts_per_class"][0] == "1" and content["curve"]["texts_per_class"][-1] == "all"
    table, curve = content["table"]["bow"]["ds"], content["curve"]["measured"]["bow"]
    for last in (curve[-1], content["typos"]["all_texts"]["bow"][0]):
        for name in ("top1", "average_precision"):
            assert last[name] == pytest.approx(table[name]) and last[f"{name}_deviation"] == 0
    # One text a class is another one in each of ten draws.
    assert curve[0] == content["typos"]["one_text"]["bow"][0] and curve[0]["top1_deviation"] > 0
    assert content["table"]["bow"]["ds"]["texts"] == 240 and content["table"]["attributes"]["ds"]["texts"] == 24
    # Objectives and seeds of two encoders, and numbers of captions of one of them.
    runs = 2 * len(objectives) * seeds + len(sentences) * seeds
    assert len(list((tmp_path / "out" / "runs").iterdir())) == runs


@pytest.mark.slow
def test_it_is_the_mean_of_seeds_and_goes_on_where_it_was(flowers, tmp_path, capsys) -> None:
    command = ["--data", str(flowers.path), "--out", str(tmp_path), *QUICK, "--encoders", "bow", "--seeds", "2"]
    command += ["--objectives", "da", "--json", str(tmp_path / "found.json")]
    assert zero_shot.main(command) == 0
    first = capsys.readouterr().out
    runs = [Run.open(path) for path in (tmp_path / "runs").iterdir()]
    found = [ZeroShotTask(run, flowers, "test").measure().top1 for run in runs]
    table = json.loads((tmp_path / "found.json").read_text())["table"]["bow"]["da"]
    assert len(found) == 2 and table["top1"] == pytest.approx(np.mean(found))
    assert zero_shot.main(command) == 0
    again = capsys.readouterr()
    assert again.out == first and "is finished already" in again.err


def test_errors_are_one_line(tmp_path, flowers_path, capsys) -> None:
    assert zero_shot.main(["--data", str(tmp_path / "none")]) == 1
    wrong = [
        ["--encoders", "word-cn"],
        ["--seeds", "0"],
        ["--split", "nope"],
        ["--split", "train"],
        ["--typos", "2"],
        ["--sentences", "1", "0"],
        ["--objectives", "da", "--curve"],
    ]
    for options in wrong:
        assert zero_shot.main(["--data", str(flowers_path), "--out", str(tmp_path / "o"), *options]) == 1
    assert not (tmp_path / "o").exists()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 + len(wrong) and "word-cnn" in lines[1]


def test_attributes_alone_need_some(scenes_path, tmp_path, capsys) -> None:
    assert zero_shot.main(["--data", str(scenes_path), "--out", str(tmp_path), "--encoders", "attributes"]) == 1
    assert "no attributes" in capsys.readouterr().err


@pytest.mark.slow
def test_the_image_network_reads_training_labels_alone(flowers_path, tmp_path, capsys) -> None:
    data, out = shutil.copytree(flowers_path, tmp_path / "data"), tmp_path / "net.weights.h5"
    assert class_backbone.main([str(data), "--out", str(out), "--epochs", "1"]) == 0
    assert "training accuracy" in capsys.readouterr().out
    store = cache_features(StoredDataset.open(data), BackboneConfig("SmallConvNet"), weights=out)
    assert store.shape == (120, 256)
    assert class_backbone.main([str(tmp_path), "--out", str(out)]) == 1

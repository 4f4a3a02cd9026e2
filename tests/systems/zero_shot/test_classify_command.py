"""`vsemb classify`."""

from __future__ import annotations

import json
import shutil

import pytest

from vsemb.cli.__main__ import main

CLASSES = [
    "--classes",
    "red circle",
    "blue square",
    "green star",
    "--template",
    "a {}",
    "--template",
    "one {}",
]


@pytest.mark.slow
def test_images_and_what_is_wrong_with_some(tiny_pixel_run, scenes, tmp_path, capsys):
    split = scenes.split("val")
    good, bad, report = tmp_path / "good.png", tmp_path / "bad.png", tmp_path / "found.json"
    good.write_bytes(split.read_image(0))
    bad.write_bytes(b"nothing")
    arguments = ["classify", str(tiny_pixel_run.path), str(bad), str(good), split.keys[0], *CLASSES]
    assert main([*arguments, "--top", "2", "--json", str(report)]) == 1
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and str(bad) in said.err and "unreadable" in said.err
    lines = said.out.splitlines()
    assert lines[0].split() == ["image", "class", "score", "probability"] and len(lines) == 7
    assert lines[6] == "probability: softmax of the scores, since the run has no logit scale"
    assert lines[1].startswith(str(good)) and lines[3].startswith(split.keys[0])
    # The same image, as a file and from the dataset.
    assert lines[2].split()[-1] == lines[4].split()[-1]
    written = json.loads(report.read_text())
    assert written["classes"] == CLASSES[1:4] and written["templates"] == ["a {}", "one {}"]
    assert "error" in written["images"][0] and len(written["images"][1]["scores"]) == 2
    assert 0 < sum(written["images"][1]["probabilities"].values()) < 1
    # An unknown class is skipped and the others are answered.
    assert main(["classify", str(tiny_pixel_run.path), str(good), *CLASSES[:4], "zyzzyva", "--json", str(report)]) == 0
    said = capsys.readouterr()
    assert said.err == "Warning: skipped classes without a known word: zyzzyva.\n"
    assert len(said.out.splitlines()) == 6
    assert json.loads(report.read_text())["skipped"] == ["zyzzyva"]


def test_a_whole_split(tiny_run, scenes, tmp_path, capsys):
    names, report = tmp_path / "classes.txt", tmp_path / "found.json"
    labels = sorted(set(scenes.split("test").class_names))
    names.write_text("\n".join(labels) + "\n")
    assert main(["classify-split", str(tiny_run.path), "--classes-file", str(names), "--json", str(report)]) == 0
    out = capsys.readouterr().out
    written = json.loads(report.read_text())
    assert written["images"] == written["labelled"] == 12 and written["templates"] == ["{}"]
    assert f"accuracy {written['accuracy']:.1f} % (mean over classes)" in out and "12 of 12 images" in out
    assert main(["classify-split", str(tiny_run.path), "--split", "val", "--classes", "red", "blue"]) == 0
    assert "accuracy" not in capsys.readouterr().out


@pytest.mark.slow
def test_image_files_need_no_dataset(tiny_pixel_run, scenes, tmp_path, capsys):
    run = shutil.copytree(tiny_pixel_run.path, tmp_path / "run")
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(info | {"data": str(tmp_path / "gone")}))
    (tmp_path / "good.png").write_bytes(scenes.split("val").read_image(0))
    assert main(["classify", str(run), str(tmp_path / "good.png"), *CLASSES]) == 0
    capsys.readouterr()
    assert main(["classify-split", str(run), *CLASSES]) == 1
    assert "Name it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "`classes`"),
        (["--classes", "zyzzyva"], "`classes` must be names with a word of the run's vocabulary; got ['zyzzyva']"),
        (["--classes", "red, blue square"], "red 'blue square'"),
        (["--classes", "red", "--template", "a"], "exactly one {}"),
        (["--template", "a {}"], "`classes`"),
        (["--classes", "red", "--classes-file", "classes.txt"], "`classes_file` must be omitted"),
        (["--classes-file", "/nowhere/classes.txt"], "/nowhere/classes.txt"),
        (["--classes", "red", "--data", "/nowhere"], "/nowhere"),
    ],
)
@pytest.mark.parametrize("command", ["classify", "classify-split"])
def test_mistakes_are_one_line(tiny_run, command, options, said, capsys):
    images = ["x.png"] if command == "classify" else []
    assert main([command, str(tiny_run.path), *images, *options]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_counts_and_splits_are_checked(tiny_run, capsys):
    for arguments, said in (
        (["classify", str(tiny_run.path), "x.png", "--classes", "red", "--top", "0"], "`top`"),
        (["classify-split", str(tiny_run.path), "--classes", "red", "--split", "vall"], "Did you mean 'val'"),
    ):
        assert main(arguments) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1


def test_sets_and_names_of_unequal_length(region_run, region_scenes, capsys):
    key = region_scenes.split("val").keys[0]
    run, classes = str(region_run.path), ["--classes", "circle", "blue square"]
    assert main(["classify", run, key, *classes]) == 0
    said = capsys.readouterr()
    assert "scores are sums over words" in said.err and said.err.count("\n") == 1
    assert len(said.out.splitlines()) == 5
    assert main(["classify-split", run, *classes, "--split", "val"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["class", "images"]

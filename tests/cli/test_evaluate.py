"""`vsemb evaluate --zero-shot`."""

from __future__ import annotations

import json

import pytest

from tests.class_scenes import train_on_classes, write_class_scenes
from vsemb.cli.__main__ import main


@pytest.fixture(scope="module")
def class_run(tiny_recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("classes")
    return train_on_classes(tiny_recipe, write_class_scenes(folder / "scenes"), folder / "run")


def test_prints_a_table_writes_json_and_draws(class_run, tmp_path, capsys):
    report, picture = tmp_path / "metrics.json", tmp_path / "classes.png"
    arguments = ["evaluate", str(class_run.path), "--zero-shot", "--split", "test", "--curve", "--top", "3"]
    arguments += ["--typos", "0", "0.2", "--json", str(report), "--picture", str(picture)]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("test: 15 classes, 48 images, 240 texts") and "AP@3" in lines[0]
    assert lines[1].startswith("all texts") and lines[2].startswith("  1 a class")
    assert any(line.startswith("20 % of characters mistyped") for line in lines)
    assert "No class of the split was trained on." in lines
    assert picture.read_bytes().startswith(b"\x89PNG") and str(picture) in lines[-1]
    written = json.loads(report.read_text())
    assert written["split"] == "test" and written["classes_seen"] is False
    clean, mistyped = written["measured"]
    assert (clean["typos"], mistyped["typos"]) == (0, 0.2) and clean["top1"] > mistyped["top1"] > 0
    assert lines[1].split()[2:] == [
        f"{clean[name]:.1f}" for name in ("top1", "top1_images", "average_precision", "chance")
    ]
    assert [point["texts"] for point in clean["curve"]][-1] == "all"


def test_seen_classes_are_measured_on_demand_and_said(tiny_run, capsys):
    arguments = ["evaluate", str(tiny_run.path), "--zero-shot"]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert "share the class" in error and "--seen" in error and error.count("\n") == 1
    assert main([*arguments, "--seen"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("val: ") and "Classes seen in training" in out and "is at most" in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--curve"], "without --zero-shot"),
        (["--typos", "0"], "without --zero-shot"),
        (["--top", "3"], "without --zero-shot"),
        (["--seen"], "without --zero-shot"),
        (["--seed", "1"], "without --zero-shot"),
        (["--picture", "x.png"], "without --zero-shot"),
        (["--zero-shot", "--folds", "2"], "1 with --zero-shot"),
        (["--zero-shot", "--bootstrap", "9"], "0 with --zero-shot"),
        (["--zero-shot", "--seen", "--typos", "0", "1.5"], "typos=1.5"),
        (["--zero-shot", "--seen", "--top", "0"], "`top`"),
        (["--zero-shot", "--seen", "--split", "vall"], "Did you mean 'val'"),
    ],
)
def test_what_does_not_go_together_is_one_line(tiny_run, options, said, capsys):
    assert main(["evaluate", str(tiny_run.path), *options]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1

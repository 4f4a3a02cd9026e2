"""`vsemb evaluate --protocol zero-shot`: recognition of classes, tables, pictures and refusals."""

from __future__ import annotations

import builtins
import json
import shutil

import numpy as np
import pytest

from vsemb import Run
from vsemb.cli.__main__ import main
from vsemb.data.store import Split
from vsemb.systems.zero_shot.class_names import ClassTokenizer
from vsemb.systems.zero_shot.recognition import ZeroShotTask
from vsemb.text import Vocabulary


def test_prints_a_table_writes_json_and_draws(class_run, tmp_path, capsys):
    report, picture = tmp_path / "metrics.json", tmp_path / "classes.png"
    arguments = ["evaluate", str(class_run.path), "--protocol", "zero-shot", "--split", "test", "--curve", "--top", "3"]
    arguments += ["--typos", "0", "0.2", "--json", str(report), "--picture", str(picture)]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("test: 15 classes, 48 images, 240 texts") and "AP@3" in lines[0]
    assert lines[1].startswith("all texts") and lines[2].startswith("  1 per class")
    assert any(line.startswith("20 % of characters mistyped") for line in lines)
    assert "The classes of the split are disjoint from the training classes." in lines
    assert picture.read_bytes().startswith(b"\x89PNG") and str(picture) in lines[-1]
    written = json.loads(report.read_text())
    assert written["split"] == "test" and written["classes_seen"] is False
    clean, mistyped = written["measured"]
    assert (clean["typos"], mistyped["typos"]) == (0, 0.2) and clean["top1"] > mistyped["top1"] > 0
    assert lines[1].split()[2:] == [
        f"{clean[name]:.1f}" for name in ("top1", "top1_images", "average_precision", "chance")
    ]
    assert [point["texts"] for point in clean["curve"]][-1] == "all"


@pytest.fixture
def nothing_measured(monkeypatch):
    """Fails where something is embedded."""

    def refuse(*args, **kwargs):
        raise AssertionError("measured")

    monkeypatch.setattr(ZeroShotTask, "measure", refuse)
    monkeypatch.setattr(ZeroShotTask, "draw", refuse)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--seed", "-1"], "`seed`"),
        (["--seed", "99999999999", "--typos", "0.1"], "`seed`"),
        (["--picture", "classes.jpg"], "`picture`"),
        (["--picture", "classes"], "ends in .png"),
    ],
)
def test_is_refused_before_anything_is_measured(class_run, nothing_measured, options, said, capsys):
    assert main(["evaluate", str(class_run.path), "--protocol", "zero-shot", "--split", "test", *options]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_picture_that_cannot_be_is_refused_before(class_run, nothing_measured, tmp_path, monkeypatch, capsys):
    data = shutil.copytree(class_run.data_path, tmp_path / "data")

    def said() -> str:
        arguments = [
            "--data",
            str(data),
            "--protocol",
            "zero-shot",
            "--split",
            "test",
            "--picture",
            str(tmp_path / "classes.PNG"),
        ]
        assert main(["evaluate", str(class_run.path), *arguments]) == 1
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    real = builtins.__import__

    def without_scikit_learn(name, *args, **kwargs):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "__import__", without_scikit_learn)
        assert "vsemb[report]" in said()
    with monkeypatch.context() as patch:
        patch.setattr(Split, "class_ids", lambda self: (["a", "b", "c"], np.zeros(len(self), int)))
        patch.setattr(Run, "texts_of", lambda self, split: ([], np.zeros(0, int)))
        assert "must be at least 4; got 3" in said()
    shards = list(data.glob("test-*"))
    assert shards
    for shard in shards:
        moved = shard.rename(tmp_path / shard.name)
        assert "is damaged" in said()
        moved.rename(shard)


def test_a_picture_that_cannot_be_written_fails_before_the_measurement(class_run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ZeroShotTask, "measure", lambda *args, **kwargs: pytest.fail("measured"))
    (tmp_path / "taken.png").mkdir()
    arguments = ["--split", "test", "--json", str(tmp_path / "metrics.json")]
    arguments += ["--picture", str(tmp_path / "taken.png")]
    assert main(["evaluate", str(class_run.path), "--protocol", "zero-shot", *arguments]) == 1
    said = capsys.readouterr()
    assert "taken.png" in said.err and said.err.count("\n") == 1
    assert not (tmp_path / "metrics.json").exists()


def test_typing_errors_of_a_run_without_texts_name_their_option(class_run, nothing_measured, monkeypatch, capsys):
    monkeypatch.setattr(Run, "tokenizer", ClassTokenizer(Vocabulary(["a"])))
    arguments = ["evaluate", str(class_run.path), "--protocol", "zero-shot", "--split", "test", "--typos", "0", "0.1"]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert (
        "`typos` must be 0 for a run on attributes; got 0.1" in error
        and "on attributes" in error
        and error.count("\n") == 1
    )


def test_seen_classes_are_measured_on_demand_and_said(tiny_run, capsys):
    arguments = ["evaluate", str(tiny_run.path), "--protocol", "zero-shot"]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert "must use unseen classes" in error and "--seen" in error and error.count("\n") == 1
    assert main([*arguments, "--seen"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("val: ") and "Classes seen in training" in out and "is at most" in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--curve"], "`curve`"),
        (["--typos", "0"], "`typos`"),
        (["--picture", "x.png"], "`picture`"),
        (["--protocol", "zero-shot", "--folds", "2"], "`folds`"),
        (["--protocol", "zero-shot", "--pairs"], "`pairs`"),
        (["--protocol", "zero-shots"], "Did you mean 'zero-shot'"),
        (["--protocol", "zero-shot", "--seen", "--typos", "0", "1.5"], "`typos`"),
        (["--protocol", "zero-shot", "--seen", "--top", "0"], "`top`"),
        (["--protocol", "zero-shot", "--seen", "--split", "vall"], "Did you mean 'val'"),
    ],
)
def test_what_does_not_go_together_is_one_line(tiny_run, options, said, capsys):
    assert main(["evaluate", str(tiny_run.path), *options]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1

"""`vsemb scenes`: options reach the generator, the dataset is written, and the user is told where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vsemb.cli.__main__ import main
from vsemb.data import synthetic as scenes


def test_writes_a_dataset_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "scenes"
    counts = ["--train", "3", "--val", "2", "--test", "0", "--compositional", "1"]
    assert main(["scenes", "--out", str(out), *counts, "--seed", "5"]) == 0
    manifest = json.loads((out / "manifest.json").read_text())
    assert {split: entry["images"] for split, entry in manifest["splits"].items()} == {
        "train": 3,
        "val": 2,
        "compositional": 1,
    }
    first = next(scenes.generate({"train": 1}, seed=5))
    printed = capsys.readouterr().out.splitlines()
    assert str(out) in printed[0]
    assert [line.strip() for line in printed[1:4]] == list(first.captions[::2])
    trained = "--out RUN --fine-tune SmallConvNet"
    assert printed[4].split(maxsplit=1) == ["next", f"vsemb train contrastive --data {out} {trained}"]


def test_zero_shot_has_no_compositional_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "scenes"
    assert main(["scenes", "--out", str(out), "--train", "2", "--val", "1", "--test", "1", "--zero-shot"]) == 0
    assert set(json.loads((out / "manifest.json").read_text())["splits"]) == {"train", "val", "test"}
    again = ["scenes", "--out", str(tmp_path / "more"), "--zero-shot", "--compositional", "1"]
    assert main(again) == 1
    assert "class-disjoint" in capsys.readouterr().err
    assert not (tmp_path / "more").exists()


@pytest.mark.parametrize("other", [["--zero-shot"], ["--compositional", "3"]])
def test_fine_grained_is_not_combined(tmp_path: Path, other: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenes", "--out", str(tmp_path / "x"), "--fine-grained", *other]) == 1
    assert f"{other[0]} must be used without a mode; got it with --fine-grained" in capsys.readouterr().err

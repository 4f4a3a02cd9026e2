"""`vsemb.scenes`: options reach the generator, the dataset is written, and the user is told where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import vsemb
from tests.raising import raises_argument
from vsemb.cli.__main__ import main
from vsemb.data import synthetic as scenes
from vsemb.data.scenes import Shapes


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
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["dataset"] == str(out) and rows["caption"] == first.captions[0]
    trained = "--out runs/scenes --fine-tune SmallConvNet"
    assert rows["next"] == f"vsemb train contrastive --data {out} {trained}"


def test_the_function_and_the_command_write_the_same(tmp_path: Path) -> None:
    made = vsemb.scenes(tmp_path / "a", train=2, val=1, test=1, compositional=0)
    counts = ["--train", "2", "--val", "1", "--test", "1", "--compositional", "0"]
    assert main(["scenes", "--out", str(tmp_path / "b"), *counts]) == 0
    assert made.fingerprint == vsemb.Dataset.open(tmp_path / "b").fingerprint
    other = Shapes(train=2, val=1, test=1, compositional=0)
    assert vsemb.scenes(tmp_path / "b", kind=other).fingerprint == made.fingerprint


def test_zero_shot_has_no_compositional_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "scenes"
    assert main(["scenes", "--out", str(out), "--train", "2", "--val", "1", "--test", "1", "--zero-shot"]) == 0
    assert set(json.loads((out / "manifest.json").read_text())["splits"]) == {"train", "val", "test"}
    again = ["scenes", "--out", str(tmp_path / "more"), "--zero-shot", "--compositional", "1"]
    assert main(again) == 1
    assert "`compositional` must be omitted with zero_shot" in capsys.readouterr().err
    assert not (tmp_path / "more").exists()


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"kind": "flowers", "zero_shot": True}, "zero_shot"),
        ({"kind": "flowers", "compositional": 3}, "compositional"),
        ({"kind": "flower"}, "kind"),
        ({"train": -1}, "train"),
        ({"size": 15}, "size"),
        ({"size": 1025}, "size"),
        ({"seed": -1}, "seed"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(tmp_path: Path, options: dict[str, Any], name: str) -> None:
    with raises_argument(name):
        vsemb.scenes(tmp_path / "x", **options)
    assert not list(tmp_path.iterdir())

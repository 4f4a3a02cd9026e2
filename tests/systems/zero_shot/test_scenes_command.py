"""`vsemb scenes --fine-grained`: flowers and their attributes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vsemb.cli.__main__ import main
from vsemb.systems.zero_shot import flowers
from vsemb.systems.zero_shot.attributes import read_attributes


def test_fine_grained_writes_flowers_and_their_attributes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "flowers"
    counts = ["--train", "45", "--val", "3", "--test", "0", "--seed", "2"]
    assert main(["scenes", "--out", str(out), "--fine-grained", *counts]) == 0
    manifest = json.loads((out / "manifest.json").read_text())
    assert {split: entry["images"] for split, entry in manifest["splits"].items()} == {"train": 45, "val": 3}
    assert manifest["source"]["options"]["generator"] == flowers.VERSION
    attributes = read_attributes(out)
    assert attributes is not None
    assert attributes.names == flowers.attributes(2).names
    for name, row in flowers.attributes(2).values.items():
        assert attributes.values[name].tolist() == row.tolist()
    printed = capsys.readouterr().out.splitlines()
    assert "45 train, 3 val images of 40 train, 3 val classes, ten descriptions each" in printed[0]
    first = next(flowers.generate({"train": 1}, seed=2))
    assert [line.strip() for line in printed[1:-1]] == list(first.captions[:5:2])

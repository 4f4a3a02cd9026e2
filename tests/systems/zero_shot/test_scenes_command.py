"""`vsemb scenes --kind flowers`: flowers and their attributes."""

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
    assert main(["scenes", "--out", str(out), "--kind", "flowers", *counts]) == 0
    manifest = json.loads((out / "manifest.json").read_text())
    assert {split: entry["images"] for split, entry in manifest["splits"].items()} == {"train": 45, "val": 3}
    assert manifest["source"]["options"]["generator"] == flowers.VERSION
    attributes = read_attributes(out)
    assert attributes is not None
    assert attributes.names == flowers.attributes(2).names
    for name, row in flowers.attributes(2).values.items():
        assert attributes.values[name].tolist() == row.tolist()
    assert manifest["name"] == "flowers"
    first = next(flowers.generate({"train": 1}, seed=2))
    assert f"caption      {first.captions[0]}" in capsys.readouterr().out

"""Images that two splits have in common, as `prepare`, `check` and `Dataset.from_…` say."""

from __future__ import annotations

import json

import pytest
from PIL import Image

import vsemb
from vsemb.api.data import prepare
from vsemb.cli.__main__ import main
from vsemb.data import duplicates
from vsemb.data.duplicates import shared_images
from vsemb.data.records import ImageRecord
from vsemb.data.writing.writer import write_dataset


@pytest.fixture
def pictures(tmp_path):
    """Twelve pictures, of which the last four are byte-equal to the first four."""
    files = [tmp_path / f"{number}.png" for number in range(12)]
    for number, file in enumerate(files):
        Image.new("RGB", (8, 8), (20 * (number % 8), 0, 0)).save(file)
    return files


def table(folder, files, splits):
    rows = [f"{file.name},a picture,{split}" for file, split in zip(files, splits, strict=True)]
    (folder / "t.csv").write_text("\n".join(["file,caption,split", *rows]))
    return folder / "t.csv"


@pytest.mark.parametrize("block", [3, 100])
def test_prepare_and_check_name_images_of_two_splits(pictures, tmp_path, capsys, monkeypatch, block):
    monkeypatch.setattr(duplicates, "_BLOCK", block)
    dataset = prepare(table(tmp_path, pictures, ["train"] * 8 + ["test"] * 3 + ["val"]), tmp_path / "out")
    said = capsys.readouterr().err.splitlines()
    lines = list(shared_images(dataset))
    # Of twelve pictures, three of test and one of val are in train; none of test is in val.
    assert len(lines) == 2 and all(line in said for line in lines)
    assert [line.split()[0] for line in lines] == ["1", "3"]
    assert "11.png" in lines[0] and all(f"{number}.png" in lines[1] for number in (8, 9, 10))
    out = tmp_path / "check.json"
    assert main(["check", str(dataset.path), "--json", str(out)]) == 0
    assert all(line in capsys.readouterr().out for line in lines[:1])
    assert json.loads(out.read_text())["shared"] == lines


def test_nothing_is_said_of_images_of_one_split(pictures, tmp_path):
    dataset = prepare(
        table(tmp_path, pictures, [["train", "test"][place % 8 > 4] for place in range(12)]), tmp_path / "out"
    )
    assert list(shared_images(dataset)) == []


def test_datasets_from_python_objects_name_them_too(pictures, capsys):
    splits = ["train"] * 8 + ["val"] * 4
    dataset = vsemb.Dataset.from_pairs(pictures, ["a picture"] * 12, splits=splits)
    (line,) = shared_images(dataset)
    assert line in capsys.readouterr().err


def test_a_dataset_without_images_has_none_in_common(tmp_path):
    records = [ImageRecord(name, ("a picture",), name, None) for name in ("train", "val")]
    source = {"format": "mine", "path_name": "none", "sha256": {}, "options": {}}
    assert list(shared_images(write_dataset(records, tmp_path / "out", name="none", source=source))) == []

"""Datasets in the formats of other programs, and back."""

from __future__ import annotations

import pytest
from PIL import Image

from tests.raising import raises_argument
from vsemb.api.data import prepare
from vsemb.cli.__main__ import main
from vsemb.data.records import ImageRecord
from vsemb.data.store import StoredDataset
from vsemb.data.writing.convert import convert
from vsemb.data.writing.writer import write_dataset
from vsemb.errors import DataError


@pytest.fixture
def dataset(tmp_path):
    for number in range(7):
        Image.new("RGB", (6, 4), (30 * number, 100, 200)).save(tmp_path / f"{number}.jpg")
    records = [
        ImageRecord(
            f"ä/{number}.jpg",
            (f"One {number}", "Two")[: 1 + number % 2],
            "train" if number < 5 else "val",
            tmp_path / f"{number}.jpg",
            class_name="dog" if number else None,
        )
        for number in range(7)
    ]
    return write_dataset(records, tmp_path / "data", name="back", source={"format": "mine"})


@pytest.mark.parametrize("format", ["webdataset", "parquet"])
def test_there_and_back(tmp_path, dataset, format, capsys):
    assert (
        main(["convert", str(dataset.path), "--format", format, "--out", str(tmp_path / "x"), "--images-per-file", "3"])
        == 0
    )
    assert "3 files" in capsys.readouterr().out
    assert {file.name.split(".")[0] for file in (tmp_path / "x").iterdir()} == {
        "train-00000",
        "train-00001",
        "val-00000",
    }
    back = prepare(tmp_path / "x", tmp_path / "back")
    for name in dataset.splits:
        ours, theirs = dataset.split(name), back.split(name)
        assert list(theirs.keys) == list(ours.keys) and list(theirs.captions) == list(ours.captions)
        assert list(theirs.digests) == list(ours.digests) and list(theirs.class_names) == list(ours.class_names)


@pytest.mark.parametrize("format", ["webdataset", "parquet"])
def test_splits_stay_where_a_file_has_no_name_of_one(tmp_path, dataset, format, capsys):
    files = convert(dataset, tmp_path / "x", format).files
    (tmp_path / "y").mkdir()
    for number, file in enumerate(files):
        file.rename(tmp_path / "y" / f"{number}{file.suffix}")
    back = prepare(tmp_path / "y", tmp_path / "back")
    assert {name: len(back.split(name)) for name in back.splits} == {"train": 5, "val": 2}
    # A sample's own split comes before the name of its file.
    (tmp_path / "y" / files[1].name.replace("val", "test")).write_bytes(
        (tmp_path / "y" / f"1{files[1].suffix}").read_bytes()
    )
    (tmp_path / "y" / f"1{files[1].suffix}").unlink()
    assert list(prepare(tmp_path / "y", tmp_path / "again").splits) == ["train", "val"]
    assert "A hash of the key" not in capsys.readouterr().err


def test_damaged_images_are_not_copied(tmp_path, dataset):
    (shard,) = dataset.split("train").shards
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 255
    shard.write_bytes(content)
    with pytest.raises(DataError, match="other bytes"):
        convert(dataset, tmp_path / "x", "parquet")
    assert not (tmp_path / "x").exists()


def test_bad_arguments(tmp_path, dataset):
    with raises_argument("format"):
        convert(dataset, tmp_path / "x", "tfrecord")
    with pytest.raises(DataError, match="already exists"):
        convert(StoredDataset.open(dataset.path), tmp_path, "parquet")

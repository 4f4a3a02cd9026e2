"""VSE++'s precomputed features."""

from __future__ import annotations

import numpy as np
import pytest

from vsemb.api.data import prepare
from vsemb.data.features.store import FeatureStore
from vsemb.data.readers import read
from vsemb.errors import DataError

FEATURES = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)


def write_split(folder, name, rows, captions):
    np.save(folder / f"{name}_ims.npy", rows)
    text = [f"{name} {number}" for number in range(captions)] if isinstance(captions, int) else captions
    (folder / f"{name}_caps.txt").write_text("".join(f"{line}\n" for line in text), encoding="utf-8")


def test_repeated_rows_are_merged(tmp_path):
    write_split(tmp_path, "train", np.repeat(FEATURES[:3], 5, axis=0), 15)
    write_split(tmp_path, "dev", np.repeat(FEATURES[3:5], 5, axis=0), 10)
    source = read("vsepp", tmp_path)
    assert [(r.key, r.split) for r in source.records] == [
        ("train-0", "train"),
        ("train-1", "train"),
        ("train-2", "train"),
        ("dev-0", "val"),
        ("dev-1", "val"),
    ]
    assert source.records[1].captions == tuple(f"train {number}" for number in range(5, 10))
    np.testing.assert_array_equal(source.rows("train", ["train-0", "train-1", "train-2"]), FEATURES[:3])
    np.testing.assert_array_equal(source.rows("val", ["dev-1"]), FEATURES[4:5])


def test_one_row_an_image(tmp_path):
    write_split(tmp_path, "test", FEATURES, 30)
    source = read("vsepp", tmp_path)
    assert [len(record.captions) for record in source.records] == [5] * 6
    assert source.records[5].captions[0] == "test 25"


def test_as_many_different_rows_as_captions(tmp_path):
    write_split(tmp_path, "train", FEATURES, 6)
    assert [r.captions for r in read("vsepp", tmp_path).records] == [(f"train {n}",) for n in range(6)]


def test_neighbours_with_equal_features_stay_apart(tmp_path):
    # Images 0 and 1 are alike, so that the runs are 10, 5 and 5 rows long: their greatest divisor is 5.
    write_split(tmp_path, "train", np.repeat(FEATURES[[0, 0, 1, 2]], 5, axis=0), 20)
    assert len(read("vsepp", tmp_path).records) == 4


def test_runs_are_found_across_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("vsemb.data.readers.vsepp._BLOCK", 4)
    write_split(tmp_path, "train", np.repeat(FEATURES, 5, axis=0), 30)
    assert len(read("vsepp", tmp_path).records) == 6


@pytest.mark.parametrize("repeat", [1, 5])
def test_prepared_with_features_and_blank_captions(tmp_path, repeat, capsys):
    """Image 1 of train has only blank captions and is left out, with its row."""
    (tmp_path / "in").mkdir()
    lines = [f"image {number // 5} text {number % 5}" for number in range(15)]
    lines[5:10] = ["", " ", "", "", "  "]
    lines[0] = "line\u2028separator\x0bs"
    write_split(tmp_path / "in", "train", np.repeat(FEATURES[:3], repeat, axis=0), lines)
    write_split(tmp_path / "in", "test", np.repeat(FEATURES[3:5], repeat, axis=0), 10)
    dataset = prepare(tmp_path / "in", tmp_path / "out", format="vsepp")
    train, test = dataset.split("train"), dataset.split("test")
    assert train.keys == ["train-0", "train-2"]
    assert train.captions[0] == "line separator s"
    assert train.captions[5] == "image 2 text 0"
    assert dataset.manifest["skipped"] == [{"key": "train-1", "reason": "no caption"}]
    store = FeatureStore.find(dataset)
    np.testing.assert_array_equal(store.rows(train.ids), FEATURES[[0, 2]])
    np.testing.assert_array_equal(store.rows(test.ids), FEATURES[[3, 4]])
    prepare(tmp_path / "in", tmp_path / "out", format="vsepp")
    assert "nothing to do" in capsys.readouterr().err


class Payload:
    pass


@pytest.mark.parametrize(
    ("rows", "captions", "named"),
    [
        (FEATURES, 13, "6 .*13"),
        (FEATURES, 3, "6 .*3"),
        (FEATURES, 0, "captions"),
        (FEATURES * np.float32(np.nan), 30, "row 0 .*row 1"),
        (FEATURES.astype(np.int32), 30, "int32"),
        (FEATURES[0], 20, "float"),
        (FEATURES[:0], 5, "float"),
        (np.array([Payload()]), 5, "train_ims.npy"),
    ],
)
def test_broken_files(tmp_path, rows, captions, named):
    write_split(tmp_path, "train", rows, captions)
    with pytest.raises(DataError, match=named):
        read("vsepp", tmp_path)


@pytest.mark.parametrize("repeat", [1, 5])
def test_images_with_bad_features_or_captions_are_named_and_left_out(tmp_path, repeat):
    features = FEATURES.copy()
    features[3, 2], features[5, 0] = np.nan, np.inf
    write_split(tmp_path, "train", np.repeat(features, repeat, axis=0), 30)
    lines = (tmp_path / "train_caps.txt").read_bytes().split(b"\n")
    lines[6] = b"\xff"
    (tmp_path / "train_caps.txt").write_bytes(b"\n".join(lines))
    source = read("vsepp", tmp_path)
    assert [record.key for record in source.records] == ["train-0", "train-1", "train-2", "train-4"]
    assert source.records[1].captions[1] == "" and len(source.records[1].captions) == 5
    assert [line.rpartition("train_")[2] for line in source.bad] == [
        "caps.txt, line 7: not UTF-8 text. Convert the file to UTF-8.",
        *(f"ims.npy: row {row * repeat} is not finite." for row in (3, 5)),
    ]
    np.testing.assert_array_equal(source.rows("train", ["train-0", "train-4"]), features[[0, 4]])


def test_missing_and_unequal_files(tmp_path):
    with pytest.raises(DataError, match="train_ims.npy"):
        read("vsepp", tmp_path)
    write_split(tmp_path, "train", FEATURES, 30)
    write_split(tmp_path, "dev", FEATURES[:, :3], 30)
    with pytest.raises(DataError):
        read("vsepp", tmp_path)
    (tmp_path / "dev_caps.txt").unlink()
    with pytest.raises(DataError, match="dev_ims.npy"):
        read("vsepp", tmp_path)
    (tmp_path / "train_ims.npy").write_bytes(b"\x93NUMPY broken")
    with pytest.raises(DataError):
        read("vsepp", tmp_path)
    with pytest.raises(DataError):
        read("vsepp", tmp_path / "train_caps.txt")

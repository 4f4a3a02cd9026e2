"""Karpathy JSON files."""

from __future__ import annotations

import pytest

from tests.raising import raises_argument
from vsemb.data.readers import read
from vsemb.errors import DataError


def entry(number: int, split: str, **more):
    sentences = [{"raw": f"Raw {number}-{place}.", "tokens": ["raw"]} for place in range(2)]
    return {"filename": f"{number}.jpg", "imgid": number, "split": split, "sentences": sentences, **more}


def test_splits_captions_and_images(tmp_path, pictures, json_file):
    path = json_file(tmp_path / "dataset_tiny.json", {"images": [entry(0, "train"), entry(1, "test"), entry(2, "val")]})
    pictures(tmp_path / "images", "0.jpg", "1.jpg", "2.jpg")
    for source in (path, tmp_path):
        records = read("karpathy", source).records
        assert [(record.key, record.split) for record in records] == [
            ("0.jpg", "train"),
            ("1.jpg", "test"),
            ("2.jpg", "val"),
        ]
        assert records[1].captions == ("Raw 1-0.", "Raw 1-1.")
        assert records[0].image == tmp_path / "images" / "0.jpg"
    assert read("karpathy", path).files == (path,)


@pytest.mark.parametrize(
    ("sentids", "listed", "ids"),
    [
        ([4, 5], None, ("4", "5")),
        (["a", 5], [1, 2], ("a", "5")),
        ([None, None], [8, 9], ("8", "9")),
        ([4, None], None, ()),
        ([4, " "], None, ()),
        ([True, [1]], [1], ()),
        ([None, None], "89", ()),
    ],
    ids=["sentences", "both", "image", "one without", "blank", "no ids", "text"],
)
def test_ids_of_sentences(tmp_path, pictures, json_file, sentids, listed, ids):
    made = entry(0, "train", sentids=listed)
    for sentence, number in zip(made["sentences"], sentids, strict=True):
        sentence["sentid"] = number
    path = json_file(tmp_path / "dataset_x.json", {"images": [made]})
    pictures(tmp_path / "images", "0.jpg")
    assert read("karpathy", path).records[0].caption_ids == ids


@pytest.mark.parametrize(
    ("restval", "splits"),
    [("train", ["train", "train"]), ("keep", ["train", "restval"]), ("drop", ["train"])],
)
def test_restval(tmp_path, pictures, json_file, restval, splits):
    path = json_file(tmp_path / "dataset_x.json", {"images": [entry(0, "train"), entry(1, "restval")]})
    pictures(tmp_path / "images", "0.jpg", "1.jpg")
    source = read("karpathy", path, restval=restval)
    assert [record.split for record in source.records] == splits
    assert bool(source.notes) == (restval != "keep")


@pytest.mark.parametrize("nested", [True, False])
def test_coco_entries_name_their_folder(tmp_path, pictures, json_file, nested):
    entries = [entry(0, "train", filepath="train2014"), entry(1, "val", filepath="val2014")]
    path = json_file(tmp_path / "meta" / "dataset_coco.json", {"images": entries})
    folder = tmp_path / "coco"
    pictures(folder, *(["train2014/0.jpg", "val2014/1.jpg"] if nested else ["0.jpg", "1.jpg"]))
    records = read("karpathy", path, images=folder).records
    assert all(record.image.exists() for record in records)
    assert [record.key for record in records] == ["0.jpg", "1.jpg"]


def test_images_beside_and_missing_ones(tmp_path, pictures, json_file):
    path = json_file(tmp_path / "dataset_x.json", {"images": [entry(0, "train"), entry(1, "test")]})
    pictures(tmp_path, "0.jpg")
    records = read("karpathy", path).records
    assert [record.image.exists() for record in records] == [True, False]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ([], "dataset_x.json"),
        ({"images": []}, "dataset_x.json"),
        ({"images": [{"split": "train"}]}, "image 0 .*filename"),
        ({"images": [entry(7, "train")]}, "'7.jpg'.*`images`"),
    ],
)
def test_broken_files(tmp_path, pictures, json_file, content, named):
    path = json_file(tmp_path / "dataset_x.json", content)
    pictures(tmp_path / "images", "0.jpg")
    with pytest.raises(DataError, match=named):
        read("karpathy", path)


def test_malformed_entries_are_named_with_their_numbers_and_left_out(tmp_path, pictures, json_file):
    entries = [entry(0, "train"), {"filename": "x", "split": 3}, entry(0, "val"), 4]
    entries += [entry(0, "val", filename="b.jpg"), entry(5, "val", filename="../0.jpg"), entry(6, "test")]
    path = json_file(tmp_path / "dataset_x.json", {"images": entries})
    pictures(tmp_path / "images", "0.jpg", "6.jpg")
    source = read("karpathy", path)
    assert [(record.key, record.split) for record in source.records] == [("0.jpg", "train"), ("6.jpg", "test")]
    problems = [line.removeprefix(f"{path}: ") for line in source.bad]
    assert [line.partition(" (")[0] for line in problems[:4]] == [
        "image 1: the split must be text; got 3.",
        "image 2 has the filename '0.jpg' of an earlier one.",
        "image 3 is not a Karpathy entry",
        "image 4 has the imgid '0' of an earlier one.",
    ]
    assert len(problems) == 5 and "must lie below the images folder" in problems[4]


@pytest.mark.parametrize("field", ["filename", "filepath", "split", "raw", "sentid"])
def test_text_that_no_file_can_hold_is_named_with_its_entry(tmp_path, pictures, json_file, field):
    half = entry(1, "train")
    for part in [half] if field in ("filename", "filepath", "split") else half["sentences"]:
        part[field] = "\ud83d"
    path = json_file(tmp_path / "dataset_x.json", {"images": [entry(0, "train"), half, entry(2, "train")]})
    pictures(tmp_path / "images", "0.jpg", "1.jpg", "2.jpg")
    source = read("karpathy", path)
    assert [record.key for record in source.records] == ["0.jpg", "2.jpg"]
    assert [f"image 1: the {field} must be" in line for line in source.bad] == [True]


def test_folders_with_none_or_several(tmp_path, json_file):
    with pytest.raises(DataError):
        read("karpathy", tmp_path)
    for name in ("dataset_a.json", "dataset_b.json"):
        json_file(tmp_path / name, {})
    with pytest.raises(DataError, match="dataset_a.json, dataset_b.json"):
        read("karpathy", tmp_path)
    with pytest.raises(DataError):
        read("karpathy", tmp_path / "nowhere")
    (tmp_path / "dataset_a.json").write_text("{")
    with pytest.raises(DataError):
        read("karpathy", tmp_path / "dataset_a.json")


def test_unknown_formats_and_options(tmp_path):
    with raises_argument("format"):
        read("karpaty", tmp_path)
    for name, value in (("split", "train"), ("splits", "train"), ("restval", "yes")):
        with raises_argument("option" if name == "splits" else name):
            read("karpathy", tmp_path, **{name: value})

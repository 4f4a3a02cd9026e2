"""COCO captions."""

from __future__ import annotations

import pytest

from vsemb.data.readers import read
from vsemb.errors import DataError


def captions(numbers, per_image: int = 2, folder: str = "") -> dict:
    """Image 5 is 000005.jpg; annotations are shuffled among images, as in the real files."""
    return {
        "images": [{"id": number, "file_name": f"{folder}{number:06d}.jpg"} for number in numbers],
        "annotations": [
            {"id": number * 10 + place, "image_id": number, "caption": f"{place} of {number}"}
            for place in range(per_image)
            for number in numbers
        ],
    }


def test_the_root_folder(tmp_path, pictures, json_file):
    json_file(tmp_path / "annotations/captions_train2017.json", captions([5, 3]))
    json_file(tmp_path / "annotations/captions_val2017.json", captions([8]))
    json_file(tmp_path / "annotations/instances_val2017.json", {})
    pictures(tmp_path, "train2017/000005.jpg", "train2017/000003.jpg", "val2017/000008.jpg")
    source = read("coco", tmp_path)
    assert [(r.key, r.split, r.captions) for r in source.records] == [
        ("000005.jpg", "train", ("0 of 5", "1 of 5")),
        ("000003.jpg", "train", ("0 of 3", "1 of 3")),
        ("000008.jpg", "val", ("0 of 8", "1 of 8")),
    ]
    # Ids of annotations: ten times the image's and the caption's number.
    assert [r.caption_ids for r in source.records] == [("50", "51"), ("30", "31"), ("80", "81")]
    assert all(record.image.exists() for record in source.records)
    assert [file.name for file in source.files] == ["captions_train2017.json", "captions_val2017.json"]


@pytest.mark.parametrize("images", ["pics", "pics/val2014"])
def test_one_file(tmp_path, pictures, json_file, images):
    path = json_file(tmp_path / "captions_val2014.json", captions([1]))
    pictures(tmp_path / "pics" / "val2014", "000001.jpg")
    (record,) = read("coco", path, images=tmp_path / images).records
    assert record.split == "val"
    assert record.image.exists()
    (record,) = read("coco", path, images=tmp_path / images, split="test").records
    assert record.split == "test"


def test_an_image_without_captions_stays_for_the_report(tmp_path, pictures, json_file):
    content = captions([1]) | {"images": [{"id": 1, "file_name": "000001.jpg"}, {"id": 2, "file_name": "2.jpg"}]}
    path = json_file(tmp_path / "captions_val2014.json", content)
    pictures(tmp_path, "000001.jpg", "2.jpg")
    assert [record.captions for record in read("coco", path).records] == [("0 of 1", "1 of 1"), ()]


def with_annotations(*notes) -> dict:
    return captions([1]) | {"annotations": list(notes)}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ([], "COCO"),
        ({"images": {}, "annotations": []}, "COCO"),
        ({"images": [], "annotations": []}, "captions_val2014.json"),
        ({"images": [{"id": 1}], "annotations": []}, "image 0 .*file_name"),
    ],
)
def test_broken_files(tmp_path, pictures, json_file, content, named):
    path = json_file(tmp_path / "captions_val2014.json", content)
    pictures(tmp_path, "000001.jpg")
    with pytest.raises(DataError, match=named):
        read("coco", path)


def test_malformed_entries_are_named_with_their_numbers_and_left_out(tmp_path, pictures, json_file):
    good = {"id": 1, "image_id": 1, "caption": "one"}
    content = with_annotations(
        *(good, {"id": 2, "image_id": 1}, {"id": 3, "image_id": 9, "caption": "x"}, good, 4, {**good, "id": 5})
    )
    content["images"] += [{"id": 2}, {"id": 1, "file_name": "x.jpg"}, {"id": 3, "file_name": "../x.jpg"}]
    content["images"].append({"id": 4, "file_name": "\ud83d.jpg"})
    content["annotations"].append({"id": 6, "image_id": 1, "caption": "half \ud83d"})
    path = json_file(tmp_path / "captions_val2014.json", content)
    pictures(tmp_path, "000001.jpg")
    source = read("coco", path)
    assert [(record.captions, record.caption_ids) for record in source.records] == [(("one", "one"), ("1", "5"))]
    assert [line.removeprefix(f"{path}: ").partition(";")[0] for line in source.bad] == [
        "image 1 must have id, file_name",
        "image 2 has the id 1 of an earlier one.",
        "image 4: the file_name must be valid Unicode",
        "annotation 1 must have id, image_id, caption",
        "annotation 2 describes image 9, which is not listed.",
        "annotation 3 has the id 1 of an earlier one.",
        "annotation 4 must have id, image_id, caption",
        "annotation 6: the caption must be valid Unicode",
        f"The image must lie below the images folder {tmp_path}",
    ]


def test_unclear_splits_and_years(tmp_path, pictures, json_file):
    with pytest.raises(DataError):
        read("coco", tmp_path)
    path = json_file(tmp_path / "mine.json", captions([1]))
    pictures(tmp_path, "000001.jpg")
    with pytest.raises(DataError, match="`split`"):
        read("coco", path)
    assert read("coco", path, split="train").records[0].split == "train"
    json_file(tmp_path / "captions_val2014.json", captions([1]))
    json_file(tmp_path / "captions_val2017.json", captions([1]))
    with pytest.raises(DataError, match="several years"):
        read("coco", tmp_path)
    with pytest.raises(DataError):
        read("coco", path, split="train", images=tmp_path / "nowhere")


def test_ids_as_numbers_and_as_text_are_equal(tmp_path, pictures, json_file):
    notes = [("1", 1, "one"), (2, "1", "two"), ("2", 1, "lost")]
    named = [{"id": identity, "image_id": image, "caption": text} for identity, image, text in notes]
    content = with_annotations(*named)
    content["images"].append({"id": "1", "file_name": "other.jpg"})
    path = json_file(tmp_path / "captions_val2014.json", content)
    pictures(tmp_path, "000001.jpg", "other.jpg")
    source = read("coco", path)
    assert [(record.captions, record.caption_ids) for record in source.records] == [(("one", "two"), ("1", "2"))]
    # Nothing is left out without a line.
    assert [line.removeprefix(f"{path}: ").partition(" has")[0] for line in source.bad] == ["image 1", "annotation 2"]


def test_entries_with_the_same_file_are_one_image(tmp_path, pictures, json_file):
    content = captions([1, 2, 3], per_image=1)
    for entry, name in zip(content["images"], ["sub/1.jpg", "./sub/./1.jpg", "sub/1.jpg"], strict=True):
        entry["file_name"] = name
    path = json_file(tmp_path / "captions_val2014.json", content)
    pictures(tmp_path, "sub/1.jpg")
    (record,) = read("coco", path).records
    assert record.key == "sub/1.jpg" and record.captions == ("0 of 1", "0 of 2", "0 of 3")
    assert record.caption_ids == ("10", "20", "30")


def test_names_from_windows(tmp_path, pictures, json_file):
    content = captions([1, 2], per_image=1)
    content["images"][0]["file_name"] = "photos\\a.jpg"
    content["images"][1]["file_name"] = ".\\photos\\b.jpg"
    path = json_file(tmp_path / "captions_val2014.json", content)
    pictures(tmp_path, "photos/a.jpg", "photos/b.jpg")
    records = read("coco", path).records
    assert [record.key for record in records] == ["photos/a.jpg", "photos/b.jpg"]
    assert all(record.image.exists() for record in records)

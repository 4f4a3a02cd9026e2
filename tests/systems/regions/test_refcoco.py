"""RefCOCO: expressions and boxes by hand, and files that would run code."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from vsemb import prepare
from vsemb.data.readers import infer_format
from vsemb.errors import DataError
from vsemb.systems.regions.pointing import named_objects
from vsemb.systems.regions.refcoco import RefCoco

BOXES: dict[str, Any] = {
    "images": [{"id": number, "file_name": f"{number}.jpg"} for number in (7, 8)],
    "categories": [{"id": 1, "name": "person"}],
    "annotations": [
        {"id": 70, "image_id": 7, "bbox": [10.5, 5, 20, 20], "category_id": 1},
        {"id": 71, "image_id": 7, "bbox": [0, 0, 60, 40], "category_id": 1},
        {"id": 80, "image_id": 8, "bbox": [1, 2, 3, 4], "category_id": 1},
        {"id": 81, "image_id": 8, "bbox": [1, 2, 0, 4], "category_id": 1},
    ],
}


def expressions(number: int, split: str, *texts: str) -> dict[str, Any]:
    """The entry of an object; the name of its file is of no image, as in the published files."""
    sentences = [{"sent": text, "tokens": text.split(), "raw": text.upper()} for text in texts]
    return {"ann_id": number, "image_id": number // 10, "file_name": "7_1.jpg", "split": split, "sentences": sentences}


REFS = [
    expressions(71, "train", "guy on the left"),
    expressions(80, "testA", "small one", "the dog"),
    expressions(70, "train", "woman"),
]


def write_refcoco(folder: Path, refs: Any, boxes: Any = None, protocol: int = 2) -> Path:
    """Write the files; Python 2, which wrote the published ones, has protocols up to 2."""
    folder.mkdir(exist_ok=True)
    (folder / "refs(unc).p").write_bytes(pickle.dumps(refs, protocol=protocol))
    (folder / "instances.json").write_text(json.dumps(BOXES if boxes is None else boxes))
    (folder / "images").mkdir(exist_ok=True)
    for number in (7, 8):
        Image.new("RGB", (60, 40), (number, 0, 0)).save(folder / "images" / f"{number}.jpg")
    return folder


def test_boxes_with_the_id_of_another_are_named(tmp_path: Path) -> None:
    boxes = {
        "images": [*BOXES["images"], {"id": 7, "file_name": "8.jpg"}],
        "categories": [*BOXES["categories"], {"id": 1, "name": "dog"}],
        "annotations": [
            *BOXES["annotations"][:3],
            BOXES["annotations"][0],
            {"id": 70, "image_id": 8, "bbox": [1, 1, 2, 2], "category_id": 1},
        ],
    }
    source = RefCoco().read(write_refcoco(tmp_path / "refcoco", REFS, boxes))
    train = next(record for record in source.records if record.key == "7.jpg")
    assert {tuple(each["box"]) for each in train.objects} == {(10.5, 5, 20, 20), (0, 0, 60, 40)}
    assert {each["label"] for each in train.objects} == {"person"}
    named = [line.partition(": ")[2].partition(" has")[0] for line in source.bad]
    assert named == ["category 1", "image 2", "annotation 4"]  # Annotation 3 repeats an earlier one.


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_every_word_names_the_object(tmp_path: Path, protocol: int) -> None:
    folder = write_refcoco(tmp_path / "refcoco", REFS, protocol=protocol)
    assert infer_format(folder) == infer_format(folder / "refs(unc).p") == "refcoco"
    dataset = prepare(folder, tmp_path / "data")
    assert dataset.splits == ("train", "testa")
    train, test = dataset.split("train"), dataset.split("testa")
    assert list(train.captions) == ["guy on the left", "woman"]
    assert train.objects[0] == [
        {"label": "person", "box": [0, 0, 60, 40]},
        {"label": "person", "box": [10.5, 5, 20, 20]},
    ]
    assert [named_objects(pairs) for pairs in train.alignments[0]] == [dict.fromkeys(range(4), (0,)), {0: (1,)}]
    assert list(test.captions) == ["small one", "the dog"]
    assert [named_objects(pairs) for pairs in test.alignments[0]] == [{0: (0,), 1: (0,)}] * 2


def test_ids_of_the_same_file_are_one_image(tmp_path: Path) -> None:
    boxes = {**BOXES, "images": [{"id": 7, "file_name": "7.jpg"}, {"id": 8, "file_name": "./7.jpg"}]}
    source = RefCoco().read(write_refcoco(tmp_path / "refcoco", [*REFS[::2], expressions(80, "train", "dog")], boxes))
    (record,) = source.records
    assert (record.key, record.captions) == ("7.jpg", ("guy on the left", "woman", "dog"))
    assert len(record.objects) == 3


def test_malformed_entries_are_named(tmp_path: Path) -> None:
    wrong = [
        expressions(81, "testA", "an empty box"),
        expressions(99, "train", "no box"),
        expressions(80, "train", "the image is in another split"),
        expressions(70, "train", " "),
        {"ann_id": 70, "split": "train"},
        {"ann_id": 70, "split": "train", "sentences": [{"raw": "no sent"}]},
    ]
    source = RefCoco().read(write_refcoco(tmp_path / "refcoco", [*REFS, *wrong]))
    assert [record.captions for record in source.records] == [("guy on the left", "woman"), ("small one", "the dog")]
    parts = [
        "annotation 3: the box must be",
        "object 3 must have an expression",
        "object 4 must have an expression",
        "object 5 puts 8.jpg into the split train; it is in testa already",
        "object 6 must have an expression",
        "object 7 must have ann_id, split, sentences",
        "object 8 must have sent",
    ]
    assert len(source.bad) == len(parts)
    assert all(part in message for part, message in zip(parts, source.bad, strict=True)), source.bad


@pytest.mark.parametrize(
    ("refs", "boxes", "message"),
    [
        ({}, BOXES, "dict"),
        (REFS, [], "images, annotations, categories"),
        ([], BOXES, "`images`"),
    ],
)
def test_files_of_another_form(refs: Any, boxes: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        RefCoco().read(write_refcoco(tmp_path / "refcoco", refs, boxes))


def test_a_folder_without_expressions(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="refs"):
        RefCoco().read(tmp_path)

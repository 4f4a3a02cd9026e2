"""Flickr30k Entities: phrases and boxes by hand, and the dataset on which pointing is measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from vsemb import prepare
from vsemb.data.readers import infer_format
from vsemb.errors import DataError
from vsemb.systems.regions.entities import Entities, linked_phrases, read_boxes
from vsemb.systems.regions.pointing import named_objects, object_nouns

BOXES = """<annotation><filename>7.jpg</filename><size><width>60</width><height>40</height></size>
<object><name>1</name><bndbox><xmin>10</xmin><ymin>5</ymin><xmax>30</xmax><ymax>25</ymax></bndbox></object>
<object><name>1</name><name>2</name><bndbox><xmin>0</xmin><ymin>0</ymin><xmax>60</xmax><ymax>40</ymax></bndbox></object>
<object><name>3</name><scene>1</scene><nobndbox>0</nobndbox></object>
</annotation>"""
CAPTIONS = "[/EN#1/people Two young guys] at [/EN#3/scene a yard] .\nA cap on [/EN#2/clothing his head]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_entities(tmp_path / "entities")


def write_entities(root: Path) -> Path:
    """Write two images in train and one in val, and a malformed one."""
    for name in ("Annotations", "Sentences", "flickr30k-images"):
        (root / name).mkdir(parents=True)
    for image in (7, 8, 9, 10):
        (root / "Annotations" / f"{image}.xml").write_text(BOXES if image != 10 else "<annotation>")
        (root / "Sentences" / f"{image}.txt").write_text(CAPTIONS)
        Image.new("RGB", (60, 40), (image, 0, 0)).save(root / "flickr30k-images" / f"{image}.jpg")
    (root / "train.txt").write_text("7\n8\n10\n")
    (root / "val.txt").write_text("9\n")
    return root


def test_boxes_and_phrases_by_hand(folder: Path) -> None:
    path = folder / "Annotations" / "7.xml"
    objects, numbers = read_boxes(path)
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert read_boxes(path) == (objects, numbers)
    assert [item["box"] for item in objects] == [[10, 5, 20, 20], [0, 0, 60, 40]]
    assert numbers == {"1": [0, 1], "2": [1]}
    caption, pairs = linked_phrases(CAPTIONS.splitlines()[0], numbers)
    assert caption == "Two young guys at a yard ."
    named = named_objects(pairs)
    assert named == {0: (0, 1), 1: (0, 1), 2: (0, 1)}  # The yard has no box.
    assert object_nouns(named) == {2}
    assert linked_phrases(CAPTIONS.splitlines()[1], numbers)[1] == ((3, 1), (4, 1))


def test_a_dataset_has_links_from_words_to_boxes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert infer_format(folder) == "entities"
    dataset = prepare(folder, tmp_path / "data")
    assert "10.xml must be an annotation" in capsys.readouterr().err
    assert dataset.split("train").keys == ["7.jpg", "8.jpg"]
    val = dataset.split("val")
    assert list(val.captions) == ["Two young guys at a yard .", "A cap on his head"]
    assert [item["box"] for item in val.objects[0]] == [[10, 5, 20, 20], [0, 0, 60, 40]]
    assert [[tuple(pair) for pair in pairs] for pairs in val.alignments[0]][1] == [(3, 1), (4, 1)]


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
        "<a><object><name>1</name><bndbox><xmin>1</xmin></bndbox></object></a>",
        BOXES.replace("<xmax>30", "<xmax>3"),
    ],
)
def test_malformed_annotations(text: str, tmp_path: Path) -> None:
    (tmp_path / "1.xml").write_text(text)
    with pytest.raises(DataError, match=r"1\.xml"):
        read_boxes(tmp_path / "1.xml")


def test_a_folder_without_lists(folder: Path) -> None:
    for name in ("train", "val"):
        (folder / f"{name}.txt").unlink()
    with pytest.raises(DataError, match=r"train\.txt"):
        Entities().read(folder)

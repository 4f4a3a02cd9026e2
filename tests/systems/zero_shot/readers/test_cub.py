"""CUB-200-2011 with descriptions, four birds of three classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vsemb import prepare
from vsemb.data.readers import read
from vsemb.errors import DataError
from vsemb.systems.zero_shot.attributes import read_attributes

CLASSES = ["001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty_Albatross", "004.Ani"]
IMAGES = [
    "001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg",
    "001.Black_footed_Albatross/Black_Footed_Albatross_0009_34.jpg",
    "002.Laysan_Albatross/Laysan_Albatross_0002_1027.jpg",
    "003.Sooty_Albatross/Sooty_Albatross_0048_1130.jpg",
]


@pytest.fixture
def birds(tmp_path, pictures) -> Path:
    """Writes the folder that holds CUB_200_2011 and, beside it, the descriptions."""
    root = tmp_path / "CUB_200_2011"
    pictures(root / "images", *IMAGES)
    (root / "images.txt").write_text("".join(f"{n} {name}\n" for n, name in enumerate(IMAGES, 1)))
    (root / "classes.txt").write_text("".join(f"{n} {name}\n" for n, name in enumerate(CLASSES, 1)))
    (root / "attributes").mkdir()
    (root / "attributes" / "class_attribute_labels_continuous.txt").write_text("0.0 25.0\n50.5 100.0\n1 2\n3 4\n")
    (tmp_path / "attributes.txt").write_text("1 has_bill_shape::dagger\n2 has_wing_color::blue\n")
    texts = tmp_path / "cvpr2016_cub"
    for number, name in enumerate(IMAGES):
        file = (texts / "text_c10" / name).with_suffix(".txt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"bird {number} is black\n\nit has\ufffd\ufffd a beak .\n", encoding="utf-8")
    for split, name in zip(("train", "val", "test"), CLASSES, strict=False):
        (texts / f"{split}classes.txt").write_text(f"{name}\n")
    return tmp_path


def test_images_descriptions_and_splits(birds):
    for source, options in [
        (birds, {}),
        (birds / "CUB_200_2011", {}),
        (birds, {"descriptions": birds / "cvpr2016_cub"}),
        (birds, {"descriptions": birds / "cvpr2016_cub" / "text_c10"}),
    ]:
        found = read("cub", source, **options)
        assert [(r.key, r.split, r.class_name) for r in found.records] == [
            (IMAGES[0], "train", "Black footed Albatross"),
            (IMAGES[1], "train", "Black footed Albatross"),
            (IMAGES[2], "val", "Laysan Albatross"),
            (IMAGES[3], "test", "Sooty Albatross"),
        ]
        # Empty lines go, and so do characters that were lost before.
        assert found.records[1].captions == ("bird 1 is black", "it has a beak .")
        assert all(record.image.exists() for record in found.records)
        assert found.notes == ()


def test_attributes_are_shares(birds):
    found = read("cub", birds).attributes
    assert found.names == ("has_bill_shape::dagger", "has_wing_color::blue")
    assert list(found.values) == ["Black footed Albatross", "Laysan Albatross", "Sooty Albatross", "Ani"]
    np.testing.assert_allclose(found.matrix(["Laysan Albatross"]), [[0.505, 1]])
    (birds / "attributes.txt").rename(birds / "CUB_200_2011" / "attributes" / "attributes.txt")
    assert read("cub", birds).attributes.names == found.names
    (birds / "CUB_200_2011" / "attributes" / "attributes.txt").unlink()
    assert read("cub", birds).attributes.names == ("attribute 1", "attribute 2")
    (birds / "CUB_200_2011" / "attributes" / "class_attribute_labels_continuous.txt").unlink()
    found = read("cub", birds)
    assert found.attributes is None
    (note,) = found.notes
    assert "attributes/class_attribute_labels_continuous.txt is missing in" in note and "CUB_200_2011" in note


def test_prepare_writes_the_attributes(birds, tmp_path):
    dataset = prepare(birds, tmp_path / "out", format="cub")
    assert dataset.splits == ("train", "val", "test")
    assert dataset.split("test").class_names == ["Sooty Albatross"]
    assert read_attributes(dataset.path).matrix(["Ani"]).shape == (1, 2)


def test_changed_descriptions_make_another_source(birds):
    before = read("cub", birds).options
    assert before == read("cub", birds).options
    file = (birds / "cvpr2016_cub" / "text_c10" / IMAGES[0]).with_suffix(".txt")
    file.write_text("bird 0 is white\n")
    assert read("cub", birds).options != before


def test_images_of_unlisted_classes_and_images_without_a_description(birds):
    (birds / "cvpr2016_cub" / "valclasses.txt").write_text("004.Ani\n")
    (birds / "cvpr2016_cub" / "text_c10" / IMAGES[1]).with_suffix(".txt").unlink()
    source = read("cub", birds)
    assert [(r.split, len(r.captions)) for r in source.records] == [("train", 2), ("train", 0), ("test", 2)]
    assert source.notes == ("1 image of a class in no list is left out: 002.Laysan_Albatross",)


@pytest.mark.parametrize(
    ("breaking", "value"),
    [
        (lambda root: (root / "cvpr2016_cub").rename(root / "elsewhere"), "`descriptions`"),
        (lambda root: (root / "cvpr2016_cub" / "testclasses.txt").unlink(), r"trainclasses\.txt"),
        (lambda root: (root / "CUB_200_2011" / "images.txt").unlink(), r"images\.txt"),
        (
            lambda root: (root / "CUB_200_2011" / "images.txt").write_text("1\n"),
            r"images\.txt, line 1",
        ),
        (lambda root: (root / "CUB_200_2011" / "images.txt").write_text(""), r"images\.txt"),
        (lambda root: (root / "CUB_200_2011" / "images").rename(root / "x"), "`images`"),
        (
            lambda root: (root / "CUB_200_2011" / "classes.txt").write_text("1 a\n"),
            r"classes\.txt.* 4",
        ),
        (lambda root: (root / "attributes.txt").write_text("1 a\n"), r"\(1,\).*\(2,\)"),
        (
            lambda root: [
                file.rename(file.with_suffix(".text")) for file in (root / "cvpr2016_cub").rglob("*Albatross_*.txt")
            ],
            "`descriptions`",
        ),
    ],
)
def test_broken_folders(birds, breaking, value):
    breaking(birds)
    with pytest.raises(DataError, match=value):
        read("cub", birds)

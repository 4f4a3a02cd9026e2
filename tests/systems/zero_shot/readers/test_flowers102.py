"""Flowers-102 with descriptions, five flowers of four classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from vsemb.data.readers import read
from vsemb.data.readers.hash_splits import ranked
from vsemb.errors import DataError

PLACES = {6734: 1, 6735: 1, 5: 2, 12: 3, 13: 4}


@pytest.fixture
def flowers(tmp_path, pictures) -> Path:
    """Writes the folder that holds jpg/, text_c10/ and the lists."""
    for image, kind in PLACES.items():
        pictures(tmp_path / "jpg", f"image_{image:05d}.jpg")
        file = tmp_path / "text_c10" / f"class_{kind:05d}" / f"image_{image:05d}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"flower {image} is pink\nit has petals\n")
    for split, kinds in (("train", (1, 2)), ("val", (3,)), ("test", (4,))):
        (tmp_path / f"{split}classes.txt").write_text("".join(f"class_{kind:05d}\n" for kind in kinds))
    return tmp_path


def test_images_descriptions_and_splits(flowers):
    records = read("flowers102", flowers).records
    assert [(r.key, r.split, r.class_name) for r in records] == [
        ("image_06734.jpg", "train", "class_00001"),
        ("image_06735.jpg", "train", "class_00001"),
        ("image_00005.jpg", "train", "class_00002"),
        ("image_00012.jpg", "val", "class_00003"),
        ("image_00013.jpg", "test", "class_00004"),
    ]
    assert records[2].captions == ("flower 5 is pink", "it has petals")
    assert records[2].image == flowers / "jpg" / "image_00005.jpg"


def test_images_in_another_folder(flowers):
    photos = (flowers / "jpg").rename(flowers / "photos")
    for images in (photos, photos.as_uri()):
        assert len(read("flowers102", flowers, images=images).records) == 5
    with pytest.raises(DataError, match="nowhere"):
        read("flowers102", flowers, images=flowers / "nowhere")


def test_train_and_val_in_one_list(flowers):
    for split in ("train", "val"):
        (flowers / f"{split}classes.txt").unlink()
    names = [f"class_{kind:05d}" for kind in (1, 2, 3)]
    (flowers / "trainvalclasses.txt").write_text("\n".join(names))
    source = read("flowers102", flowers)
    # A fifth of three is rounded to one.
    assert {r.class_name for r in source.records if r.split == "val"} == set(ranked(names)[:1])
    assert source.notes == ("1 of the 3 classes of trainvalclasses.txt are val, in the order of their hashes.",)


def test_names_of_classes(flowers):
    names = flowers / "names.txt"
    names.write_text("pink primrose\nhard-leaved pocket orchid\ncanterbury bells\nsweet pea\n")
    source = read("flowers102", flowers, class_names=names)
    assert [r.class_name for r in source.records][1:4] == [
        "pink primrose",
        "hard-leaved pocket orchid",
        "canterbury bells",
    ]
    assert names in source.files
    names.write_text("pink primrose\n")
    with pytest.raises(DataError, match="class_00002"):
        read("flowers102", flowers, class_names=names)
    names.write_text("rose\nrose\n")
    with pytest.raises(DataError, match=r"names\.txt"):
        read("flowers102", flowers, class_names=names)


@pytest.mark.parametrize(
    ("breaking", "value"),
    [
        (lambda root: (root / "text_c10").rename(root / "x"), "`descriptions`"),
        (lambda root: (root / "jpg").rename(root / "x"), "`images`"),
        (lambda root: (root / "testclasses.txt").unlink(), r"trainclasses\.txt"),
        (
            lambda root: (root / "text_c10" / "class_00002" / "image_06734.txt").write_text("x\n"),
            "image_06734.*class_00001",
        ),
        (
            lambda root: [file.unlink() for file in (root / "text_c10").rglob("*.txt")],
            "text_c10",
        ),
    ],
)
def test_broken_folders(flowers, breaking, value):
    breaking(flowers)
    with pytest.raises(DataError, match=value):
        read("flowers102", flowers)

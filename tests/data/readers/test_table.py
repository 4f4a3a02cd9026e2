"""Tables of files and captions."""

from __future__ import annotations

import json
import unicodedata

import pytest

from vsemb.data.readers import read
from vsemb.data.readers.hash_splits import hash_split
from vsemb.errors import DataError, InvalidArgumentError

CSV = """file,caption,split,class
a.jpg,"A dog, running",train,dog
b.jpg,Bär 🐻,dev,bear
a.jpg,A dog,train,dog
"""
TSV = """image|text|split|label
a.jpg|A dog, running|train|dog
b.jpg|Bär 🐻|val|bear
a.jpg|A dog|train|dog
""".replace("|", "\t")
JSONL = "".join(
    json.dumps(row) + "\n"
    for row in [
        {
            "file_name": "a.jpg",
            "caption": ["A dog, running", "A dog"],
            "split": "train",
            "class": "dog",
            "x": 1,
        },
        {"file_name": "b.jpg", "caption": "Bär 🐻", "split": "validation", "class": "bear"},
    ]
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", CSV),
        ("t.csv", "\ufeff" + CSV.replace("\n", "\r\n")),
        ("t.txt", CSV),
        ("t.tsv", TSV),
        ("t.txt", TSV),
        ("t.jsonl", JSONL),
    ],
)
def test_all_kinds_say_the_same(tmp_path, pictures, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    pictures(tmp_path, "a.jpg", "b.jpg")
    records = read("table", tmp_path / name).records
    assert [(r.key, r.captions, r.split, r.class_name) for r in records] == [
        ("a.jpg", ("A dog, running", "A dog"), "train", "dog"),
        ("b.jpg", ("Bär 🐻",), "val", "bear"),
    ]
    assert all(record.image.exists() for record in records)


def test_the_hash_decides_without_a_split_column(tmp_path, pictures):
    names = [f"{number}.jpg" for number in range(2000)]
    (tmp_path / "t.csv").write_text("file,caption\n" + "".join(f"{name},x\n" for name in names))
    pictures(tmp_path, *names[:1])
    splits = [record.split for record in read("table", tmp_path).records]
    # 2,000 draws at 0.8 and 0.1: standard deviations 18 and 13; four of them either way.
    assert abs(splits.count("train") - 1600) < 72
    assert abs(splits.count("val") - 200) < 54
    assert abs(splits.count("test") - 200) < 54
    assert splits == [hash_split(name) for name in names]
    assert {record.split for record in read("table", tmp_path, split="test").records} == {"test"}


def test_the_hash_does_not_see_how_accents_are_written():
    name = "bär.jpg"
    assert hash_split(unicodedata.normalize("NFD", name)) == hash_split(unicodedata.normalize("NFC", name))


def test_names_in_another_normal_form_are_found(tmp_path, pictures):
    pictures(tmp_path / "images", unicodedata.normalize("NFD", "bär.jpg"))
    name = unicodedata.normalize("NFC", "bär.jpg")
    (tmp_path / "t.csv").write_text(f"file,caption\n{name},ein Bär\n", encoding="utf-8")
    (record,) = read("table", tmp_path).records
    assert record.key == name
    assert record.image.exists()


def test_quotation_marks_in_tsv_are_ordinary(tmp_path, pictures):
    (tmp_path / "t.tsv").write_text('file\tcaption\na.jpg\t"Stop" said a sign\na.jpg\t"half open\n')
    pictures(tmp_path, "a.jpg")
    assert read("table", tmp_path).records[0].captions == ('"Stop" said a sign', '"half open')


def test_a_caption_over_two_lines(tmp_path, pictures):
    (tmp_path / "t.csv").write_text('file,caption\na.jpg,"one\ntwo"\na.jpg,three\n')
    pictures(tmp_path, "a.jpg")
    assert read("table", tmp_path).records[0].captions == ("one\ntwo", "three")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "", "is empty"),
        ("t.csv", "file,caption\n", "has no rows"),
        ("t.csv", "name,caption\na.jpg,x\n", "no column file. Received: name, caption"),
        ("t.csv", "file,image,caption\na.jpg,a.jpg,x\n", "several columns could be the file: file, image"),
        ("t.csv", "file,caption\na.jpg,x,y\n", "line 2: 3 columns instead of 2"),
        ("t.csv", "file,caption\n,x\n", "line 2: no file name"),
        ("t.csv", 'file,caption\na.jpg,"x\n', "line"),
        ("t.csv", "file,caption,split\na.jpg,x,\n", "line 2: the split is empty"),
        ("t.csv", "file,caption,split\na.jpg,x,train\na.jpg,y,val\n", "line 3: a.jpg has split and class"),
        ("t.csv", "file,caption\n/etc/passwd,x\n", "does not lie below"),
        ("t.csv", "file,caption\nnone.jpg,x\n", "No image of the source, e.g. 'none.jpg'"),
        ("t.jsonl", "{\n", "line 1: not JSON"),
        ("t.jsonl", "[1]\n", "line 1: expected a JSON object"),
        ("t.jsonl", '{"file": 3, "caption": "x"}\n', "line 1: no file name"),
        ("t.jsonl", '{"file": "a.jpg", "caption": "x", "split": 1}\n', "line 1: the split is not text"),
    ],
)
def test_broken_tables(tmp_path, pictures, name, text, message):
    (tmp_path / name).write_text(text)
    pictures(tmp_path, "a.jpg")
    with pytest.raises(DataError, match=message):
        read("table", tmp_path)


def test_folders_with_none_or_several(tmp_path):
    with pytest.raises(DataError, match="holds 0 tables"):
        read("table", tmp_path)
    for name in ("a.csv", "b.tsv"):
        (tmp_path / name).write_text("")
    with pytest.raises(DataError, match="a.csv, b.tsv"):
        read("table", tmp_path)
    with pytest.raises(DataError, match="No images folder"):
        (tmp_path / "a.csv").write_text("file,caption\na.jpg,x\n")
        read("table", tmp_path / "a.csv", images=tmp_path / "nowhere")


def test_descriptions_are_captions(tmp_path, pictures):
    (tmp_path / "t.csv").write_text("file,class,description\na.jpg,crow,a black bird\n")
    pictures(tmp_path, "a.jpg")
    assert read("table", tmp_path).records[0].captions == ("a black bird",)
    # Beside a caption a description is any other column.
    (tmp_path / "t.csv").write_text("file,caption,description\na.jpg,a crow,taken in May\n")
    assert read("table", tmp_path).records[0].captions == ("a crow",)


@pytest.mark.parametrize(("classes", "counts"), [(3, (1, 1, 1)), (10, (8, 1, 1)), (40, (32, 4, 4))])
def test_the_hash_of_the_class_makes_disjoint_splits(tmp_path, pictures, classes, counts):
    names = [(f"{number}.jpg", f"class {number % classes}") for number in range(3 * classes)]
    (tmp_path / "t.csv").write_text("file,caption,class\n" + "".join(f"{f},x,{c}\n" for f, c in names))
    pictures(tmp_path, *(name for name, _ in names))
    found = read("table", tmp_path, disjoint_classes=True)
    by_split = {
        split: {record.class_name for record in found.records if record.split == split}
        for split in ("train", "val", "test")
    }
    # Sizes that add up to the number of classes leave no class in two splits.
    assert tuple(len(group) for group in by_split.values()) == counts
    assert len(set().union(*by_split.values())) == classes
    assert found.options == {"disjoint_classes": True}
    assert read("table", tmp_path).options == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,caption\na.jpg,x\n", "line 2: a.jpg has no class"),
        ("file,caption,class\na.jpg,x,dog\nb.jpg,x,\n", "line 3: b.jpg has no class"),
        (
            "file,caption,class,split\na.jpg,x,dog,train\n",
            "line 2: splits by class need a table without splits",
        ),
        ("file,caption,class\na.jpg,x,dog\nb.jpg,x,cat\n", "has 2 classes; three splits"),
    ],
)
def test_tables_without_disjoint_classes(tmp_path, pictures, text, message):
    (tmp_path / "t.csv").write_text(text)
    pictures(tmp_path, "a.jpg", "b.jpg")
    with pytest.raises(DataError, match=message):
        read("table", tmp_path, disjoint_classes=True)


def test_disjoint_classes_in_one_split(tmp_path):
    with pytest.raises(InvalidArgumentError, match="nothing with disjoint_classes"):
        read("table", tmp_path, split="train", disjoint_classes=True)

"""Tables of files and captions."""

from __future__ import annotations

import json
import unicodedata

import pytest

from tests.raising import raises_argument
from vsemb.data.readers import read
from vsemb.data.readers.hash_splits import hash_split
from vsemb.errors import DataError

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
    ("name", "text", "named"),
    [
        ("t.csv", "", "t.csv"),
        ("t.csv", "file,caption\n", "t.csv"),
        ("t.csv", "name,caption\na.jpg,x\n", "file.*name, caption"),
        ("t.csv", "Bild;Titel\na.jpg;x\n", "file_name.*sentence"),
        ("t.csv", "file,image,caption\na.jpg,a.jpg,x\n", "file, image"),
        ("t.csv", "file,caption\na.jpg,x,y\n", "line 2"),
        ("t.csv", "file,caption\n,x\n", "line 2"),
        ("t.csv", 'file,caption\na.jpg,"x\n', "line"),
        ("t.csv", "file,caption,split\na.jpg,x,\n", "line 2.*split"),
        ("t.csv", "file,caption\n/etc/passwd,x\n", "'/etc/passwd'"),
        ("t.csv", "file,caption\nnone.jpg,x\n", "'none.jpg'"),
        ("t.jsonl", "{\n", "line 1.*JSON"),
        ("t.jsonl", "[1]\n", "line 1.*JSON"),
        ("t.jsonl", '{"file": 3, "caption": "x"}\n', "line 1.*file"),
        ("t.jsonl", '{"file": "a.jpg", "caption": "x", "split": 1}\n', "line 1.*split"),
        ("t.jsonl", '{"file": "a.jpg", "caption": "red \\ud83d"}\n', "line 1.*Unicode"),
    ],
)
def test_broken_tables(tmp_path, pictures, name, text, named):
    (tmp_path / name).write_text(text)
    pictures(tmp_path, "a.jpg")
    with pytest.raises(DataError, match=named):
        read("table", tmp_path)


def test_malformed_rows_are_named_with_their_lines_and_left_out(tmp_path, pictures):
    rows = [
        "file,caption,split",
        "a.jpg,one,train",
        ",no name,train",
        "../b.jpg,outside,train",
        f"b.jpg,{'x' * 140_000},train",
        'b.jpg,"a" b,train',
        "b.jpg,x,y,z",
        "a.jpg,other split,val",
        'a.jpg,"two\nlines",train',
        "b.jpg,last,",
        "b.jpg,good,val",
    ]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    pictures(tmp_path, "a.jpg", "b.jpg")
    source = read("table", tmp_path)
    assert {record.key: record.captions for record in source.records} == {
        "a.jpg": ("one", "two\nlines"),
        "b.jpg": ("good",),
    }
    problems = [line.removeprefix(f"{tmp_path / 't.csv'}, ") for line in source.bad]
    assert [line.partition(":")[0] for line in problems] == [f"line {number}" for number in (3, 4, 5, 6, 7, 8, 11)]
    assert "field larger than field limit" in problems[2] and "must lie below" in problems[1]


@pytest.mark.parametrize("quote", ["", '"'])
def test_lines_in_another_encoding(tmp_path, pictures, quote):
    rows = [f"a.jpg,{quote}caf\xe9{quote}", "a.jpg,x", "b.jpg,x,y"]
    (tmp_path / "t.csv").write_bytes("\n".join(["file,caption", *rows]).encode("latin-1"))
    pictures(tmp_path, "a.jpg")
    source = read("table", tmp_path)
    assert [record.captions for record in source.records] == [("x",)]
    assert [line.partition("t.csv, ")[2][:9] for line in source.bad] == ["line 2: n", "line 4: t"]


def test_numbers_of_classes_are_text(tmp_path) -> None:
    rows = [{"file": f"{row}.jpg", "caption": "x", "class": label} for row, label in enumerate((7, None, " ", "dog "))]
    for row in rows:
        (tmp_path / row["file"]).touch()
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert [record.class_name for record in read("table", tmp_path / "t.jsonl").records] == ["7", None, None, "dog"]
    (tmp_path / "t.jsonl").write_text(json.dumps(rows[0] | {"class": 0.5}))
    with pytest.raises(DataError, match="line 1.*class"):
        read("table", tmp_path / "t.jsonl")


def test_malformed_lines_of_json(tmp_path, pictures):
    wrong = [("3", '"x"'), ('"b.jpg"', "5"), ('"a.jpg"', '["x", null]')]
    rows = "".join(f'{{"file": {name}, "caption": {text}}}\n' for name, text in wrong)
    (tmp_path / "t.jsonl").write_text('{"file": "a.jpg", "caption": "x"}\n{\n{"file": "a.jpg"}\n' + rows)
    pictures(tmp_path, "a.jpg")
    source = read("table", tmp_path)
    assert [record.captions for record in source.records] == [("x",)]
    assert ["line 2: not JSON" in source.bad[0], "line 3: no column caption" in source.bad[1]] == [True, True]
    assert [line.partition(" must be text")[0].partition("t.jsonl, ")[2] for line in source.bad[2:]] == [
        "line 4: the file name",
        "line 5: the caption",
        "line 6: the caption",
    ]


@pytest.mark.parametrize(
    ("name", "text", "layout"),
    [
        ("t.csv", "filepath;title\na.jpg;A dog, running\n", "separated by semicolons, quoted fields"),
        ("t.csv", 'image_name| comment\na.jpg|"A dog, running"\n', "separated by bars, quoted fields"),
        ("t.csv", "filepath\ttitle\na.jpg\tA dog, running\n", "separated by tabs, no quoting"),
        ("t.tsv", '"filepath"\t"title"\n"a.jpg"\t"A dog, running"\n', "separated by tabs, quoted fields"),
    ],
)
def test_other_separators_and_columns(tmp_path, pictures, name, text, layout):
    (tmp_path / name).write_text(text)
    pictures(tmp_path, "a.jpg")
    source = read("table", tmp_path)
    assert [(record.key, record.captions) for record in source.records] == [("a.jpg", ("A dog, running",))]
    assert layout in source.notes[0]


def test_columns_may_be_named(tmp_path, pictures):
    pictures(tmp_path, "a.jpg", "no.jpg")
    table = tmp_path / "captions.csv"
    table.write_text("image,path,Was sieht man,caption\nno.jpg,a.jpg,ein Hund,x\n")
    with pytest.raises(DataError, match="file_column"):
        read("table", table, images=tmp_path)
    records = list(read("table", table, images=tmp_path, file_column="path", caption_column="was sieht man").records)
    assert [(record.key, record.captions) for record in records] == [("a.jpg", ("ein Hund",))]
    with pytest.raises(DataError, match="no column caption"):
        read("table", table, images=tmp_path, file_column="path", caption_column="none")


def test_escaped_quotation_marks_in_tsv_mean_quoting(tmp_path, pictures):
    (tmp_path / "t.tsv").write_text('file\tcaption\na.jpg\t"A ""big"" dog"\na.jpg\t"a\ttab"\na.jpg\t"open\n')
    pictures(tmp_path, "a.jpg")
    source = read("table", tmp_path)
    assert source.records[0].captions == ('A "big" dog', "a\ttab")
    assert "line 4: unexpected end of data" in source.bad[0] and "quoted fields" in source.notes[0]


def test_absolute_paths_below_the_images_folder(tmp_path, pictures):
    pictures(tmp_path / "photos", "sub/a.jpg", "b.jpg")
    (tmp_path / "link").symlink_to(tmp_path / "photos")
    rows = [f"{tmp_path / 'photos' / 'sub' / 'a.jpg'},one", "b.jpg,two", f"{tmp_path / 'none.jpg'},three"]
    (tmp_path / "t.csv").write_text("\n".join(["url,text", *rows]))
    for folder in ("photos", "link"):
        source = read("table", tmp_path / "t.csv", images=tmp_path / folder)
        assert [record.key for record in source.records] == ["sub/a.jpg", "b.jpg"]
        assert all(record.image.exists() for record in source.records)
        assert f"must lie below the images folder ({tmp_path / folder})" in source.bad[0]


def test_folders_with_none_or_several(tmp_path):
    with pytest.raises(DataError):
        read("table", tmp_path)
    for name in ("a.csv", "b.tsv"):
        (tmp_path / name).write_text("")
    with pytest.raises(DataError, match="a.csv, b.tsv"):
        read("table", tmp_path)
    with pytest.raises(DataError):
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
    source = read("table", tmp_path, disjoint_classes=True)
    by_split = {
        split: {record.class_name for record in source.records if record.split == split}
        for split in ("train", "val", "test")
    }
    # Sizes that add up to the number of classes leave no class in two splits.
    assert tuple(len(group) for group in by_split.values()) == counts
    assert len(set().union(*by_split.values())) == classes
    assert source.options == {"disjoint_classes": True}
    assert read("table", tmp_path).options == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,caption\na.jpg,x\n", "line 2.*a.jpg"),
        (
            "file,caption,class,split\na.jpg,x,dog,train\n",
            "line 2",
        ),
        ("file,caption,class\na.jpg,x,dog\nb.jpg,x,cat\n", "2 classes"),
    ],
)
def test_tables_without_disjoint_classes(tmp_path, pictures, text, message):
    (tmp_path / "t.csv").write_text(text)
    pictures(tmp_path, "a.jpg", "b.jpg")
    with pytest.raises(DataError, match=message):
        read("table", tmp_path, disjoint_classes=True)


def test_disjoint_classes_in_one_split(tmp_path):
    with raises_argument("split"):
        read("table", tmp_path, split="train", disjoint_classes=True)


@pytest.mark.parametrize("name", ["a.jpg", "./a.jpg", ".//a.jpg", ".\\a.jpg"])
def test_other_spellings_of_a_file_name_are_the_same_image(tmp_path, pictures, name):
    (tmp_path / "t.csv").write_text(f"file,caption,split\na.jpg,one,train\n{name},two,train\n")
    pictures(tmp_path, "a.jpg")
    (record,) = read("table", tmp_path / "t.csv").records
    assert record.key == "a.jpg" and record.captions == ("one", "two")


def test_backslashes_separate_folders_unless_a_file_has_such_a_name(tmp_path, pictures):
    (tmp_path / "t.csv").write_text("file,caption,split\r\nphotos\\a.jpg,one,train\r\nb\\c.jpg,two,train\r\n")
    pictures(tmp_path, "photos/a.jpg", "b\\c.jpg")
    records = read("table", tmp_path / "t.csv").records
    assert [record.key for record in records] == ["photos/a.jpg", "b\\c.jpg"]
    assert all(record.image.exists() for record in records)


@pytest.mark.parametrize("end", ["\r", ""])
@pytest.mark.parametrize("size", [1, 70_000])
def test_carriage_returns_end_lines(tmp_path, pictures, end, size):
    long = "x" * size
    rows = ["file,caption,split", f"a.jpg,{long},train", "b.jpg,Bär 🐻,val"]
    (tmp_path / "t.csv").write_bytes(("\ufeff" + "\r".join(rows) + end).encode())
    pictures(tmp_path, "a.jpg", "b.jpg")
    records = read("table", tmp_path / "t.csv").records
    assert [(record.key, record.captions, record.split) for record in records] == [
        ("a.jpg", (long,), "train"),
        ("b.jpg", ("Bär 🐻",), "val"),
    ]


def test_carriage_returns_within_lines_stay(tmp_path, pictures):
    (tmp_path / "t.tsv").write_bytes(b"file\tcaption\tsplit\na.jpg\tone\rtwo\ttrain\n")
    pictures(tmp_path, "a.jpg")
    (record,) = read("table", tmp_path / "t.tsv").records
    assert record.captions == ("one\rtwo",)


def test_names_that_cannot_be_splits_refuse_their_lines_alone(tmp_path, pictures):
    pictures(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    (tmp_path / "t.csv").write_text("file,caption,split\na.jpg,a,../x\nb.jpg,b,x-y\nc.jpg,c,Dev\n")
    source = read("table", tmp_path / "t.csv")
    assert [(record.key, record.split) for record in source.records] == [("c.jpg", "val")]
    assert [line.partition(":")[0] for line in source.bad] == [f"{tmp_path / 't.csv'}, line {line}" for line in (2, 3)]
    assert {record.split for record in read("table", tmp_path / "t.csv", split="test").records} == {"test"}


@pytest.mark.parametrize("twice", ['"caption": "b", "caption": "c"', '"caption": "b", "x": {"y": 1, "y": 2}'])
def test_objects_with_two_fields_of_one_name_are_refused_by_line(tmp_path, pictures, twice):
    pictures(tmp_path, "a.jpg", "b.jpg")
    (tmp_path / "t.jsonl").write_text('{"file": "a.jpg", "caption": "a"}\n{"file": "b.jpg", ' + twice + "}\n")
    source = read("table", tmp_path / "t.jsonl")
    assert [record.key for record in source.records] == ["a.jpg"]
    assert len(source.bad) == 1 and "line 2" in source.bad[0]

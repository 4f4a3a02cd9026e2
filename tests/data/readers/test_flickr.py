"""Flickr8k and Flickr30k token files."""

from __future__ import annotations

import pytest

from vsemb.data.readers import read
from vsemb.errors import DataError

DIRT = "2258277193_586949ec62.jpg.1"


def tokens(*names: str) -> str:
    return "".join(f"{name}#{place}\tcaption {place} of {name} .\n" for name in names for place in range(2))


@pytest.fixture
def flickr8k(tmp_path, pictures):
    text = tmp_path / "Flickr8k_text"
    text.mkdir()
    (text / "Flickr8k.token.txt").write_text(tokens("a.jpg", DIRT, "b.jpg", "c.jpg"))
    (text / "Flickr8k.lemma.token.txt").write_text("not to be read")
    (text / "Flickr_8k.trainImages.txt").write_text("b.jpg\n")
    (text / "Flickr_8k.devImages.txt").write_text("c.jpg\n\n")
    (text / "Flickr_8k.testImages.txt").write_text("a.jpg\n")
    pictures(tmp_path / "Flicker8k_Dataset", "a.jpg", "b.jpg", "c.jpg")
    return tmp_path


def test_flickr8k(flickr8k):
    for source in (flickr8k, flickr8k / "Flickr8k_text", flickr8k / "Flickr8k_text" / "Flickr8k.token.txt"):
        opened = read("flickr", source)
        assert [(r.key, r.split) for r in opened.records] == [
            ("b.jpg", "train"),
            ("c.jpg", "val"),
            ("a.jpg", "test"),
        ]
        assert opened.records[0].captions == ("caption 0 of b.jpg .", "caption 1 of b.jpg .")
        assert opened.records[0].caption_ids == ("b.jpg#0", "b.jpg#1")
        assert all(record.image.exists() for record in opened.records)
        assert opened.notes == (f"1 image is in no split list: {DIRT}",)
        assert len(opened.files) == 4


def test_flickr30k(tmp_path, pictures):
    (tmp_path / "results_20130124.token").write_text(tokens("1.jpg", "2.jpg", "3.jpg"))
    # As Flickr30k Entities writes them: without the ending.
    (tmp_path / "train.txt").write_text("2\r\n")
    (tmp_path / "val.txt").write_text("1")
    (tmp_path / "test.txt").write_text("3.jpg\n")
    pictures(tmp_path / "flickr30k-images", "1.jpg", "2.jpg", "3.jpg")
    records = read("flickr", tmp_path).records
    assert [(r.key, r.split) for r in records] == [("2.jpg", "train"), ("1.jpg", "val"), ("3.jpg", "test")]


def test_one_split_for_all_keeps_the_dirt_for_the_report(flickr8k):
    records = read("flickr", flickr8k, split="test").records
    assert [(r.key, r.image.exists()) for r in records] == [
        ("a.jpg", True),
        (DIRT, False),
        ("b.jpg", True),
        ("c.jpg", True),
    ]


def test_lines_of_the_same_file_are_one_image(tmp_path, pictures):
    (tmp_path / "results.token").write_text("sub/a.jpg#0\tone\n./sub/./a.jpg#1\ttwo\n")
    (tmp_path / "train.txt").write_text("./sub/a.jpg\n")
    pictures(tmp_path / "images", "sub/a.jpg")
    (record,) = read("flickr", tmp_path).records
    assert (record.key, record.captions) == ("sub/a.jpg", ("one", "two"))


def test_a_listed_image_without_captions_stays_for_the_report(flickr8k):
    (flickr8k / "Flickr8k_text" / "Flickr_8k.devImages.txt").write_text("c.jpg\nd.jpg\n")
    records = read("flickr", flickr8k).records
    assert [(r.key, r.captions) for r in records if not r.captions] == [("d.jpg", ())]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x.jpg caption\n", "line 3: the line must be NAME.jpg#N"),
        ("x.jpg\tcaption\n", "line 3: the line must be NAME.jpg#N"),
        ("x.jpg#one\tcaption\n", "line 3: the line must be NAME.jpg#N"),
        ("a.jpg#1\tcaption\n", "line 3: a.jpg#1 occurs twice"),
        ("x.jpg#0\t\xff\n".encode("latin-1"), "line 3: not UTF-8"),
    ],
)
def test_malformed_lines_are_named_and_left_out(tmp_path, pictures, line, message):
    path = tmp_path / "results.token"
    line = line if isinstance(line, bytes) else line.encode()
    path.write_bytes(tokens("a.jpg").encode() + line + b"../b.jpg#0\tb\nmore\n")
    pictures(tmp_path, "a.jpg")
    source = read("flickr", path, split="train")
    assert [(record.key, len(record.captions)) for record in source.records] == [("a.jpg", 2)]
    assert message in source.bad[0] and "line 5: the line must be" in source.bad[1] and "lie below" in source.bad[2]
    path.write_bytes(b"more\n")
    with pytest.raises(DataError, match="line 1"):
        read("flickr", path, split="train")


def test_lists_and_files_that_are_missing_or_contradict(flickr8k):
    text = flickr8k / "Flickr8k_text"
    (text / "Flickr_8k.testImages.txt").write_text("a.jpg\nb.jpg\n")
    source = read("flickr", flickr8k)
    assert "testImages.txt, line 2: b.jpg is already in the split train" in source.bad[0] and len(source.bad) == 1
    for path in text.glob("*Images.txt"):
        path.unlink()
    with pytest.raises(DataError, match="`split`"):
        read("flickr", flickr8k)
    (text / "other.token").write_text("")
    with pytest.raises(DataError):
        read("flickr", flickr8k)
    with pytest.raises(DataError):
        read("flickr", text / "other.token", split="train")
    with pytest.raises(DataError):
        read("flickr", flickr8k / "Flicker8k_Dataset")

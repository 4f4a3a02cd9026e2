"""Arguments of commands on runs: lists of image files, kinds of directories."""

from __future__ import annotations

import json

import pytest

import vsemb
from vsemb.errors import DataError
from vsemb.runs.inputs import check_source, image_files, kind_of, model_version, text_lines, texts_and_blanks


def test_image_files_come_from_folders_patterns_and_lists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a/2.JPG", "a/1.png", "a/b/3.webp", "a/notes.md", "a/.hidden.png", "a/.cache/4.png", "5.dat"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "list.txt").write_text("5.dat\n\n./a/1.png\ngone.png\n")
    assert image_files(["a"]) == ["a/1.png", "a/2.JPG", "a/b/3.webp"]
    assert image_files(["a/"]) == image_files(["./a"]) == image_files(["a"])
    assert image_files(["a/**/*.webp", "a/1.png", "a"]) == ["a/b/3.webp", "a/1.png", "a/2.JPG"]
    # What a list names is not judged by its ending, and found missing when it is read.
    assert image_files(["list.txt"]) == ["5.dat", "a/1.png", "gone.png"]
    (tmp_path / "empty").mkdir()
    for nothing, said in (("empty", "has none"), ("*.gif", "has none"), ("gone.jpg", "does not exist")):
        with pytest.raises(DataError, match=f"must name image files.*{nothing.replace('*', '.')} {said}"):
            image_files([nothing])
    with pytest.raises(DataError, match=r"gone\.txt"):
        image_files(["gone.txt"])


def test_lines_are_read_without_blank_ones(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("a dog\r\n\n  a cat  \n", encoding="utf-8")
    assert text_lines(path) == ["a dog", "a cat"]
    path.write_bytes(b"caf\xe9\n")
    with pytest.raises(DataError, match=r"texts\.txt, line 1: not UTF-8"):
        text_lines(path)


@pytest.mark.parametrize("name", ["t.csv", "T.TSV", "t.json", "t.jsonl", "t.parquet"])
def test_the_lines_of_a_table_are_no_texts(tmp_path, name):
    (tmp_path / name).write_text("file,caption\n0.png,a red circle\n")
    with pytest.raises(DataError, match=name):
        text_lines(tmp_path / name)
    with pytest.raises(DataError, match=name):
        vsemb.embed(tmp_path / "run", out=tmp_path / "out.npy", texts=[str(tmp_path / name)])


def test_only_line_feeds_end_a_line_and_a_byte_order_mark_is_skipped(tmp_path):
    path = tmp_path / "texts.txt"
    ends = ["\u2028", "\u2029", "\x85", "\v", "\f", "\x1c", "\x1d", "\x1e"]
    path.write_bytes("\ufeffa dog\r\n".encode() + b"\n" + "".join(f"a{end}b\n" for end in ends).encode() + b" \t\nc")
    assert texts_and_blanks(path) == (["a dog", *(f"a{end}b" for end in ends), "c"], [2, 11])
    path.write_text("\ufeffa.png\nb\u2028c.png\n", encoding="utf-8")
    assert image_files([str(path)]) == ["a.png", "b\u2028c.png"]


def test_kinds_of_directories(tiny_run, scenes, tmp_path):
    assert kind_of(tiny_run.path) == "run" and kind_of(scenes.path) == "dataset"
    assert kind_of(tmp_path) is None and kind_of(tmp_path / "gone") is None
    (tmp_path / "model" / "10").mkdir(parents=True)
    (tmp_path / "model" / "10" / "saved_model.pb").touch()
    assert kind_of(tmp_path / "model") == kind_of(tmp_path / "model" / "10") == "model"
    (tmp_path / "manifest.json").write_text("[1")
    assert kind_of(tmp_path) is None


@pytest.mark.parametrize("source", [None, {}, {"kind": "image", "splits": None}])
def test_a_damaged_source_of_an_index_is_named(tmp_path, source):
    (tmp_path / "manifest.json").write_text(json.dumps({"format": "vsemb-index", "source": source}))
    with pytest.raises(DataError, match=str(tmp_path)):
        check_source(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"format": []}))
    assert kind_of(tmp_path) is None


def test_the_newest_version_of_a_model_is_one_that_can_be_served(tmp_path) -> None:
    for name in ("2", "10", str(2**63), "10.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "saved_model.pb").touch()
    assert model_version(tmp_path) == tmp_path / "10"

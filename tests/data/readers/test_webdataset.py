"""WebDataset shards: what is a sample, and what becomes of broken ones."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from vsemb.api.data import prepare
from vsemb.data.readers import infer_format, read
from vsemb.data.readers.hash_splits import hash_split
from vsemb.errors import DataError


def jpeg(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (6, 4), (number, 100, 200)).save(buffer, "JPEG")
    return buffer.getvalue()


def shard(path: Path, files: dict[str, bytes | str | dict], mode: str = "w") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:
        for name, content in files.items():
            content = json.dumps(content) if isinstance(content, dict) else content
            data = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def facts(source):
    return [(r.key, r.captions, r.split, r.class_name) for r in source.records]


def test_texts_and_json(tmp_path):
    shard(tmp_path / "train-0.tar", {"./a.jpg": jpeg(0), "./a.txt": "A dog\n\nA cur\n", "a.json": {"caption": "no"}})
    both = {"caption": ["One", "Two"], "split": "dev", "label": "cat"}
    shard(tmp_path / "val-0.tar.gz", {"d/b.PNG": b"?", "d/b.seg.png": b"-", "d/b.json": both, "README": "x"}, "w:gz")
    shard(tmp_path / "plain.tar", {"c.json": {"text": "Bär 🐻", "key": "c.jpg"}, "c.webp": jpeg(2)})
    assert infer_format(tmp_path) == infer_format(tmp_path / "val-0.tar.gz") == "webdataset"
    source = read("webdataset", tmp_path)
    assert facts(source) == [
        ("c.jpg", ("Bär 🐻",), hash_split("c.jpg"), None),
        ("train-0/a", ("A dog", "A cur"), "train", None),
        ("val-0/d/b", ("One", "Two"), "val", "cat"),
    ]
    assert source.total == 3 and not source.bad
    assert [record.image for record in source.records] == [jpeg(2), jpeg(0), b"?"]


def test_lines_of_a_text_end_as_those_of_other_files(tmp_path):
    texts = {"a": "\ufeffone\rtwo\r", "b": "one\r\ntwo", "c": "one\rtwo\nthree\u2028four"}
    files = {
        name: content
        for key, text in texts.items()
        for name, content in ((f"{key}.jpg", jpeg(0)), (f"{key}.txt", text))
    }
    source = read("webdataset", shard(tmp_path / "0.tar", files), split="train")
    captions = [[" ".join(caption.split()) for caption in record.captions] for record in source.records]
    assert captions == [["one", "two"], ["one", "two"], ["one two", "three four"]]


def test_patterns_and_a_single_split(tmp_path, monkeypatch):
    for number in (8, 9, 10):
        shard(tmp_path / f"s/train-{number:02d}.tar", {f"{number}.jpg": jpeg(number), f"{number}.txt": "x"})
    source = read("webdataset", tmp_path / "s/train-{08..09}.tar")
    assert [record.key for record in source.records] == ["train-08/8", "train-09/9"]
    assert [record.split for record in source.records] == [hash_split("train-08/8"), hash_split("train-09/9")]
    assert "All files are of the split train" in source.notes[0]
    monkeypatch.chdir(tmp_path)
    source = read("webdataset", "s/train-{10,08}.tar", split="test")
    assert [(record.key, record.split) for record in source.records] == [
        ("train-10/10", "test"),
        ("train-08/8", "test"),
    ]
    with pytest.raises(DataError, match="s/train-11.tar"):
        read("webdataset", "s/train-{10..11}.tar")
    with pytest.raises(DataError, match="`webdataset`"):
        infer_format("s/train-{08..09}.tar")


def test_all_malformed_samples_are_named_and_left_out(tmp_path):
    files = {"a.jpg": jpeg(0), "a.txt": "fine", "b.jpg": jpeg(1), "b.json": "{", "c.jpg": jpeg(2), "c.txt": b"\xff"}
    files |= {"d.jpg": jpeg(3), "d.json": {"caption": 7}, "e.jpg": jpeg(4), "e.json": "[]"}
    files |= {"f.txt": "no image", "g.jpg": jpeg(5), "h.jpg": b"broken", "h.txt": "x"}
    path = shard(tmp_path / "0.tar", files)
    source = read("webdataset", path)
    where = [line.removeprefix(f"{path}, sample ") for line in source.bad]
    assert [line[:24] for line in where] == [
        "b: not JSON (Expecting p",
        "c: not UTF-8 text.",
        "d: the caption must be t",
        "e: the JSON must be an o",
    ]
    with pytest.raises(DataError, match="4 .* sample b: .* sample e: .*on_bad_image=skip"):
        prepare(path, tmp_path / "out", on_bad_image="fail")
    dataset = prepare(path, tmp_path / "out")
    left_out = {line["key"]: line["reason"] for line in dataset.manifest["skipped"]}
    assert left_out == {
        "f": "no such file",
        "g": "no caption",
        "h": "not an image in a known format (JPEG, PNG, GIF, BMP, WEBP, TIFF, PPM)",
    }


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_shard_that_ends_too_early_loses_its_end(tmp_path, mode):
    noise = [bytes(range(256)) * 20 + bytes([n]) for n in range(8)]
    files = {f"{n}.{end}": data for n in range(8) for end, data in (("jpg", jpeg(n)), ("txt", f"{n}"), ("x", noise[n]))}
    whole = shard(tmp_path / "a/0.tar", files, mode)
    data = whole.read_bytes()
    # A compressed file is cut in its last block, which the whole of this small one is.
    whole.write_bytes(data[: len(data) * 3 // 4])
    shard(tmp_path / "a/1.tar", {"9.jpg": jpeg(9), "9.txt": "nine"})
    source = read("webdataset", tmp_path / "a")
    (line,) = source.bad
    assert "0.tar: the tar file is damaged or ends too early" in line
    keys = [record.key for record in source.records]
    assert keys[-1] == "1/9" and len(keys) < 9


@pytest.mark.parametrize(("content", "expected"), [(b"not a tar file", "damaged"), (b"\0" * 1024, "no samples")])
def test_no_samples(tmp_path, content, expected):
    (tmp_path / "0.tar").write_bytes(content)
    with pytest.raises(DataError, match=expected):
        read("webdataset", tmp_path / "0.tar")
    with pytest.raises(DataError):
        (tmp_path / "empty").mkdir()
        read("webdataset", tmp_path / "empty")


def test_img2dataset_tells_what_was_not_downloaded(tmp_path):
    shard(tmp_path / "00000.tar", {"000.jpg": jpeg(0), "000.txt": "a", "000.json": {"key": "000", "status": "success"}})
    status = ["success", "failed_to_download", "failed_to_download", "failed_to_resize"]
    parquet.write_table(pa.table({"key": ["0", "1", "2", "3"], "status": status}), tmp_path / "00000.parquet")
    (tmp_path / "00000_stats.json").write_text("{}")
    assert infer_format(tmp_path) == "webdataset"
    (note,) = read("webdataset", tmp_path).notes
    assert note == "img2dataset downloaded 1 of 4 images: failed_to_download 2, failed_to_resize 1."


def test_a_changed_shard_is_another_source(tmp_path):
    path = shard(tmp_path / "0.tar", {"a.jpg": jpeg(0), "a.txt": "one"})
    first = read("webdataset", path).options
    assert read("webdataset", path).options == first
    shard(path, {"a.jpg": jpeg(0), "a.txt": "two"})
    assert read("webdataset", path).options != first


def test_files_of_a_sample_that_are_not_adjacent_are_refused_with_the_cause(tmp_path):
    files = {f"{number}.jpg": jpeg(number) for number in range(3)} | {f"{number}.txt": "x" for number in range(3)}
    with pytest.raises(DataError, match="sample 0.*sort=name"):
        read("webdataset", shard(tmp_path / "unsorted.tar", files))
    assert read("webdataset", shard(tmp_path / "sorted.tar", dict(sorted(files.items())))).total == 3


def test_a_sample_that_occurs_twice_is_no_matter_of_order(tmp_path):
    path = tmp_path / "twice.tar"
    with tarfile.open(path, "w") as tar:
        for name in ("a.jpg", "a.txt", "b.jpg", "b.txt", "a.jpg", "a.txt"):
            member = tarfile.TarInfo(name)
            data = jpeg(1) if name.endswith("jpg") else b"x"
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    with pytest.raises(DataError, match="'a'"):
        prepare(path, tmp_path / "out", split="train")


@pytest.mark.parametrize(
    ("files", "keys", "lost"),
    [
        # All images of one key, with their texts.
        (["IMG.0.jpg", "IMG.0.txt", "IMG.1.jpg", "IMG.1.txt", "IMG.2.jpg", "IMG.2.txt"], [], [3]),
        # A key of its own, but no type that is known.
        (["a.x.jpg", "a.x.txt", "b.jpg", "b.txt"], ["b"], [1]),
        # Pairs beside a sample.
        (["a.jpg", "a.txt", "a.1.jpg", "a.1.json", "a.2.jpg", "a.2.txt", "b.jpg", "b.txt"], ["a", "b"], [2]),
        # Other images of a sample, without texts of their own, are not pairs.
        (["a.jpg", "a.seg.png", "a.txt", "a.depth.png"], ["a"], []),
        (["d.x/a.jpg", "d.x/a.txt"], ["d.x/a"], []),
    ],
)
def test_pairs_lost_by_further_dots_are_counted(tmp_path, files, keys, lost):
    contents = {name: "{}" if name.endswith("json") else jpeg(1) for name in files}
    contents |= {name: "a dog" for name in files if name.endswith("txt")}
    path = shard(tmp_path / "dots.tar", contents | {"z.jpg": jpeg(2), "z.txt": "last"})
    source = read("webdataset", path, split="train")
    assert [record.key for record in source.records] == [*keys, "z"] and source.total == len(keys) + 1
    assert [f"{count} image" in line for count, line in zip(lost, source.bad, strict=True)] == [True] * len(lost)
    assert all("first dot" in line for line in source.bad)


def test_a_repeated_key_names_both_samples(tmp_path):
    files = {f"{name}.jpg": jpeg(number) for number, name in enumerate("abc")}
    files |= {f"{name}.json": {"caption": name, "key": "same" if name != "b" else "b"} for name in "abc"}
    path = shard(tmp_path / "t.tar", dict(sorted(files.items())))
    with pytest.raises(DataError, match="'same'.*sample a .*sample c"):
        prepare(path, tmp_path / "out", split="train")


def test_json_with_an_unusable_split_or_a_repeated_field_is_refused_by_name(tmp_path):
    texts = {
        "a": '{"caption": "a", "split": ""}',
        "b": '{"caption": "b", "split": null}',
        "c": '{"caption": "c", "split": "x-y"}',
        "d": '{"caption": "d", "caption": "e"}',
        "e": '{"caption": "f", "split": "dev", "class": 3}',
    }
    files = {f"{name}.json": text for name, text in texts.items()} | {f"{name}.jpg": jpeg(0) for name in texts}
    path = shard(tmp_path / "t.tar", dict(sorted(files.items())))
    source = read("webdataset", path)
    assert facts(source) == [("e", ("f",), "val", "3")]
    assert [line.partition(":")[0] for line in source.bad] == [f"{path}, sample {name}" for name in "abcd"]

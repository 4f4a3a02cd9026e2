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

from vsemb.data.readers import infer_format, read
from vsemb.data.readers.hash_splits import hash_split
from vsemb.data.writing.prepare import prepare
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
    with pytest.raises(DataError, match="No source at s/train-11.tar"):
        read("webdataset", "s/train-{10..11}.tar")
    with pytest.raises(DataError, match="--format webdataset for a pattern"):
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
    with pytest.raises(DataError, match="4 malformed rows: .* sample b: .* sample e: .*--on-bad-image skip"):
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
    with pytest.raises(DataError, match="holds no tar files"):
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

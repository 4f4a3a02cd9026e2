"""Reading datasets: damage is noticed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.raising import raises_argument
from vsemb import registry
from vsemb.data.store import Split, StoredDataset
from vsemb.errors import DataError


def edit_manifest(out: Path, **changes) -> None:
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps(manifest | changes))


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda out: edit_manifest(out, fingerprint="0"), "fingerprint"),
        (lambda out: (out / "val.index.arrow").unlink(), "val.index.arrow"),
        (lambda out: os.truncate(out / "val.index.arrow", 99), "val.index.arrow .*99"),
        (lambda out: (out / "val-00000-of-00001.tfrecord").unlink(), "val-00000-of-00001.tfrecord"),
        (lambda out: os.truncate(out / "train-00001-of-00003.tfrecord", 10), "train-00001-of-00003.tfrecord .*10"),
        (lambda out: (out / "manifest.json").write_text("{"), "manifest.json"),
        (lambda out: (out / "manifest.json").write_text("[]"), "manifest.json"),
        (lambda out: edit_manifest(out, version=1), "version 1"),
        (lambda out: edit_manifest(out, splits={"train": {}}), "manifest.json"),
        (lambda out: (out / "manifest.json").unlink(), "manifest.json"),
        (shutil.rmtree, "vsemb prepare"),
        (lambda out: out.replace(out.with_name("aside")) and out.write_text("file,caption"), "vsemb prepare"),
    ],
)
def test_damaged_datasets_are_refused(tiny, tmp_path, damage, named):
    tiny.write(tiny.records(10), tmp_path / "out")
    damage(tmp_path / "out")
    with pytest.raises(DataError, match=named):
        StoredDataset.open(tmp_path / "out")


def test_a_manifest_cannot_point_outside(tiny, tmp_path):
    dataset = tiny.write(tiny.records(1), tmp_path / "out")
    split = dataset.manifest["splits"]["train"] | {"index": "../elsewhere.arrow"}
    edit_manifest(tmp_path / "out", splits={"train": split})
    with pytest.raises(DataError, match=r"names '\.\./elsewhere\.arrow'"):
        StoredDataset.open(tmp_path / "out")


@pytest.mark.parametrize("name", ["images", "shards", "index_sha256", "content"])
def test_a_manifest_without_a_field_is_named(tiny, tmp_path, name):
    dataset = tiny.write(tiny.records(1), tmp_path / "out")
    split = dict(dataset.manifest["splits"]["train"])
    del split[name]
    edit_manifest(tmp_path / "out", splits={"train": split})
    with pytest.raises(DataError, match=f"manifest.json.*{name}"):
        StoredDataset.open(tmp_path / "out")


def rewrite_index(dataset: StoredDataset, change) -> None:
    """Write the index of the split train anew from its table, with the size that the manifest names."""
    record, split = dataset.manifest["splits"]["train"], dataset.split("train")
    table = change(pa.Table.from_batches(split.index.batches))
    # Beside the file, which is mapped.
    with pa.OSFile(str(dataset.path / "new"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    os.replace(dataset.path / "new", dataset.path / record["index"])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda table: table.slice(0, 2), "4 .*6 .*2 .*3"),
        (lambda table: table.set_column(0, "id", table["id"].cast("int32")), "'id' .*int64.*int32"),
        (lambda table: table.drop_columns(["class"]), "'class' .*string"),
        (lambda table: table.take([1, 0, 2, 3]), "train.index.arrow"),
    ],
    ids=["rows", "type", "missing", "order"],
)
def test_a_foreign_index_is_refused(tiny, tmp_path, change, named):
    dataset = tiny.write(tiny.records(6), tmp_path / "out")
    rewrite_index(dataset, change)
    with pytest.raises(DataError, match=named):
        _ = Split(dataset.path, "train", dataset.manifest["splits"]["train"]).ids


def test_an_index_that_is_not_arrow_is_refused(tiny, tmp_path):
    dataset = tiny.write(tiny.records(1), tmp_path / "out")
    file = tmp_path / "out" / "train.index.arrow"
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(DataError):
        Split(dataset.path, "train", dataset.manifest["splits"]["train"])


def test_a_changed_image_is_noticed_when_read(tiny, tmp_path):
    out = tmp_path / "out"
    split = tiny.write(tiny.records(4), out).split("train")
    shard = out / "train-00000-of-00001.tfrecord"
    data = bytearray(shard.read_bytes())
    data[len(data) // 6] ^= 1
    shard.write_bytes(data)
    with pytest.raises(DataError, match="damaged"):
        split.read_image(0)


def test_few_captions_keep_their_ids(tiny, tmp_path):
    split = tiny.write(tiny.records(6), tmp_path / "out").split("val")  # Images 2 and 5, three captions each.
    assert split.caption_ids[2:4] == ["2.jpg#2", "5.jpg#0"]
    two = split.with_captions([own[:2] for own in split.caption_lists()])
    assert two.caption_ids == ["2.jpg#0", "2.jpg#1", "5.jpg#0", "5.jpg#1"]
    assert two.caption_places.tolist() == [0, 1, 3, 4]
    last = two.with_captions([own[1:] for own in split.caption_lists()])
    assert last.caption_ids == ["2.jpg#1", "2.jpg#2", "5.jpg#1", "5.jpg#2"]
    assert last.captions == [f"caption {n} of {row}" for row in (2, 5) for n in (1, 2)]


@pytest.mark.parametrize(
    "texts",
    [
        [["bird"], ["dog"]],
        [["caption 0 of 2"], ["dog"]],
        [["caption 1 of 2", "caption 0 of 2"], ["caption 0 of 5"]],
        [["caption 0 of 5"], ["caption 0 of 5"]],
    ],
    ids=["classes", "one", "turned", "of another image"],
)
def test_other_texts_have_no_ids(tiny, tmp_path, texts):
    split = tiny.write(tiny.records(6), tmp_path / "out").split("val")
    other = split.with_captions(texts)
    assert other.caption_places is None
    with pytest.raises(DataError):
        _ = other.caption_ids
    assert split.caption_ids[0] == "2.jpg#0"


def test_every_image_gets_a_caption(tiny, tmp_path):
    split = tiny.write(tiny.records(6), tmp_path / "out").split("val")
    for texts in ([["a"]], [["a"], []]):
        with raises_argument("captions"):
            split.with_captions(texts)


def test_annotations_are_opened_once_and_named(tiny, tmp_path, monkeypatch):
    dataset = tiny.write(tiny.records(6), tmp_path / "out")
    opened = []

    def find(given):
        opened.append(given)
        return None if len(opened) == 1 else object()

    monkeypatch.setattr(registry, "entries", lambda name: {"marks": "module:find"} if name == "annotations" else {})
    monkeypatch.setattr(registry, "load", {"module:find": find}.__getitem__)
    assert dataset.annotation("marks") is None and dataset.annotation("marks") is None
    assert opened == [dataset]
    dataset.forget_annotation("marks")
    marks = dataset.annotation("marks")
    assert marks is not None and dataset.annotation("marks") is marks
    with raises_argument("annotation"):
        dataset.annotation("mark")


def test_a_changed_index_is_refused(scenes_copy):
    index = scenes_copy.path / "val.index.arrow"
    whole = index.read_bytes()
    caption = scenes_copy.split("val").captions[0].encode()
    assert caption in whole
    index.write_bytes(whole.replace(caption, caption.swapcase(), 1))
    with pytest.raises(DataError, match=r"val\.index\.arrow"):
        StoredDataset.open(scenes_copy.path)


def test_a_changed_byte_of_a_large_index_is_noticed(tiny, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("vsemb.data.manifest._READ_IN_FULL", 0)
    dataset = tiny.write(tiny.records(), tmp_path / "out")
    index = tmp_path / "out" / "train.index.arrow"
    content = index.read_bytes()
    assert list(StoredDataset.open(dataset.path).split("train").captions)
    index.write_bytes(content.replace(b"caption 0 of 1", b"caption 0 of 7"))
    with pytest.raises(DataError, match="train.index.arrow"):
        StoredDataset.open(dataset.path)


@pytest.mark.parametrize("row", [0, 3, -1])
def test_a_changed_image_is_noticed_among_others(tiny, tmp_path, row: int) -> None:
    split = tiny.write(tiny.records(), tmp_path / "out").split("train")
    rows, image = np.arange(len(split)), split.read_image(row)
    assert split.read_images(rows)[row] == image
    for shard in split.shards:
        shard.write_bytes(shard.read_bytes().replace(image, image[:-1] + b"x"))
    with pytest.raises(DataError, match=split.keys[row]):
        split.read_images(rows)

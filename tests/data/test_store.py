"""Reading datasets: damage is noticed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from vsemb import registry
from vsemb.data.store import Dataset
from vsemb.errors import DataError, InvalidArgumentError


def edit_manifest(out: Path, **changes) -> None:
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps(manifest | changes))


def tamper_caption(out: Path) -> None:
    index = out / "train.index.jsonl"
    index.write_text(index.read_text().replace("caption 0 of 0", "caption 0 of 9"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (tamper_caption, "do not have the fingerprint"),
        (lambda out: (out / "val.index.jsonl").unlink(), "val.index.jsonl is missing"),
        (
            lambda out: (out / "val-00000-of-00001.tfrecord").unlink(),
            "val-00000-of-00001.tfrecord is missing",
        ),
        (lambda out: os.truncate(out / "train-00001-of-00003.tfrecord", 10), "has 10 bytes instead of"),
        (lambda out: (out / "manifest.json").write_text("{"), "cannot be read"),
        (lambda out: (out / "manifest.json").write_text("[]"), "not the manifest"),
        (lambda out: edit_manifest(out, version=2), "version 2; this vsemb reads version 1"),
        (lambda out: edit_manifest(out, splits={"train": {}}), "damaged"),
        (lambda out: (out / "manifest.json").unlink(), "holds no manifest.json"),
        (shutil.rmtree, "no such directory"),
    ],
)
def test_damaged_datasets_are_refused(tiny, tmp_path, damage, message):
    tiny.write(tiny.records(10), tmp_path / "out")
    damage(tmp_path / "out")
    with pytest.raises(DataError, match=message):
        Dataset.open(tmp_path / "out")


def test_a_manifest_cannot_point_outside(tiny, tmp_path):
    dataset = tiny.write(tiny.records(1), tmp_path / "out")
    split = dataset.manifest["splits"]["train"] | {"index": "../elsewhere.jsonl"}
    edit_manifest(tmp_path / "out", splits={"train": split})
    with pytest.raises(DataError, match="damaged"):
        Dataset.open(tmp_path / "out")


def test_an_empty_split_is_refused(tiny, tmp_path):
    dataset = tiny.write(tiny.records(1), tmp_path / "out")
    (tmp_path / "out" / "train.index.jsonl").write_text("")
    with pytest.raises(DataError, match="'train'.*is empty"):
        dataset.split("train")


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
    two = split.with_captions([entry["captions"][:2] for entry in split.entries])
    assert two.caption_ids == ["2.jpg#0", "2.jpg#1", "5.jpg#0", "5.jpg#1"]
    assert two.caption_places.tolist() == [0, 1, 3, 4]
    last = two.with_captions([entry["captions"][1:] for entry in split.entries])
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
    with pytest.raises(DataError, match="not its captions"):
        _ = other.caption_ids
    assert split.caption_ids[0] == "2.jpg#0"


def test_every_image_gets_a_caption(tiny, tmp_path):
    split = tiny.write(tiny.records(6), tmp_path / "out").split("val")
    for texts in ([["a"]], [["a"], []]):
        with pytest.raises(InvalidArgumentError, match="`captions`"):
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
    found = dataset.annotation("marks")
    assert found is not None and dataset.annotation("marks") is found
    with pytest.raises(InvalidArgumentError, match="annotation='mark'.*marks"):
        dataset.annotation("mark")

"""`check` reads everything and names what is damaged."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from vsemb import registry
from vsemb.cli.__main__ import main
from vsemb.data import tokens
from vsemb.data.check import check
from vsemb.data.features.compute import write_precomputed
from vsemb.data.features.store import FeatureStore
from vsemb.data.images import StoredImage
from vsemb.data.records import ImageRecord
from vsemb.data.store import StoredDataset
from vsemb.data.tokens import encoded_captions
from vsemb.data.writing.writer import write_dataset
from vsemb.text import Vocabulary, WordTokenizer


@pytest.fixture
def out(tiny, tmp_path, monkeypatch):
    dataset = tiny.write(tiny.records(6), tmp_path / "out")
    monkeypatch.setattr(tokens, "_MANY", 3)
    encoded_captions(dataset.split("train"), WordTokenizer(Vocabulary(["caption"])))
    write_precomputed(dataset, dataset.ids, np.ones((len(dataset.ids), 2), np.float32))
    return tmp_path / "out"


def flip(path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def caption_byte(path) -> int:
    return path.read_bytes().index(b"caption 0 of 0")


def other_manifest(out) -> None:
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps(manifest | {"fingerprint": "0"}))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda out: flip(out / "train.index.arrow", caption_byte(out / "train.index.arrow")), ["index.*not what was"]),
        (lambda out: os.truncate(out / "val.index.arrow", 300), ["val.index.arrow: .*cannot be read"]),
        (lambda out: flip(next(out.glob("train-*")), 300), ["train-0.*not what was written; images '0.jpg'$"]),
        (lambda out: os.truncate(next(out.glob("train-*")), 900), ["train-0.*not what was written; images '"]),
        (lambda out: next(out.glob("val-*")).unlink(), ["val-0.*: missing"]),
        (lambda out: flip(next(out.glob("features/*/features.npy")), -1), ["Features in .* are damaged"]),
        (lambda out: flip(next(out.glob("tokens/*/ids")), -1), ["tokens/.*ids: .*not what was written"]),
        (lambda out: [next(out.glob("val-*")).unlink(), (out / "train.index.arrow").unlink()], ["index", "missing"]),
        (other_manifest, ["fingerprint"]),
    ],
    ids=[
        "caption",
        "truncated index",
        "image",
        "truncated shard",
        "missing shard",
        "features",
        "tokens",
        "two",
        "manifest",
    ],
)
def test_damage_is_named_line_by_line(out, damage, expected) -> None:
    assert check(out).damaged == ()
    damage(out)
    for line, pattern in zip(check(out).damaged, expected, strict=True):
        assert "\n" not in line
        assert re.search(pattern, line), line


def test_the_command(out, capsys, tmp_path) -> None:
    assert main(["check", str(out)]) == 0
    assert "no damage found" in capsys.readouterr().out
    next(out.glob("val-*")).unlink()
    assert main(["check", str(out), "--json", str(tmp_path / "found.json")]) == 1
    printed = capsys.readouterr()
    assert ": missing" in printed.out and "damaged in one place" in printed.err
    assert len(json.loads((tmp_path / "found.json").read_text())["damaged"]) == 1
    shutil.rmtree(out)
    assert main(["check", str(out)]) == 1
    assert "no such directory" in capsys.readouterr().err


def test_damaged_caches_of_systems_are_named(out, monkeypatch) -> None:
    entries = registry.entries
    caches = {**entries("caches"), "others": "tests.data.test_check:Others"}
    monkeypatch.setattr(registry, "entries", lambda name: caches if name == "caches" else entries(name))
    (out / "others/1").mkdir(parents=True)
    (out / "others/1/manifest.json").write_text("{}")
    (line,) = check(out).damaged
    assert "others/1/manifest.json is not a other manifest" in line


class Others(FeatureStore):
    singular = "other"


def test_a_dataset_of_features_alone(tiny, tmp_path) -> None:
    tiny.write([replace(record, image=None) for record in tiny.records(4)], tmp_path / "out")
    assert check(tmp_path / "out").damaged == ()
    assert StoredDataset.open(tmp_path / "out").split("train").has_images is False


def test_images_that_training_cannot_decode_are_named(tiny, tmp_path, monkeypatch) -> None:
    # As versions did that kept PNGs with a wrong checksum.
    def kept(data: bytes, max_side: int | None = None) -> StoredImage:
        return StoredImage(data, 8, 8)

    monkeypatch.setattr("vsemb.data.writing.validate.sanitise_image", kept)
    whole = tf.io.encode_png(np.zeros((8, 8, 3), np.uint8)).numpy()
    images = {"whole.png": whole, "cut.png": whole[:-12]}
    records = [ImageRecord(name, ("a dog",), "train", data) for name, data in images.items()]
    write_dataset(records, tmp_path / "data", name="made", source={"format": "table", "sha256": {}, "options": {}})
    (line,) = check(tmp_path / "data").damaged
    assert "'cut.png'" in line and "'whole.png'" not in line

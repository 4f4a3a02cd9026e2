"""Beam jobs between object stores: images behind URIs, and datasets and embeddings that a store holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from vsemb.cli.__main__ import main as vsemb
from vsemb.data.store import StoredDataset

pytest.importorskip("apache_beam", reason="the extra beam is not installed")

from pipelines import beam_prepare
from pipelines.beam import preparing, storage
from tests.pipelines.beam_store import Shelf
from vsemb.data.uris import RemoteImage


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an empty store."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    monkeypatch.setattr(Shelf, "root", folder)
    monkeypatch.setattr(Shelf, "appeared", [])
    yield folder


@pytest.fixture
def table(shelf: Path, scenes: StoredDataset, tmp_path: Path) -> Path:
    """A table of ten images in the store, and one that is not there."""
    split = scenes.split("train")
    for row in range(10):
        (shelf / f"photos\\{row}.png").write_bytes(split.read_image(row))
    rows = "".join(f"{row}.png,{split.captions[5 * row]},{'val' if row % 3 else 'train'}\n" for row in range(11))
    (tmp_path / "table.csv").write_text("file,caption,split\n" + rows)
    return tmp_path / "table.csv"


def prepare(*arguments: object) -> int:
    options = ["--format", "table", "--images", "shelf://photos", "--images-per-shard", "4", "--block", "3"]
    return beam_prepare.main([*map(str, arguments), *options])


def test_files_of_a_store(shelf: Path) -> None:
    path = storage.join("shelf://a", "b", "c.json")
    assert path == "shelf://a/b/c.json" and not storage.exists(path)
    storage.write_json(path, {"x": 1})
    assert storage.read_json(path) == {"x": 1} and storage.listing("shelf://a/b") == {"c.json": 8}
    storage.move(path, "shelf://a/d.json")
    assert storage.listing("shelf://a/b") == {} and RemoteImage("shelf://a/d.json").read_bytes() == b'{"x": 1}'
    storage.remove(["shelf://a/d.json", "shelf://a/d.json"])
    assert list(shelf.iterdir()) == []


def test_a_dataset_in_a_store(shelf: Path, table: Path, tmp_path: Path, capsys) -> None:
    images = ["--images", "shelf://photos", "--images-per-shard", "4", "--name", "web"]
    assert vsemb(["prepare", str(table), "--format", "table", "--out", str(tmp_path / "here"), *images]) == 0
    assert prepare(table, "--out", "shelf://data/web") == 0
    values = {path.name.rpartition("\\")[2]: path for path in shelf.glob("data\\web\\*")}
    assert sorted(values) == sorted(path.name for path in (tmp_path / "here").iterdir())
    for name, path in values.items():
        assert path.read_bytes() == (tmp_path / "here" / name).read_bytes(), name
    # A reader never meets half a dataset: the manifest comes last, and nothing else is left.
    published = [path for path in Shelf.appeared if path.startswith("shelf://data/web/")]
    assert published[-1] == "shelf://data/web/manifest.json" and len(published) == len(values)
    letters = json.loads((shelf / "data\\web-dead-letters.jsonl").read_text())
    assert (letters["image"], letters["reason"]) == ("shelf://photos/10.png", "no such file")
    assert not list(shelf.glob("data\\.web.partial\\*"))
    capsys.readouterr()
    assert prepare(table, "--out", "shelf://data/web") == 0
    assert "nothing to do" in capsys.readouterr().err
    assert prepare(table, "--out", "shelf://data/web", "--max-side", 16) == 1
    error = capsys.readouterr().err
    assert "shelf://data/web already holds" in error and "`overwrite`" in error
    assert prepare(table, "--out", "shelf://data/web", "--max-side", 16, "--overwrite") == 0
    assert json.loads((shelf / "data\\web\\manifest.json").read_text())["writing"]["max_side"] == 16


def test_images_that_could_not_be_read_are_tried_again(
    shelf: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    def unwell(self: Shelf, path: str, mime_type: str = "", compression_type: str = "") -> object:
        if path.endswith("/5.png"):
            raise OSError("the store is unwell")
        return real(self, path, mime_type, compression_type)

    real = Shelf.open
    (shelf / "photos\\10.png").write_bytes((shelf / "photos\\9.png").read_bytes())
    with monkeypatch.context() as patch:
        patch.setattr(Shelf, "open", unwell)
        assert prepare(table, "--out", tmp_path / "data", "--on-bad-image", "fail") == 1
    assert "'5.png': cannot be read: the store is unwell" in capsys.readouterr().err
    examined = []

    def examine(task):
        examined.append((task.number, storage.exists(f"{task.path}.json")))
        return preparing_examine(task)

    preparing_examine = preparing.examine_block
    monkeypatch.setattr(preparing, "examine_block", examine)
    assert prepare(table, "--out", tmp_path / "data", "--on-bad-image", "fail") == 0
    assert sorted(examined) == [(number, True) for number in range(4)]
    manifest = StoredDataset.open(tmp_path / "data").manifest
    assert manifest["skipped"] == [] and sum(s["images"] for s in manifest["splits"].values()) == 11


def test_what_is_no_dataset_is_left_alone(shelf: Path, table: Path, capsys) -> None:
    (shelf / "data\\web\\letter.txt").write_text("mine")
    assert prepare(table, "--out", "shelf://data/web", "--overwrite") == 1
    assert "letter.txt" in capsys.readouterr().err and (shelf / "data\\web\\letter.txt").exists()

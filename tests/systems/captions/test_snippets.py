"""Snippets on disk."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.systems.captions.snippets import Snippets


@pytest.fixture
def snippets() -> Snippets:
    rows = np.array([0, 2, 2])
    texts = ["a \u2028 dog", "the man's hat", 'a "quoted" word']
    return Snippets(rows, rows + 2**40, np.array([1, 0, 4]), texts, 0.1, "c0", "ffee")


def same(one: Snippets, other: Snippets) -> bool:
    return all(np.array_equal(value, vars(other)[name]) for name, value in vars(one).items())


def test_what_is_written_is_read(snippets, tmp_path):
    snippets.save(tmp_path / "snippets")
    loaded = Snippets.load(tmp_path / "snippets")
    assert same(loaded, snippets) and loaded.image_ids.dtype == np.int64
    none = Snippets(*[np.zeros(0, np.int64)] * 3, [], 0.0, "c0", "ffee")
    assert none.mean_words == none.whole_images == 0
    # Another takes the place of what is there.
    none.save(tmp_path / "snippets")
    assert same(Snippets.load(tmp_path / "snippets"), none)
    assert [path.name for path in tmp_path.iterdir()] == ["snippets"]


def test_counts(snippets):
    # "a dog" is 2 words, for U+2028 is white space.
    assert len(snippets) == 3 and snippets.mean_words == 8 / 3 and snippets.whole_images == 1 / 3


def test_interrupted_writing_leaves_what_was_there(snippets, tmp_path, monkeypatch):
    snippets.save(tmp_path / "snippets")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(DataError, match="No space left"):
        snippets.save(tmp_path / "snippets")
    assert same(Snippets.load(tmp_path / "snippets"), snippets)
    assert [path.name for path in tmp_path.iterdir()] == ["snippets"]


def test_damage_is_told(snippets, tmp_path):
    folder = tmp_path / "snippets"
    with pytest.raises(DataError, match="manifest"):
        Snippets.load(folder)

    def damage(name: str, content: bytes) -> None:
        snippets.save(folder)
        (folder / name).write_bytes(content)
        with pytest.raises(DataError, match="snippets"):
            Snippets.load(folder)

    snippets.save(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    for name, content in (
        ("manifest.json", b"{}"),
        ("manifest.json", b"["),
        ("manifest.json", json.dumps(manifest | {"version": 2}).encode()),
        ("manifest.json", json.dumps(manifest | {"snippets": 4}).encode()),
        ("rows.npz", (folder / "rows.npz").read_bytes()[:-30]),
        ("rows.npz", b""),
        ("texts.jsonl", b'"a"\n"b"\n'),
        ("texts.jsonl", b"1\n2\n3\n"),
    ):
        damage(name, content)


def test_lengths_must_fit():
    rows = np.zeros(2, np.int64)
    with raises_argument("texts"):
        Snippets(rows, rows, rows, ["one"], 0.0, "c0", "ffee")

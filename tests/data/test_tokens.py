"""Token ids kept with the dataset are those of memory, and are made anew when something changes."""

from __future__ import annotations

import numpy as np
import pytest

from vsemb.data import tokens
from vsemb.data.store import StoredDataset
from vsemb.data.tokens import encoded_captions
from vsemb.text import CharacterTokenizer, Vocabulary, WordTokenizer


@pytest.fixture
def split(tiny, tmp_path, monkeypatch):
    """A split whose captions count as many, in blocks of two."""
    monkeypatch.setattr(tokens, "_MANY", 3)
    monkeypatch.setattr(tokens, "_BLOCK", 2)
    return tiny.write(tiny.records(6), tmp_path / "out").split("train")


def words(*known: str) -> WordTokenizer:
    return WordTokenizer(Vocabulary(known))


def folders(split) -> list[str]:
    return sorted(path.name for path in (split.dataset.path / "tokens").iterdir())


def test_they_are_kept_and_reused(split, monkeypatch) -> None:
    tokenizer = words("caption", "of", "1")
    expected = tokenizer.encode(list(split.captions))
    for _ in range(2):
        for array, wanted in zip(encoded_captions(split, tokenizer), expected, strict=True):
            assert isinstance(array, np.memmap) and array.dtype == wanted.dtype
            np.testing.assert_array_equal(array, wanted)
        monkeypatch.setattr(tokens, "_write", None)
    assert len(folders(split)) == 1


def test_another_tokenizer_or_selection_has_its_own(split) -> None:
    for tokenizer in (words("caption"), words("of"), WordTokenizer(Vocabulary(["of"]), 2), CharacterTokenizer()):
        encoded_captions(split, tokenizer)
    few = split.first_captions(1)
    encoded = encoded_captions(few, words("caption"))
    np.testing.assert_array_equal(encoded[1], words("caption").encode(list(few.captions))[1])
    assert len(folders(split)) == 5


def test_damaged_ones_are_made_again(split) -> None:
    tokenizer = words("caption")
    expected = np.array(encoded_captions(split, tokenizer)[0])
    (folder,) = folders(split)
    path = split.dataset.path / "tokens" / folder / "ids"
    path.write_bytes(path.read_bytes()[:4])
    np.testing.assert_array_equal(
        encoded_captions(StoredDataset.open(split.dataset.path).split("train"), tokenizer)[0], expected
    )


def test_a_changed_byte_is_noticed(split, capsys) -> None:
    tokenizer = words("caption", "of")
    expected = [np.array(each) for each in encoded_captions(split, tokenizer)]
    (folder,) = folders(split)
    for name in ("ids", "offsets.npy", "manifest.json"):
        path = split.dataset.path / "tokens" / folder / name
        content = path.read_bytes()
        path.write_bytes(content[:-8] + bytes([content[-8] ^ 1]) + content[-7:])
        encoded = encoded_captions(StoredDataset.open(split.dataset.path).split("train"), tokenizer)
        for each, wanted in zip(encoded, expected, strict=True):
            np.testing.assert_array_equal(each, wanted)
        assert path.read_bytes() == content and folder in capsys.readouterr().err


def test_where_nothing_can_be_written_they_are_in_temporary_files(split, capsys) -> None:
    (split.dataset.path / "tokens").write_text("a file")
    for array, wanted in zip(
        encoded_captions(split, words("caption")), words("caption").encode(list(split.captions)), strict=True
    ):
        assert isinstance(array, np.memmap)
        np.testing.assert_array_equal(array, wanted)
    assert "not kept for later runs" in "".join(capsys.readouterr())

"""Annotations of captions: stored whole, verified, and found for few of the captions."""

from __future__ import annotations

import gzip
from typing import ClassVar

import pytest

from vsemb.data.annotations import CaptionAnnotation
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError
from vsemb.files import sha256_file


class Notes(CaptionAnnotation):
    """A line per caption."""

    kind: ClassVar[str] = "notes"
    annotation: ClassVar[str] = "notes"

    @classmethod
    def files(cls, split, record) -> dict[str, str]:
        return {f"{split}.gz": record["sha256"]}

    def of(self, split) -> list[str]:
        return self.read(split, f"{split.name}.gz", lambda file: self.unpacked(file).split("\n"))


def write(dataset: StoredDataset, notes: dict[str, list[str]], overwrite: bool = False) -> None:
    Notes.check_given(dataset, notes)
    with Notes.writing(dataset, {"fingerprint": "c0ffee"}, overwrite) as (folder, splits):
        for name, some in notes.items():
            file = folder / f"{name}.gz"
            file.write_bytes(gzip.compress("\n".join(some).encode()))
            splits[name] = {"captions": len(some), "sha256": sha256_file(file)}


@pytest.fixture
def dataset(tiny, tmp_path) -> StoredDataset:
    """Images 0 to 5 with 1, 2, 3, 1, 2, 3 captions; 2 and 5 are val."""
    return tiny.write(tiny.records(6), tmp_path / "out")


NOTES = {"train": list("abcdef"), "val": list("ghijkl")}


def test_what_was_written_is_read_back(dataset) -> None:
    assert Notes.find(dataset) is None
    write(dataset, NOTES)
    notes_read = Notes.find(dataset)
    assert notes_read is not None and (notes_read.count, notes_read.fingerprint) == (12, "c0ffee")
    assert {name: notes_read.of(dataset.split(name)) for name in dataset.splits} == NOTES
    split = dataset.split("val")
    assert notes_read.of(split.with_captions([split.captions[1:3], split.captions[5:]])) == ["h", "i", "l"]
    with pytest.raises(DataError):
        notes_read.of(split.with_captions([["a"], ["b"]]))
    with pytest.raises(DataError, match="already exists"):
        write(dataset, NOTES)
    write(dataset, NOTES | {"val": ["x"] * 6}, overwrite=True)
    assert Notes.open(dataset).of(split) == ["x"] * 6


def test_notes_that_do_not_fit_or_are_damaged(dataset) -> None:
    with pytest.raises(DataError, match="`vsemb annotate .* notes`"):
        Notes.open(dataset)
    with pytest.raises(DataError):
        write(dataset, {"train": NOTES["train"]})
    with pytest.raises(DataError, match="'val'"):
        write(dataset, NOTES | {"val": ["x"]})
    write(dataset, NOTES)
    (dataset.path / "notes" / "val.gz").write_bytes(b"x")
    with pytest.raises(DataError, match="val.gz"):
        Notes.open(dataset)

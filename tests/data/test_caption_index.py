"""Captions found by their ids: those of the source, those by key and number, and those that are none."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest

from vsemb.data.caption_index import CaptionIndex
from vsemb.errors import DataError


def test_ids_of_the_source_and_keys_with_numbers(tiny, tmp_path) -> None:
    records = tiny.records(6)
    records = [
        replace(one, caption_ids=tuple(f"{one.key[0]}{n}" for n, _ in enumerate(one.captions))) for one in records
    ]
    dataset = tiny.write(records, tmp_path / "out")
    captions = CaptionIndex(dataset)
    assert captions.has_own and len(captions.texts) == len(captions.ids) == 12
    place = 0
    for name in dataset.splits:
        split = dataset.split(name)
        for row, texts in enumerate(split.caption_lists()):
            for number, text in enumerate(texts):
                assert captions.texts[place] == text and captions.split_of(place) == name
                for called in (f"{split.keys[row][0]}{number}", f" {split.keys[row]}#{number} "):
                    assert captions.find(called) == place
                place += 1
    for name in ("0.jpg#1", "0.jpg", "#0", "0.jpg#-1", "0.jpg#x", ""):
        assert captions.find(name) is None
    by_split = captions.by_split(range(12))
    assert by_split == {"train": [0, 1, 2, 3, 4, 5], "val": [6, 7, 8, 9, 10, 11]}


def test_an_id_that_several_have_is_refused(tiny, tmp_path) -> None:
    records = [replace(one, caption_ids=("same",) * len(one.captions)) for one in tiny.records(3)]
    captions = CaptionIndex(tiny.write(records, tmp_path / "out"))
    with pytest.raises(DataError, match="'same'.*'KEY#0'"):
        captions.find("same")
    assert captions.find("0.jpg#0") == 0


class Line(NamedTuple):
    id: str
    line: int


def test_entries_of_a_file_find_their_captions(tiny, tmp_path) -> None:
    captions = CaptionIndex(tiny.write(tiny.records(3), tmp_path / "out"))
    lines = [Line(name, number) for number, name in enumerate(captions.ids, 1)]
    said: list[str] = []
    assert captions.match([Line("x", 9), *reversed(lines)], "line", said.append) == lines
    assert said == ["1 lines left out whose ids the dataset does not have, first 'x' (line 9)."]
    with pytest.raises(DataError, match="'2.jpg#2'.*line 6.*line 6"):
        captions.match([*lines, lines[-1]], "line", said.append)
    with pytest.raises(DataError, match="'0.jpg#0'.*1"):
        captions.match(lines[2:], "line", said.append)
    with pytest.raises(DataError, match="'x'.*'0.jpg#0'"):
        captions.match([Line("x", 1)], "line", said.append, "Look again.")

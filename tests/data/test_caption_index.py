"""Captions found by their ids: those of the source, those by key and number, and those that are none."""

from __future__ import annotations

from dataclasses import replace

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
        for row, entry in enumerate(split.entries):
            for number, text in enumerate(entry["captions"]):
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
    with pytest.raises(DataError, match="several captions whose id in their source is 'same'.*'KEY#0'"):
        captions.find("same")
    assert captions.find("0.jpg#0") == 0

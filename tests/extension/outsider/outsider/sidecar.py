"""A reader: a folder of images, each with a text file of the same name that holds a caption per line."""

from __future__ import annotations

import os
from pathlib import Path

from vsemb.data.readers.source import Source, existing, text_lines
from vsemb.data.records import ImageRecord
from vsemb.errors import DataError


def read(source: str | os.PathLike[str]) -> Source:
    """Reads a folder.

    Args:
        source: the folder. Of every ten images in order of their names the last is `val`, the one before `test`.

    Raises:
        DataError: if the folder is missing or holds no such pair.
    """
    folder = existing(source)
    files = sorted(path for path in Path(folder).glob("*.png") if path.with_suffix(".txt").exists())
    if not files:
        raise DataError(f"{folder} must hold pairs of NAME.png and NAME.txt; it holds none.")
    places = dict.fromkeys(range(8), "train") | {8: "test", 9: "val"}
    records = [
        ImageRecord(path.name, tuple(text_lines(path.with_suffix(".txt"))), places[number % 10], path)
        for number, path in enumerate(files)
    ]
    texts = tuple(path.with_suffix(".txt") for path in files)
    return Source("sidecar", Path(folder).name, records, files=texts)

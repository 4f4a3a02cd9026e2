"""Plain text: files of sentences without images, for the training of language models."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vsemb.data.readers.hash_splits import SPLITS, hash_split
from vsemb.data.readers.source import Source, existing, numbered_lines, split_name
from vsemb.data.records import ImageRecord
from vsemb.errors import DataError


@dataclass(frozen=True)
class _Sentences:
    """Records without images, one per non-blank line of the files."""

    files: tuple[Path, ...]
    split: str | None

    def __iter__(self) -> Iterator[ImageRecord]:
        for file in self.files:
            named = split_name(file.stem)
            for number, (_, line) in enumerate(numbered_lines(file), 1):
                key = f"{file.name}:{number}"
                if line.strip():
                    split = self.split or (named if named in SPLITS else hash_split(key))
                    yield ImageRecord(key, (line.strip(),), split, None)


def read(source: str | os.PathLike[str], *, split: str | None = None) -> Source:
    """Read a file of sentences, one per line, or the files `*.txt` of a folder.

    The files `train.txt`, `val.txt` and `test.txt` are splits. Lines of other files are split by a hash of their file
    name and number: 80 % train, 10 % val, 10 % test.

    Args:
        source: the file or folder, in UTF-8. Blank lines are left out.
        split: split for all sentences; None for the splits above.

    Raises:
        DataError: if the source or its files do not exist.
    """
    path = existing(source)
    files = tuple(sorted(path.glob("*.txt"))) if path.is_dir() else (path,)
    if not files:
        raise DataError(f"{path} must hold files of sentences; got none that ends in .txt.")
    return Source("sentences", path.name, _Sentences(files, split), files, {"split": split})

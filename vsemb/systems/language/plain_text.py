"""Plain text: files of sentences without images, for the training of language models."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vsemb.data.readers import Reader
from vsemb.data.readers.hash_splits import SPLITS, hash_split
from vsemb.data.readers.source import Source, existing, numbered_lines, split_name
from vsemb.data.records import ImageRecord
from vsemb.errors import DataError


@dataclass(frozen=True)
class _Lines:
    """Records without images, one per non-blank line of the files."""

    files: tuple[Path, ...]
    split: str | None

    def __iter__(self) -> Iterator[ImageRecord]:
        for file in self.files:
            named = split_name(file.stem)
            split = self.split or (named if named in SPLITS else None)
            for number, (_, line) in enumerate(numbered_lines(file), 1):
                key = f"{file.name}:{number}"
                if line.strip():
                    yield ImageRecord(key, (line.strip(),), split or hash_split(key), None)


@dataclass(frozen=True)
class Sentences(Reader, kind="sentences"):
    """Text: a UTF-8 file with a sentence per line, or a folder of .txt files, for the training of language models.

    The files train.txt, val.txt and test.txt are splits. Lines of other files are split by a hash of their file name
    and number: 80 % train, 10 % val, 10 % test.

    Attributes:
        split: put all sentences into this split.
    """

    split: str | None = None

    next_command: ClassVar[str | None] = "vsemb train log-bilinear --data CAPTIONED --set sentences={data} --out {out}"

    def read(self, source: str | os.PathLike[str]) -> Source:
        path = existing(source)
        files = tuple(sorted(path.glob("*.txt"))) if path.is_dir() else (path,)
        if not files:
            raise DataError(f"{path} must hold files of sentences; got none that ends in .txt.")
        return Source("sentences", path.name, _Lines(files, self.split), files, {"split": self.split})

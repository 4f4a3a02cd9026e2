"""A reader: a folder of images, each with a text file of the same name that holds a caption per line."""

from __future__ import annotations

import os
from dataclasses import dataclass

from vsemb.data.readers import Reader
from vsemb.data.readers.source import Source, existing, text_lines
from vsemb.data.records import ImageRecord
from vsemb.errors import DataError


@dataclass(frozen=True)
class Sidecar(Reader, kind="sidecar"):
    """A folder of NAME.png, each with captions in NAME.txt, one per line.

    Of every ten images in order of their names the last is `val`, the one before `test`.

    Attributes:
        suffix: ending of the files of captions.
    """

    suffix: str = ".txt"

    def read(self, source: str | os.PathLike[str]) -> Source:
        folder = existing(source)
        files = sorted(path for path in folder.glob("*.png") if path.with_suffix(self.suffix).exists())
        if not files:
            raise DataError(f"{folder} must hold pairs of NAME.png and NAME{self.suffix}; it holds none.")
        places = dict.fromkeys(range(8), "train") | {8: "test", 9: "val"}
        texts = [path.with_suffix(self.suffix) for path in files]
        records = [
            ImageRecord(path.name, tuple(text_lines(text)), places[number % 10], path)
            for number, (path, text) in enumerate(zip(files, texts, strict=True))
        ]
        return Source("sidecar", folder.name, records, files=tuple(texts), options={"suffix": self.suffix})

"""What every reader returns, and how readers open text files and find images."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from vsemb.data.records import ImageRecord
from vsemb.data.uris import RemoteFolder, RemoteImage
from vsemb.errors import DataError

if TYPE_CHECKING:
    from vsemb.data.dataset import Dataset

_PROBES = 64
_SPLIT_ALIASES = {"dev": "val", "valid": "val", "validation": "val", "training": "train", "testing": "test"}


@dataclass(frozen=True)
class Source:
    """Images and captions in a foreign layout, ready to be written as a dataset.

    Attributes:
        format: the reader's name.
        path_name: the last part of the source's path.
        records: the images in source order; iterating it twice gives the same records.
        files: the annotation files read; their SHA-256 goes into the manifest.
        options: the reader's options that decided the result, JSON-able.
        total: the number of records, None if unknown.
        notes: lines worth showing about what was left out or repaired.
        rows: for precomputed features: (split, its keys) -> float32 (len(keys), dim), maybe memory-mapped.
    """

    format: str
    path_name: str
    records: Iterable[ImageRecord]
    files: tuple[Path, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    total: int | None = None
    notes: tuple[str, ...] = ()
    rows: Callable[[str, Sequence[str]], np.ndarray] | None = None

    @property
    def knows_more(self) -> bool:
        """Whether something is written beside the records: features, or what `finish` writes."""
        return self.rows is not None

    def finish(self, dataset: Dataset) -> None:
        """Writes what the source knows beyond its records into the dataset's directory; for subclasses.

        Args:
            dataset: the finished dataset, before it moves to its place.
        """


def split_name(name: str) -> str:
    """Returns vsemb's name of a split: dev, valid and validation are `val`.

    Example:

    >>> split_name("Validation"), split_name("test")
    ('val', 'test')
    """
    plain = name.strip().lower()
    return _SPLIT_ALIASES.get(plain, plain)


def existing(path: str | os.PathLike[str]) -> Path:
    """Returns `path` if there is something.

    Raises:
        DataError: if there is not.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"No source at {path}: there is no such file or directory.")
    return path


def read_text(path: Path) -> str:
    """Reads a UTF-8 file, with or without byte order mark.

    Raises:
        DataError: if it is missing or not UTF-8, naming the line.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {line}: not UTF-8 text. Convert the file to UTF-8.") from error


def text_lines(path: Path) -> list[str]:
    """Returns the lines of a UTF-8 file without their ends.

    Only line feeds end a line: captions may hold the other characters that `str.splitlines` breaks at.
    """
    lines = read_text(path).split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def image_path(folder: Path | RemoteFolder, name: str) -> Path | RemoteImage:
    """Returns the path of an image that an annotation names; it need not exist.

    Names written in another Unicode normal form than the file's are found as well (archives made on
    macOS decompose accents).

    Raises:
        DataError: if the name leads out of `folder`.
    """
    pure = PurePosixPath(name)
    if not name or "\0" in name or pure.is_absolute() or ".." in pure.parts:
        raise DataError(f"The image name {name!r} does not lie below the images folder; use relative names.")
    if isinstance(folder, RemoteFolder):
        return folder / name
    path = folder / name
    if not name.isascii() and not path.exists():
        for form in ("NFC", "NFD"):
            other = folder / unicodedata.normalize(form, name)
            if other.exists():
                return other
    return path


def find_images(names: Sequence[str], candidates: Sequence[Path | RemoteFolder]) -> Path | RemoteFolder:
    """Returns the candidate folder that holds most of a sample of the named images, or the first remote one.

    Raises:
        DataError: if none holds any, naming the folders tried.
    """
    for folder in candidates:
        if isinstance(folder, RemoteFolder):
            return folder
    step = max(1, len(names) // _PROBES)
    sample = names[::step]
    # max() returns the first of equals, so the order of the candidates decides.
    local = [folder for folder in candidates if isinstance(folder, Path)]
    counts = [sum(_is_there(folder, name) for name in sample) for folder in local]
    if not names or not max(counts, default=0):
        tried = ", ".join(dict.fromkeys(str(folder) for folder in candidates))
        example = f", e.g. {names[0]!r}," if names else ""
        raise DataError(f"No image of the source{example} lies in {tried}. Name the folder with --images.")
    return local[counts.index(max(counts))]


def _is_there(folder: Path, name: str) -> bool:
    path = image_path(folder, name)
    return isinstance(path, Path) and path.exists()

"""The result of all readers, and how they open text files and find images."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from vsemb.console import progress
from vsemb.data.records import ImageRecord
from vsemb.data.store import Dataset
from vsemb.data.uris import RemoteFolder, RemoteImage, images_folder
from vsemb.errors import DataError
from vsemb.files import reading

_PROBES = 64
_SPLIT_ALIASES = {"dev": "val", "valid": "val", "validation": "val", "training": "train", "testing": "test"}


#: In place of `BadRows`: the first malformed row is an error.
STRICT: AbstractContextManager[None] = nullcontext()


@dataclass(frozen=True)
class Source:
    """Images and captions in a foreign layout, ready to be written as a dataset.

    Attributes:
        format: the reader's name.
        path_name: the last part of the source's path.
        records: the images in source order; iterating it twice gives the same records.
        files: the annotation files read; their SHA-256 goes into the manifest.
        options: the reader's options that decided the result, JSON-able.
        notes: lines worth showing about what was left out or repaired.
        bad: rows of the annotation files that cannot be used and were left out, each with the reason, see `BadRows`.
        rows: for precomputed features: (split, its keys) -> float32 (len(keys), dim), maybe memory-mapped.
    """

    format: str
    path_name: str
    records: Iterable[ImageRecord]
    files: tuple[Path, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()
    rows: Callable[[str, Sequence[str]], np.ndarray] | None = None

    @property
    def total(self) -> int | None:
        """The number of records, None if unknown."""
        return len(self.records) if isinstance(self.records, Sized) else None

    @property
    def knows_more(self) -> bool:
        """Whether something is written beside the records: features, or what `finish` writes."""
        return self.rows is not None

    def finish(self, dataset: Dataset) -> None:
        """Write content beyond the records into the dataset's directory; for subclasses.

        Args:
            dataset: the finished dataset, before it moves to its place.
        """


class BadRows(list[str]):
    """Errors of the malformed rows of a source, which are left out.

    As a context manager, it records a `DataError` and leaves the block.

    Example:

    >>> bad = BadRows()
    >>> for number, row in enumerate(["a.jpg", ""], 1):
    ...     with bad:
    ...         if not row:
    ...             raise DataError(f"t.csv, line {number}: the file name is empty.")
    >>> bad
    ['t.csv, line 2: the file name is empty.']
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, DataError):
            self.append(str(error))
        return isinstance(error, DataError)

    def require(self, path: Path, rows: Sized) -> None:
        """Check that rows are left.

        Args:
            path: the source.
            rows: the rows that can be used.

        Raises:
            DataError: if `rows` is empty, with the first malformed rows.
        """
        if not len(rows):
            raise DataError(f"{path} has no rows{f' that can be used: {listed(self, 3)}' if self else '.'}")


def split_name(name: str) -> str:
    """Return vsemb's name of a split: dev, valid and validation are `val`.

    Example:

    >>> split_name("Validation"), split_name("test")
    ('val', 'test')
    """
    plain = name.strip().lower()
    return _SPLIT_ALIASES.get(plain, plain)


def existing(path: str | os.PathLike[str]) -> Path:
    """Return `path` if there is something.

    Raises:
        DataError: if there is not.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"No source at {path}. Check the path.")
    return path


def head(path: Path) -> str:
    """Return the first 64 KiB of a text file, from which its format is inferred."""
    with reading(path), open(path, "rb") as file:
        return file.read(1 << 16).decode(errors="replace")


def numbered_lines(
    path: Path, desc: str | None = None, bad: AbstractContextManager[None] = STRICT
) -> Iterator[tuple[str, str]]:
    """Read a UTF-8 file, with or without byte order mark, line by line.

    Only line feeds end a line: captions may hold the other characters that `str.splitlines` breaks at.

    Args:
        path: the file.
        desc: what the progress bar says, before the file's name; None for no bar.
        bad: `BadRows` to record lines that are not UTF-8; such a line is yielded as "". By default, the first is an
            error.

    Yields:
        where a line stands, for messages, and the line without its end.

    Raises:
        DataError: if the file is missing or a line is not UTF-8.
    """
    with (
        reading(path),
        open(path, "rb") as file,
        progress(
            total=path.stat().st_size,
            desc=f"{desc}, {path.name}",
            unit="B",
            unit_scale=True,
            leave=False,
            disable=None if desc else True,
        ) as bar,
    ):
        for number, data in enumerate(file, 1):
            where = f"{path}, line {number}"
            line = ""
            try:
                line = data.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                with bad:
                    raise DataError(f"{where}: not UTF-8 text. Convert the file to UTF-8.") from error
            bar.update(len(data))
            yield where, line.removesuffix("\n").removesuffix("\r")


def listed(bad: Sequence[str], most: int = 20) -> str:
    """Return lines that cannot be used as one sentence, the first of many.

    Example:

    >>> listed(["t.csv, line 2: the file name is empty.", "t.csv, line 7: the split is empty."])
    't.csv, line 2: the file name is empty; t.csv, line 7: the split is empty.'
    """
    more = f"; and {len(bad) - most} more" if len(bad) > most else ""
    return f"{'; '.join(line.rstrip('.') for line in bad[:most])}{more}."


def text_lines(path: Path, bad: AbstractContextManager[None] = STRICT) -> list[str]:
    """Return the lines of a UTF-8 file, see `numbered_lines`."""
    return [line for _, line in numbered_lines(path, bad=bad)]


def the_file(found: Sequence[Path], folder: Path, what: str) -> Path:
    """Return the only file of a kind in a folder.

    Raises:
        DataError: if there are not exactly one.
    """
    if len(found) != 1:
        names = f" ({', '.join(file.name for file in found)})" if found else ""
        raise DataError(f"{folder} holds {len(found)} {what}{names}; name the one to read.")
    return found[0]


def image_folders(images: str | os.PathLike[str] | None, *usual: Path) -> list[Path | RemoteFolder]:
    """Return where to look for images: in the folder that the option `images` names, or where they usually are.

    Raises:
        DataError: if the folder is missing.
    """
    if images is None:
        return list(usual)
    folder = images_folder(images)
    if not folder.is_dir():
        raise DataError(f"No images folder at {images}.")
    return [folder]


def below(folder: Path | RemoteFolder, name: str) -> str | None:
    """Return an image's name relative to a folder; None if it leads out of it.

    Args:
        folder: the images folder.
        name: a relative name, or an absolute path.

    Example:

    >>> below(Path("/photos"), "/photos/2024/dog.jpg"), below(Path("/photos"), "../dog.jpg")
    ('2024/dog.jpg', None)
    """
    path = PurePosixPath(name)
    if path.is_absolute() and isinstance(folder, Path):
        for root in (Path(os.path.abspath(folder)), folder.resolve()):
            if path.is_relative_to(root):
                path = path.relative_to(root)
                break
    if not name or "\0" in name or path.is_absolute() or ".." in path.parts:
        return None
    # A relative name stays as it is written, for it is the image's key.
    return str(path) if PurePosixPath(name).is_absolute() else name


def image_path(folder: Path | RemoteFolder, name: str) -> Path | RemoteImage:
    """Return the path of an image that an annotation names; it need not exist.

    Names written in another Unicode normal form than the file's are found as well (archives made on
    macOS decompose accents).

    Raises:
        DataError: if the name leads out of `folder`.
    """
    relative = below(folder, name)
    if relative is None:
        raise DataError(f"The image must lie below the images folder {folder}; got {name!r}.")
    if isinstance(folder, RemoteFolder):
        return folder / relative
    path = folder / relative
    if not relative.isascii() and not os.path.exists(path):
        for form in ("NFC", "NFD"):
            other = folder / unicodedata.normalize(form, relative)
            if os.path.exists(other):
                return other
    return path


def find_images(names: Sequence[str], candidates: Sequence[Path | RemoteFolder]) -> Path | RemoteFolder:
    """Return the candidate folder that holds most of a sample of the named images, or the first remote one.

    Raises:
        DataError: if none holds any, naming the folders tried.
    """
    for folder in candidates:
        if isinstance(folder, RemoteFolder):
            return folder
    sample = names[:: max(1, len(names) // _PROBES)]
    counts = {folder: sum(_is_there(folder, name) for name in sample) for folder in candidates}
    if not any(counts.values()):
        tried = ", ".join(map(str, counts))
        example = f", e.g. {names[0]!r}," if names else ""
        raise DataError(
            f"No image of the source{example} lies in {tried}. Name the folder with --images (in Python, images=)."
        )
    # max() returns the first of equals, so the order of the candidates decides.
    return max(counts, key=counts.__getitem__)


def _is_there(folder: Path | RemoteFolder, name: str) -> bool:
    path = None if below(folder, name) is None else image_path(folder, name)
    # Unlike `Path.exists`, false for a name that is too long.
    return isinstance(path, Path) and os.path.exists(path)

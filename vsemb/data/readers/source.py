"""`Source`, the result of all readers, and functions to open text files and find images."""

from __future__ import annotations

import functools
import json
import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from vsemb.console import progress
from vsemb.data.records import ImageRecord, check_split_name
from vsemb.data.uris import RemoteFolder, RemoteImage, images_folder
from vsemb.errors import DataError, InvalidArgumentError, one_line
from vsemb.files import inside, open_regular, reading
from vsemb.unicode import has_surrogate

if TYPE_CHECKING:
    import numpy as np

    from vsemb.data.store import StoredDataset

RestVal = Literal["train", "keep", "drop"]

_PROBES = 64
# Bytes from which formats and line ends are inferred.
_HEAD = 1 << 16
_SPLIT_ALIASES = {"dev": "val", "valid": "val", "validation": "val", "training": "train", "testing": "test"}


#: Passed in place of `BadRows` to raise an error at the first malformed row.
STRICT: AbstractContextManager[None] = nullcontext()


@dataclass(frozen=True)
class Source:
    """Images and captions in a foreign layout, ready to be written as a dataset.

    Attributes:
        format: the reader's name.
        path_name: the last part of the source's path.
        records: the images in source order; every iteration gives the same records.
        files: the annotation files read; the manifest stores their SHA-256.
        options: the reader's options that affect the result, JSON-serializable.
        notes: lines to report about skipped or repaired content.
        bad: one message per unusable row of the annotation files, see `BadRows`; these rows are left out.
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
        """Whether the source has content besides its records: features, or files that `finish` writes."""
        return self.rows is not None

    def finish(self, dataset: StoredDataset) -> None:
        """Write content beyond the records into the dataset's directory; for subclasses.

        Args:
            dataset: the finished dataset, before it moves to its place.
        """


class BadRows(list[str]):
    """Messages of the malformed rows of a source, which are left out.

    As a context manager, it suppresses a `DataError` of its block and appends the message.

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
            reasons = f" that can be used: {listed(self, 3)}" if self else "."
            raise DataError(f"{path} has no rows{reasons}")


def split_name(name: str) -> str:
    """Return the canonical name of a split: dev, valid and validation become `val`.

    Example:

    >>> split_name("Validation"), split_name("test")
    ('val', 'test')
    """
    plain = name.strip().lower()
    return _SPLIT_ALIASES.get(plain, plain)


def row_split(where: str, row: Mapping[str, Any]) -> str | None:
    """Return the canonical name of the split that a row states; None if it has no field `split`.

    Args:
        where: file and place of the row, for the message.
        row: field -> value.

    Raises:
        DataError: if the split is empty, is not text, or cannot be part of a file name.

    Example:

    >>> row_split("t.jsonl, line 2", {"split": "Validation"}), row_split("t.jsonl, line 3", {})
    ('val', None)
    """
    if "split" not in row:
        return None
    value = row["split"]
    if value is None or (isinstance(value, str) and not value.strip()):
        raise DataError(f"{where}: the split is empty. Name it, or remove the column from all rows.")
    check_text(where, "split", value)
    try:
        return check_split_name(split_name(value))
    except InvalidArgumentError as error:
        raise DataError(f"{where}: {error}") from error


def row_class(where: str, row: Mapping[str, Any]) -> str | None:
    """Return the class that a row states, a whole number as text; None without one.

    Args:
        where: file and place of the row, for the message.
        row: field -> value.

    Raises:
        DataError: if the class is neither text nor a whole number.

    Example:

    >>> row_class("t.jsonl, line 2", {"class": 7}), row_class("t.jsonl, line 3", {"class": " "})
    ('7', None)
    """
    value = row.get("class")
    if type(value) is int:
        return str(value)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    check_text(where, "class", value)
    return str(value).strip()


def one_split_note(parts: str, split: str, hashed: str, fix: str) -> str:
    """Return the line that reports that the only split of a source is split again.

    Args:
        parts: name of what has the split, a plural.
        split: the split.
        hashed: name of what is hashed.
        fix: what keeps the split.

    Example:

    >>> one_split_note("files", "test", "key", "`split` keeps one")
    'All files are of the split test. A hash of the key splits them; `split` keeps one.'
    """
    return f"All {parts} are of the split {split}. A hash of the {hashed} splits them; {fix}."


def split_with_restval(name: str, restval: RestVal) -> str | None:
    """Return the split of an image of COCO, whose split `restval` most papers merge into train.

    Args:
        name: canonical name of its split.
        restval: `train` merges `restval` into train; `keep` makes it a split of its own; `drop` leaves it out.

    Returns:
        The split; None for an image that is left out.

    Example:

    >>> split_with_restval("restval", "train"), split_with_restval("restval", "drop")
    ('train', None)
    """
    if name != "restval" or restval == "keep":
        return name
    return "train" if restval == "train" else None


def existing(path: str | os.PathLike[str]) -> Path:
    """Return `path` if it exists.

    Raises:
        DataError: if it does not exist.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"No source at {path}. Check the path.")
    return path


def head(path: Path) -> str:
    """Return the first 64 KiB of a text file, from which its format is inferred."""
    with reading(path), open_regular(path) as file:
        return file.read(_HEAD).decode(errors="replace")


def numbered_lines(
    path: Path, desc: str | None = None, bad: AbstractContextManager[None] = STRICT
) -> Iterator[tuple[str, str]]:
    """Read a UTF-8 file, with or without byte order mark, line by line.

    Only line feeds end a line, because captions may contain the other separators of `str.splitlines`. In a file without
    a line feed in its first 64 KiB, carriage returns end a line, as older spreadsheets write them.

    Args:
        path: the file.
        desc: label of the progress bar, before the file's name; None for no bar.
        bad: `BadRows` to record lines that are not UTF-8; such a line is yielded as "". By default, the first such line
            is an error.

    Yields:
        File and number of a line, for error messages, and the line without its line feed.

    Raises:
        DataError: if the file is missing or a line is not UTF-8.
    """
    with (
        reading(path),
        open_regular(path) as file,
        progress(
            total=path.stat().st_size,
            desc=f"{desc}, {path.name}",
            unit="B",
            unit_scale=True,
            leave=False,
            disable=None if desc else True,
        ) as bar,
    ):
        for number, data in enumerate(raw_lines(file), 1):
            where = f"{path}, line {number}"
            line = ""
            try:
                line = data.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                with bad:
                    raise DataError(f"{where}: not UTF-8 text. Convert the file to UTF-8.") from error
            bar.update(len(data))
            yield where, line.removesuffix("\n").removesuffix("\r")


def raw_lines(file: BinaryIO) -> Iterator[bytes]:
    r"""Yield the lines of a file with their ends, as `numbered_lines` finds them.

    Args:
        file: the file, at its start.

    Example:

    >>> import io
    >>> list(raw_lines(io.BytesIO(b"one\rtwo\r"))), list(raw_lines(io.BytesIO(b"one\rtwo\n")))
    ([b'one\r', b'two\r'], [b'one\rtwo\n'])
    """
    start = file.read(_HEAD)
    file.seek(0)
    if b"\r" not in start or b"\n" in start:
        yield from file
        return
    rest = b""
    while block := file.read(_HEAD):
        *lines, rest = (rest + block).split(b"\r")
        yield from (line + b"\r" for line in lines)
    if rest:
        yield rest


def listed(bad: Sequence[str], most: int = 20) -> str:
    """Join the messages of unusable lines to one, of at most the first `most`.

    Example:

    >>> listed(["t.csv, line 2: the file name is empty.", "t.csv, line 7: the split is empty."])
    't.csv, line 2: the file name is empty; t.csv, line 7: the split is empty.'
    """
    more = f"; and {len(bad) - most} more" if len(bad) > most else ""
    return f"{'; '.join(line.rstrip('.') for line in bad[:most])}{more}."


def text_lines(path: Path, bad: AbstractContextManager[None] = STRICT) -> list[str]:
    """Return the lines of a UTF-8 file, see `numbered_lines`."""
    return [line for _, line in numbered_lines(path, bad=bad)]


def the_file(source: str | os.PathLike[str], files_of: Callable[[Path], Sequence[Path]], what: str) -> Path:
    """Return the file that a source names, or the only one of its kind in the folder that it names.

    Args:
        source: the file or folder.
        files_of: function that returns the files of this kind in a folder.
        what: name of such files, a plural.

    Raises:
        DataError: if the source does not exist, or the folder does not have exactly one.
    """
    folder = existing(source)
    if not folder.is_dir():
        return folder
    files = files_of(folder)
    if len(files) != 1:
        names = f" ({', '.join(file.name for file in files)})" if files else ""
        raise DataError(f"{folder} holds {len(files)} {what}{names}; name the one to read.")
    return files[0]


def image_folders(images: str | os.PathLike[str] | None, *usual: Path) -> list[Path | RemoteFolder]:
    """Return the folders to search for images: the one that `images` names, else the usual ones.

    Raises:
        DataError: if the folder is missing.
    """
    if images is None:
        return list(usual)
    folder = images_folder(images)
    if not folder.is_dir():
        raise DataError(f"No images folder at {images}.")
    return [folder]


def file_name(name: str, folders: Sequence[Path | RemoteFolder] = ()) -> str:
    """Return the name by which an image is known: with `/` between folders, and without `.` among them.

    Annotations from Windows have backslashes between folders. On other systems a file can have a backslash in its name.

    Args:
        name: the name in an annotation.
        folders: folders of images; if one has a file of this name, backslashes stay.

    Example:

    >>> file_name("photos\\\\a.jpg"), file_name("./photos//a.jpg")
    ('photos/a.jpg', 'photos/a.jpg')
    """
    if "\\" in name and not any(isinstance(folder, Path) and os.path.exists(folder / name) for folder in folders):
        name = name.replace("\\", "/")
    return str(PurePosixPath(name)) if name else name


def below(folder: Path | RemoteFolder, name: str) -> str | None:
    """Return an image's name relative to a folder; None if it is outside the folder.

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
    # A relative name is not normalized, because it is the image's key.
    return str(path) if PurePosixPath(name).is_absolute() else name


def files_inside(folder: Path, files: Iterable[Path]) -> list[Path]:
    """Return files that were found in a folder, after a check that no link leads out of it.

    A folder may come from others, and a dataset of it may be published.

    Raises:
        DataError: naming the first link, or file that is not a regular one.
    """
    checked = []
    for file in files:
        with reading(file):
            inside(folder, os.path.relpath(file, folder))
        checked.append(file)
    return checked


@functools.lru_cache(1024)
def _real(folder: str) -> str:
    """Return the real path of a folder, given its absolute path."""
    return os.path.realpath(folder)


def _leads_out(folder: Path, path: Path) -> bool:
    """Return whether a link leads out of the images folder."""
    if os.path.islink(path):
        real = os.path.realpath(path)
    else:
        real = os.path.join(_real(os.path.abspath(path.parent)), path.name)
    return not PurePath(real).is_relative_to(_real(os.path.abspath(folder)))


def image_path(folder: Path | RemoteFolder, name: str) -> Path | RemoteImage:
    """Return the path of an image that an annotation names; the file need not exist.

    A name and its file may differ in Unicode normal form (archives from macOS decompose accents).

    Raises:
        DataError: if the name is outside `folder`.
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
                path = other
                break
    if _leads_out(folder, path):
        fix = "Copy the folder with `cp -rL`, if you trust who made it."
        raise DataError(f"The image must lie below the images folder {folder}; {name!r} is a link out of it. {fix}")
    return path


def find_images(names: Sequence[str], candidates: Sequence[Path | RemoteFolder]) -> Path | RemoteFolder:
    """Return the candidate folder that holds most of a sample of the named images, or the first remote one.

    Raises:
        DataError: if no folder holds an image; the message names the folders.
    """
    for folder in candidates:
        if isinstance(folder, RemoteFolder):
            return folder
    sample = names[:: max(1, len(names) // _PROBES)]
    counts = {folder: sum(_is_there(folder, name) for name in sample) for folder in candidates}
    if not any(counts.values()):
        tried = ", ".join(map(str, counts))
        example = f", e.g. {names[0]!r}," if names else ""
        raise DataError(f"No image of the source{example} lies in {tried}. Name the folder with `images`.")
    # max() returns the first of equals, so the order of the candidates decides.
    return max(counts, key=counts.__getitem__)


def _is_there(folder: Path | RemoteFolder, name: str) -> bool:
    try:
        path = None if below(folder, name) is None else image_path(folder, name)
    except DataError:
        return True  # A link, which is refused by name where it is read.
    # `os.path.exists`, unlike `Path.exists`, returns False for a name that is too long.
    return isinstance(path, Path) and os.path.exists(path)


def check_text(where: str, what: str, value: object) -> None:
    """Check that a value is text that a file can hold.

    Args:
        where: file and place of the value, for the message.
        what: name of the field.
        value: the value.

    Raises:
        DataError: if it is not text, or has a lone surrogate.

    Example:

    >>> check_text("t.jsonl, line 2", "caption", "a dog")
    """
    if not isinstance(value, str):
        raise DataError(f"{where}: the {what} must be text; got {one_line(repr(value), 120)}.")
    if has_surrogate(value):
        raise DataError(
            f"{where}: the {what} must be valid Unicode; {one_line(repr(value), 120)} has a lone surrogate."
        )


def json_object(where: str, text: str | bytes) -> dict[str, Any]:
    """Parse a row that is a JSON object.

    Args:
        where: file and place of the row, for the message.
        text: the JSON.

    Raises:
        DataError: if it is not a JSON object, or an object in it has two fields of one name.

    Example:

    >>> json_object("t.jsonl, line 2", '{"file": "dog.jpg"}')
    {'file': 'dog.jpg'}
    """

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"{where}: names in an object must be different; got {twice!r} twice. Join its values.")
        return row

    try:
        row = json.loads(text, object_pairs_hook=distinct)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({error}).") from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: the JSON must be an object; got {one_line(repr(row), 60)}.")
    return row


def label_name(value: Any, names: Sequence[str]) -> Any:
    """Return the name of a class that is stored as a number, None outside the names; another value as it is.

    Example:

    >>> label_name(1, ["cat", "dog"]), label_name(-1, ["cat", "dog"]), label_name("dog", ["cat", "dog"])
    ('dog', None, 'dog')
    """
    if isinstance(value, str) or not hasattr(value, "__index__"):
        return value
    return names[value] if 0 <= value < len(names) else None


def typed_fields(where: str, entry: Any, **kinds: Any) -> list[Any]:
    """Return the values of an entry's fields, after a check of their types.

    Args:
        where: file and number of the entry, for the message.
        entry: the entry, any object.
        **kinds: field -> its type.

    Raises:
        DataError: if the entry is not a dictionary with these fields, or a text has a lone surrogate.

    Example:

    >>> typed_fields("boxes.json: image 0", {"id": 7, "width": 60}, id=int | str)
    [7]
    """
    values = [entry.get(name) for name in kinds] if isinstance(entry, dict) else []
    if not values or not all(map(isinstance, values, kinds.values())):
        raise DataError(f"{where} must have {', '.join(kinds)}; got {one_line(repr(entry), 120)}.")
    for name, value in zip(kinds, values, strict=True):
        if isinstance(value, str):
            check_text(where, name, value)
    return values

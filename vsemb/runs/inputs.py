"""Check arguments of commands on runs without TensorFlow: queries, image files, texts, kinds of directories."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsemb.data.readers.source import numbered_lines
from vsemb.errors import DataError, invalid_argument
from vsemb.files import read_json

#: Endings of the names of image files, in lower case. Files .heic and .heif are listed as unreadable.
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".heic", ".heif")
_MANIFESTS = {"vsemb-dataset": "dataset", "vsemb-index": "index"}


@dataclass(frozen=True)
class Query:
    """A search query: a text, an image, or several of them, with words subtracted and added.

    Attributes:
        text: a sentence.
        image: path of an image file, or the key of an image of the dataset.
        minus: words (or phrases) whose embeddings are subtracted.
        plus: words (or phrases) whose embeddings are added.
        compose: two or more operands; results show all of them. An operand is a text, the path of an image file, or
            the key of an image of the dataset.
        abstract: two or more operands; results show the content that they have in common.

    Raises:
        InvalidArgumentError: unless exactly one of text, image, compose and abstract is given.
    """

    text: str | None = None
    image: str | None = None
    minus: tuple[str, ...] = ()
    plus: tuple[str, ...] = ()
    compose: tuple[str, ...] = ()
    abstract: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        given = self._given
        if len(given) != 1:
            allowed = "one of a text or an image (--image), --compose and --abstract"
            raise invalid_argument("query", given or None, allowed)
        name, values = self.operands
        if name in ("compose", "abstract") and len(values) == 1:
            raise invalid_argument(name, values, "two or more texts or images")

    @property
    def _given(self) -> dict[str, Any]:
        kinds = {name: getattr(self, name) for name in ("text", "image", "compose", "abstract")}
        return {name: value for name, value in kinds.items() if value not in (None, ())}

    @property
    def operands(self) -> tuple[str, tuple[str, ...]]:
        """Name of the given attribute, and its texts or images."""
        ((name, value),) = self._given.items()
        return name, (value,) if isinstance(value, str) else tuple(value)


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """Return the kind of a directory: `run`, `index`, `dataset` or `model`; None for any other.

    A damaged run or index is also recognized.
    """
    path = Path(path)
    if (path / "recipe.json").exists():
        return "run"
    try:
        manifest = read_json(path / "manifest.json")
    except DataError:
        manifest = None
    if isinstance(manifest, dict) and manifest.get("format") in _MANIFESTS:
        return _MANIFESTS[manifest["format"]]
    return "model" if model_version(path) is not None else None


def model_version(path: Path) -> Path | None:
    """Return the newest version of an exported model, or `path` if it is a version; None without a SavedModel."""
    if (path / "saved_model.pb").exists():
        return path
    versions = [child for child in path.glob("[0-9]*") if (child / "saved_model.pb").exists()]
    return max(versions, key=lambda child: int(child.name) if child.name.isdecimal() else -1, default=None)


def check_counts(**counts: int | None) -> None:
    """Check that numbers are at least 1; None is allowed.

    Raises:
        InvalidArgumentError: if a number is below 1; the error names the argument.
    """
    for name, value in counts.items():
        if value is not None and value < 1:
            raise invalid_argument(name, value, "an integer >= 1")


def image_files(given: Sequence[str]) -> list[str]:
    """List image files.

    Args:
        given: directories (read with their subdirectories), glob patterns, image files, or `.txt` files with one path
            per line.

    Returns:
        Normalized paths without duplicates, in the order given. Files of a directory or pattern are sorted by name.

    Raises:
        DataError: if a directory, pattern or list is without images, or a file is missing.
    """
    found: list[str] = []
    for each in given:
        if os.path.isdir(each):
            files = _below(each)
        elif each.lower().endswith(".txt"):
            files = text_lines(each)
        else:
            files = [each] if os.path.isfile(each) else sorted(glob.glob(each, recursive=True))
        if not files:
            endings = ", ".join(IMAGE_SUFFIXES)
            lacking = "has none" if os.path.exists(each) or glob.has_magic(each) else "does not exist"
            raise DataError(f"--images must name image files ({endings}); {each} {lacking}.")
        found += map(os.path.normpath, files)
    return list(dict.fromkeys(found))


def _below(folder: str) -> list[str]:
    found = []
    for directory, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        shown = sorted(name for name in names if name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith("."))
        found += [os.path.join(directory, name) for name in shown]
    return found


def text_lines(path: str | os.PathLike[str]) -> list[str]:
    """Return the non-blank lines of a list, see `texts_and_blanks`.

    Raises:
        DataError: if the file cannot be read.
    """
    return texts_and_blanks(path)[0]


def texts_and_blanks(path: str | os.PathLike[str]) -> tuple[list[str], list[int]]:
    """Read a list: a UTF-8 file with one text per line, with or without byte order mark.

    Only line feeds end a line, see `vsemb.data.readers.source.numbered_lines`.

    Returns:
        The non-blank lines in order, without white space around them, and the numbers of the blank lines, from 1.

    Raises:
        DataError: if the file cannot be read.
    """
    lines = [line.strip() for _, line in numbered_lines(Path(path))]
    return [line for line in lines if line], [number for number, line in enumerate(lines, 1) if not line]


def check_vectors_path(path: str | os.PathLike[str]) -> str:
    """Return the ending of a file of vectors, `.npy` or `.parquet`.

    Raises:
        InvalidArgumentError: for any other ending.
    """
    ending = Path(path).suffix.lower()
    if ending not in (".npy", ".parquet"):
        raise invalid_argument("out", os.fspath(path), "a name that ends in .npy or .parquet")
    return ending

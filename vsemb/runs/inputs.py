"""Read and check inputs of acts on runs without TensorFlow: queries, image files, texts, kinds of directories."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import io
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsemb import registry
from vsemb.console import say
from vsemb.data.manifest import read_manifest
from vsemb.data.readers.source import numbered_lines
from vsemb.data.uris import scheme
from vsemb.errors import DataError, invalid_argument, printable, unknown_name
from vsemb.files import read_json

#: Endings of the names of image files, in lower case. Files .heic and .heif are listed as unreadable.
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".heic", ".heif")
#: Endings of the names of tables, in lower case.
TABLES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
# Byte order mark.
_MARK = "\ufeff"
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
            raise invalid_argument("query", given or None, "one of text, image, compose and abstract")
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

    def to_json(self) -> dict[str, Any]:
        """Return the values of the query; undecodable bytes of texts become `?`."""
        given = {name: printable(value) for name, value in vars(self).items() if isinstance(value, str)}
        return {**dataclasses.asdict(self), **given}


def typed_lines() -> Iterator[str]:
    """Yield lines that are typed at a prompt, or lines of standard input, without blank lines.

    Only line feeds end a line of standard input.
    """
    at_terminal = sys.stdin.isatty()
    lines = _prompted() if at_terminal else _lines_of_stdin()
    yield from filter(None, map(str.strip, lines))


def _prompted() -> Iterator[str]:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  Adds arrow keys and a history to `input`.
    say("Type a query, or Ctrl-D to end.")
    while True:
        try:
            yield input("query> ")
        except EOFError:
            print()
            return


def _lines_of_stdin() -> Iterator[str]:
    if isinstance(sys.stdin, io.TextIOWrapper):
        # Queries with invalid UTF-8 are refused one by one, as on a command line.
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")
    yield sys.stdin.readline().removeprefix(_MARK)
    while line := sys.stdin.readline():
        yield line


def named_run(source: str | os.PathLike[str]) -> Path | None:
    """Return the directory of a run that a name stands for, such as `hub:clip_vit_base_patch32`; None for a path.

    A directory with files of a system's `run_files`, such as a checkpoint, stands for a run, too.

    Raises:
        DataError: if the run cannot be made.
    """
    name = _name(source)
    reference = _reference(name)
    return None if reference is None else registry.load(reference)(name)


def _reference(name: str) -> str | None:
    """Return the reference to the function that makes the run of a name; None for a path."""
    prefix, colon, _ = name.partition(":")
    return registry.entries("named_runs").get(prefix) if colon else None


def _name(source: str | os.PathLike[str]) -> str:
    """Return the name of a run; for a directory with files that stand for one, the name that opens it."""
    files = registry.entries("run_files") if kind_of(source) is None else {}
    prefix = next((prefix for name, prefix in files.items() if (Path(source) / name).is_file()), None)
    return os.fspath(source) if prefix is None else f"{prefix}:{os.fspath(source)}"


def check_source(
    source: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    split: str | None = None,
    captions: bool = False,
) -> None:
    """Check where to search, before TensorFlow is loaded, which takes seconds.

    Args:
        source: directory of a run or an index, or a name of a run, which is not looked up yet.
        data, split, captions: see `vsemb.runs.searching.open_search`.

    Raises:
        InvalidArgumentError: for an unknown split, or an argument that the source does not take.
        DataError: if the source is neither a run nor an index.
    """
    path, kind = Path(source), kind_of(source)
    if kind == "index":
        try:
            recorded = read_json(path / "manifest.json")["source"]
            holds = f"{recorded['kind']}s of {', '.join(recorded['splits'])}"
        except (KeyError, TypeError) as error:
            raise DataError(f"The index {path} is damaged: its manifest names no source. Make it again.") from error
        for name, value in (("split", split), ("captions", captions or None)):
            if value is not None:
                fix = "Search the run, or make an index of what is wanted."
                raise invalid_argument(name, value, f"omitted, since the index holds {holds}", fix)
    elif kind != "run" and _reference(_name(source)) is None:
        received, fix = "a missing directory", "`vsemb train` makes a run."
        if kind is not None:
            received = f"a {kind}"
        elif path.is_dir():
            received = "another directory"
        elif path.exists():
            received = "a file"
        elif scheme(source):
            received, fix = "a URL", "In Python, `vsemb.load` opens the URL of a server and `vsemb.search` searches."
        # A path would lose a slash of a URL.
        raise DataError(f"{os.fspath(source)} must be a run directory or an index; got {received}. {fix}")
    if data is not None:
        splits = read_manifest(Path(data))["splits"]
        if split not in (None, "all", *splits):
            raise unknown_name("split", str(split), [*splits, "all"])


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
    made = str(manifest.get("format")) if isinstance(manifest, dict) else ""
    if made in _MANIFESTS:
        return _MANIFESTS[made]
    return "model" if model_version(path) is not None else None


def is_manifest(file: str | os.PathLike[str]) -> bool:
    """Return whether a file is JSON with a format of vsemb: a manifest of a dataset, index or cache, or a contract."""
    try:
        content = read_json(file)
    except DataError:
        return False
    return isinstance(content, dict) and str(content.get("format")).startswith("vsemb-")


def is_part_of(file: str | os.PathLike[str], owner: str | os.PathLike[str]) -> bool:
    """Return whether a file is another one, or belongs to it.

    Everything in a run, dataset, index or model belongs to it. So do the contract of a model, and the JSON file with
    the names of vectors.

    Args:
        file: the file, which may be missing.
        owner: the other file or directory.
    """
    target, path = Path(os.path.realpath(file)), Path(os.path.realpath(owner))
    contract = path.parent / "contracts" / f"{path.name}.json"
    if target in (path, contract) or (path.suffix == ".npy" and target == path.with_suffix(".json")):
        return True
    return path in target.parents and kind_of(path) is not None


def model_version(path: Path) -> Path | None:
    """Return the newest version of an exported model, or `path` if it is a version; None without a SavedModel."""
    if (path / "saved_model.pb").exists():
        return path

    def number(child: Path) -> int:
        # Larger numbers are no versions, as in `vsemb.exporting.versions`.
        return int(child.name) if child.name.isdecimal() and int(child.name) < 2**63 else -1

    versions = [child for child in path.glob("[0-9]*") if (child / "saved_model.pb").exists()]
    return max(versions, key=number, default=None)


def check_counts(**counts: int | None) -> None:
    """Check that numbers are at least 1; None is allowed.

    Raises:
        InvalidArgumentError: if a number is below 1; the error names the argument.
    """
    for name, value in counts.items():
        if value is not None and value < 1:
            raise invalid_argument(name, value, "an integer >= 1")


def image_files(given: Sequence[str | os.PathLike[str]]) -> list[str]:
    """List image files.

    Args:
        given: directories (read with their subdirectories), glob patterns, image files, or `.txt` files with one path
            per line.

    Returns:
        Normalized paths without duplicates, in the order given. Files of a directory or pattern are sorted by name.

    Raises:
        DataError: if a directory, pattern or list is without images, or a file is missing.
    """
    paths: list[str] = []
    for each in [os.fspath(path) for path in given]:
        if os.path.isdir(each):
            files = _below(each)
        elif each.lower().endswith(".txt"):
            files = text_lines(each)
        else:
            files = [each] if os.path.isfile(each) else sorted(glob.glob(each, recursive=True))
        if not files:
            endings = ", ".join(IMAGE_SUFFIXES)
            lacking = "has none" if os.path.exists(each) or glob.has_magic(each) else "does not exist"
            raise DataError(f"`images` must name image files ({endings}); {each} {lacking}.")
        paths += map(os.path.normpath, files)
    return list(dict.fromkeys(paths))


def _below(folder: str) -> list[str]:
    paths = []
    for directory, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        shown = sorted(name for name in names if name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith("."))
        paths += [os.path.join(directory, name) for name in shown]
    return paths


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
        DataError: if the file cannot be read, or has the name of a table.
    """
    if os.fspath(path).lower().endswith(TABLES):
        fix = "Write its column of texts to a .txt file."
        raise DataError(f"{path} must be a file with one text per line; got the name of a table. {fix}")
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

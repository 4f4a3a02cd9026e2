"""A CSV, TSV or JSON-lines table of (file, caption[, split, class]); one row a caption."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vsemb.data.readers.class_splits import dealt, shares
from vsemb.data.readers.source import (
    Source,
    existing,
    find_images,
    image_path,
    read_text,
    split_name,
    text_lines,
)
from vsemb.data.records import ImageRecord
from vsemb.data.uris import RemoteFolder, images_folder, located, scheme
from vsemb.errors import DataError, invalid_argument

_DESCRIPTIONS = ("description", "descriptions")
COLUMNS = {
    "file": ("file", "file_name", "filename", "image", "image_path", "path"),
    "caption": ("caption", "captions", "text", "sentence", *_DESCRIPTIONS),
    "split": ("split",),
    "class": ("class", "class_name", "label"),
}
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_SUFFIXES = (".csv", ".tsv", ".jsonl")


def read(
    source: str | os.PathLike[str],
    *,
    images: str | os.PathLike[str] | None = None,
    split: str | None = None,
    disjoint_classes: bool = False,
    uris: bool = False,
) -> Source:
    """Reads a table.

    The first line of a CSV or TSV file names the columns; see `COLUMNS` for the names that are understood.
    Several rows for one file are several captions of it; in JSON lines a caption may also be a list.

    Args:
        source: the table, or a folder that holds exactly one `.csv`, `.tsv` or `.jsonl` file.
        images: the folder that file names are relative to, a path or URI; default: the table's own, or
            `images/` in it.
        split: put all images into this split. By default the column `split` decides; without one, a hash
            of the file name does (`hash_split`).
        disjoint_classes: without a column `split`, let the classes decide, so that train, val and test share
            none: in the order of a hash of their names, 80 % of the classes are train, 10 % val and 10 %
            test, at least one of each.
        uris: let file names be URIs, see `vsemb.data.uris`; whoever wrote the table then decides what is
            asked for its images.

    Raises:
        InvalidArgumentError: for `disjoint_classes` together with `split`.
        DataError: naming the line, if the table is malformed or contradicts itself, or no image is found.
    """
    if disjoint_classes and split is not None:
        raise invalid_argument("split", split, "nothing with disjoint_classes, which makes three splits")
    path = existing(source)
    table = _table_file(path) if path.is_dir() else path
    captions: dict[str, list[str]] = {}
    facts: dict[str, tuple[str, str | None]] = {}
    for number, row in _rows(table):
        where = f"{table}, line {number}"
        name = row.get("file")
        if not isinstance(name, str) or not name.strip():
            raise DataError(f"{where}: no file name.")
        name = name.strip()
        if scheme(name) and not uris:
            raise DataError(f"{where}: {name!r} is a URI. If the table may name any, allow it with --uris.")
        given = _text(where, "split", row.get("split"))
        if split is None and "split" in row and not given:
            raise DataError(f"{where}: the split is empty.")
        if disjoint_classes and given:
            raise DataError(f"{where}: splits by class need a table without splits. Received: {given!r}.")
        part = split or (split_name(given) if given else hash_split(name))
        fact = (part, _text(where, "class", row.get("class")))
        if disjoint_classes and fact[1] is None:
            raise DataError(f"{where}: {name} has no class, which splits by class need in a column `class`.")
        if facts.setdefault(name, fact) != fact:
            raise DataError(f"{where}: {name} has split and class {fact}, and {facts[name]} in an earlier row.")
        found = row.get("caption")
        captions.setdefault(name, []).extend(found if isinstance(found, list) else ["" if found is None else found])
    if not captions:
        raise DataError(f"{table} has no rows.")
    if disjoint_classes:
        by_class = _splits_by_class([str(kind) for _, kind in facts.values()])
        facts = {name: (by_class[str(kind)], kind) for name, (_, kind) in facts.items()}
    roots: list[Path | RemoteFolder] = [table.parent, table.parent / "images"]
    if images is not None:
        roots = [images_folder(images)]
    if images is not None and not roots[0].is_dir():
        raise DataError(f"No images folder at {images}.")
    below = [name for name in captions if not scheme(name)]
    folder = find_images(below, roots) if below else roots[0]
    records = [
        ImageRecord(
            name,
            tuple(texts),
            facts[name][0],
            located(name) if scheme(name) else image_path(folder, name),
            class_name=facts[name][1],
        )
        for name, texts in captions.items()
    ]
    return Source(
        "table",
        path.resolve().name,
        records,
        files=(table,),
        options=({} if split is None else {"split": split})
        | ({"disjoint_classes": True} if disjoint_classes else {})
        | ({"uris": True} if uris else {}),
        total=len(records),
    )


def _splits_by_class(classes: list[str]) -> dict[str, str]:
    return dealt(classes, shares(len(set(classes)), 0.1, 0.1))


def hash_split(name: str) -> str:
    """Returns train (80 %), val (10 %) or test (10 %) by the SHA-256 of a file name.

    The name alone decides, so an image keeps its split when others come or go.

    Example:

    >>> hash_split("dog.jpg")
    'train'
    """
    digest = hashlib.sha256(unicodedata.normalize("NFC", name).encode("utf-8", "replace")).digest()
    tenth = int.from_bytes(digest[:8], "big") % 10
    return "train" if tenth < 8 else "val" if tenth == 8 else "test"


def _text(where: str, column: str, value: Any) -> str | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if not isinstance(value, str):
        raise DataError(f"{where}: the {column} is not text. Received: {value!r}.")
    return value.strip()


def _table_file(folder: Path) -> Path:
    found = sorted(file for file in folder.iterdir() if file.suffix.lower() in _SUFFIXES)
    if len(found) != 1:
        names = f" ({', '.join(file.name for file in found)})" if found else ""
        raise DataError(f"{folder} holds {len(found)} tables .csv, .tsv or .jsonl{names}; name the one to read.")
    return found[0]


def _rows(table: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line number, row by our column names)."""
    return _json_rows(table) if table.suffix.lower() in (".jsonl", ".json") else _text_rows(table)


def _json_rows(table: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text_lines(table), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{table}, line {number}: not JSON ({error}).") from error
        if not isinstance(row, dict):
            raise DataError(f"{table}, line {number}: expected a JSON object. Received: {line[:60]!r}.")
        columns = _columns(f"{table}, line {number}", list(row))
        yield number, {ours: row[theirs] for ours, theirs in columns.items()}


def _text_rows(table: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = _physical_lines(read_text(table))
    delimiter = _DELIMITERS.get(table.suffix.lower()) or ("\t" if lines and "\t" in lines[0] else ",")
    # TSV files of captions are written without quoting; a quotation mark in them is just that.
    reader = csv.reader(
        lines,
        delimiter=delimiter,
        quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL,
        strict=True,
    )
    try:
        header = next(reader, None)
        if header is None:
            raise DataError(f"{table} is empty.")
        columns = _columns(str(table), header)
        places = {ours: header.index(theirs) for ours, theirs in columns.items()}
        for row in reader:
            if not row or not any(row):
                continue
            if len(row) != len(header):
                raise DataError(
                    f"{table}, line {reader.line_num}: {len(row)} columns instead of {len(header)}. "
                    "Put captions that hold the delimiter in quotation marks."
                )
            yield reader.line_num, {ours: row[place] for ours, place in places.items()}
    except csv.Error as error:
        raise DataError(f"{table}, line {reader.line_num}: {error}.") from error


def _physical_lines(text: str) -> list[str]:
    return [line + "\n" for line in text.replace("\r\n", "\n").split("\n")]


def _columns(where: str, header: list[str]) -> dict[str, str]:
    """Returns our column names -> the header's."""
    columns: dict[str, str] = {}
    for ours, names in COLUMNS.items():
        found = [theirs for theirs in header if theirs.strip().lower() in names]
        # Beside captions, descriptions may be something else; they are captions where nothing else is.
        found = [name for name in found if name.strip().lower() not in _DESCRIPTIONS] or found
        if len(found) > 1:
            raise DataError(f"{where}: several columns could be the {ours}: {', '.join(found)}.")
        if found:
            columns[ours] = found[0]
    missing = [ours for ours in ("file", "caption") if ours not in columns]
    if missing:
        raise DataError(
            f"{where}: no column {' and no column '.join(missing)}. Received the columns: "
            f"{', '.join(header)}. Expected names such as {', '.join(COLUMNS[missing[0]])}."
        )
    return columns

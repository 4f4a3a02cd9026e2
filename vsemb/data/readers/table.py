"""A CSV, TSV or JSON-lines table of (file, caption[, split, class]); one row a caption."""

from __future__ import annotations

import csv
import itertools
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vsemb.data.readers.hash_splits import dealt, hash_split, shares
from vsemb.data.readers.source import (
    Source,
    existing,
    find_images,
    image_folders,
    image_path,
    numbered_lines,
    split_name,
    the_file,
)
from vsemb.data.records import ImageRecord
from vsemb.data.uris import located, scheme
from vsemb.errors import DataError, invalid_argument

_DESCRIPTIONS = ("description", "descriptions")
COLUMNS = {
    "file": ("file", "file_name", "filename", "image", "image_path", "path"),
    "caption": ("caption", "captions", "text", "sentence", *_DESCRIPTIONS),
    "split": ("split",),
    "class": ("class", "class_name", "label"),
}
_SUFFIXES = (".csv", ".tsv", ".jsonl")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


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
    path = table = existing(source)
    if path.is_dir():
        tables = sorted(file for file in path.iterdir() if file.suffix.lower() in _SUFFIXES)
        table = the_file(tables, path, "tables .csv, .tsv or .jsonl")
    captions: dict[str, list[str]] = {}
    facts: dict[str, tuple[str, str | None]] = {}
    for where, row in read_rows(table, COLUMNS, ("file", "caption"), weak=_DESCRIPTIONS):
        name = row.get("file")
        if not isinstance(name, str) or not name.strip():
            raise DataError(f"{where}: no file name.")
        name = name.strip()
        if scheme(name) and not uris:
            raise DataError(f"{where}: {name!r} is a URI. If the table may name any, allow it with --uris.")
        named = _text(where, "split", row.get("split"))
        if split is None and "split" in row and not named:
            raise DataError(f"{where}: the split is empty.")
        if disjoint_classes and named:
            raise DataError(f"{where}: splits by class need a table without splits. Received: {named!r}.")
        part = split or (split_name(named) if named else hash_split(name))
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
        classes = {str(kind) for _, kind in facts.values()}
        by_class = dealt(classes, shares(len(classes), 0.1, 0.1))
        facts = {name: (by_class[str(kind)], kind) for name, (_, kind) in facts.items()}
    folders = image_folders(images, table.parent, table.parent / "images")
    below = [name for name in captions if not scheme(name)]
    folder = find_images(below, folders) if below else folders[0]
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
    given = {"split": split, "disjoint_classes": disjoint_classes, "uris": uris}
    options = {name: value for name, value in given.items() if value}
    return Source("table", path.resolve().name, records, (table,), options)


def _text(where: str, column: str, value: Any) -> str | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if not isinstance(value, str):
        raise DataError(f"{where}: the {column} is not text. Received: {value!r}.")
    return value.strip()


def read_rows(
    path: Path,
    columns: Mapping[str, Sequence[str]],
    required: Sequence[str],
    *,
    weak: Collection[str] = (),
    desc: str | None = None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Reads the rows of a file.

    Args:
        path: `.jsonl`, or a table whose first line names the columns, `.csv` with quoting or tab-separated without.
        columns: our columns -> the names, in lower case, that are understood.
        required: those of our columns that there must be.
        weak: names that count only where no other name of the column is there.
        desc: what the progress bar says, before the file's name; None for no bar.

    Yields:
        where a row stands, for messages, and {our column: value} of the columns that are there.

    Raises:
        DataError: naming the line, if it is malformed or lacks a column.
    """
    lines = numbered_lines(path, desc)
    if path.suffix.lower() in (".jsonl", ".json"):
        for where, line in lines:
            if line.strip():
                row = _object(where, line)
                yield (
                    where,
                    {ours: row[name] for ours, name in _named(where, list(row), columns, required, weak).items()},
                )
        return
    rows = ((where, cells) for where, cells in _cells(path, lines) if any(cell.strip() for cell in cells))
    where, header = next(rows, ("", []))
    if not header:
        raise DataError(f"{path} is empty.")
    places = {ours: header.index(name) for ours, name in _named(where, header, columns, required, weak).items()}
    for where, cells in rows:
        if len(cells) != len(header):
            raise DataError(
                f"{where}: {len(cells)} columns instead of {len(header)}. Put text with commas in quotation marks "
                "(.csv), and have no tabs in text (.tsv)."
            )
        yield where, {ours: cells[place] for ours, place in places.items()}


def _object(where: str, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({error}).") from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected a JSON object. Received: {line[:60]!r}.")
    return row


def _cells(path: Path, lines: Iterator[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    first = next(lines, ("", ""))
    lines = itertools.chain([first], lines)
    delimiter = _DELIMITERS.get(path.suffix.lower()) or ("\t" if "\t" in first[1] else ",")
    if delimiter == "\t":
        # Tables with tabs are written without quoting; a quotation mark in them is just that.
        yield from ((where, line.split(delimiter)) for where, line in lines)
        return
    reader = csv.reader((f"{line}\n" for _, line in lines), strict=True)
    try:
        for cells in reader:
            yield f"{path}, line {reader.line_num}", cells
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}.") from error


def _named(
    where: str,
    header: Sequence[str],
    columns: Mapping[str, Sequence[str]],
    required: Sequence[str],
    weak: Collection[str],
) -> dict[str, str]:
    """Returns our column names -> the header's."""
    named: dict[str, str] = {}
    for ours, names in columns.items():
        found = [theirs for theirs in header if theirs.strip().lower() in names]
        found = [theirs for theirs in found if theirs.strip().lower() not in weak] or found
        if len(found) > 1:
            raise DataError(f"{where}: several columns could be the {ours}: {', '.join(found)}.")
        if found:
            named[ours] = found[0]
    if missing := [ours for ours in required if ours not in named]:
        raise DataError(
            f"{where}: no column {' and no column '.join(missing)}. Received: {', '.join(header)[:120]}. "
            f"Expected: names such as {', '.join(columns[missing[0]])}."
        )
    return named

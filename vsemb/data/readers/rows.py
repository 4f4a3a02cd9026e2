"""Rows of JSON lines and of CSV or TSV tables, by the names of their columns, read a line at a time."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vsemb.data.readers.source import numbered_lines
from vsemb.errors import DataError

_DELIMITERS = {".csv": ",", ".tsv": "\t"}


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

"""A CSV, TSV or JSON-lines table of (file, caption[, split, class]); one row per caption."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsemb.data.readers import Reader
from vsemb.data.readers.hash_splits import dealt, hash_split, shares
from vsemb.data.readers.source import (
    STRICT,
    BadRows,
    Source,
    below,
    check_text,
    file_name,
    find_images,
    image_folders,
    image_path,
    json_object,
    numbered_lines,
    row_class,
    row_split,
    the_file,
)
from vsemb.data.records import ImageRecord
from vsemb.data.uris import RemoteFolder, located, scheme
from vsemb.errors import DataError, invalid_argument
from vsemb.unicode import has_surrogate

# Names that count only if the header has no other name of the same column.
WEAK = ("description", "descriptions", "title", "url")
COLUMNS = {
    "file": ("file", "file_name", "filename", "filepath", "image", "image_name", "image_path", "path", "url"),
    "caption": ("caption", "captions", "text", "sentence", "comment", "description", "descriptions", "title"),
    "split": ("split",),
    "class": ("class", "class_name", "label"),
}
# Columns caption_0, caption_1 and so on hold captions of one image.
NUMBERED = re.compile(r"_?\d+$")
_RENAME = "Rename the columns."
_NAME = "Name the columns by `file_column` and `caption_column`, or rename them."
_SUFFIXES = (".csv", ".tsv", ".jsonl")
_DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
# A field quoted as in CSV that contains escaped quotation marks.
_ESCAPED = re.compile(r'(?:^|\t)"(?:[^"]|"")*""(?:[^"]|"")*"(?:\t|$)')


def _tables(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in _SUFFIXES)


@dataclass(frozen=True)
class Table(Reader, kind="table"):
    """A CSV, TSV or JSON-lines table with one row per caption, or a folder that holds exactly one.

    The header names the columns: file (or filepath, image, url), caption (or text, title, description)[, split, class].
    Columns are separated by commas, tabs, semicolons or bars. Several rows with the same file are several captions of
    it. In JSON lines a caption may also be a list. Without a column `split`, a hash of the file name selects the
    split: 80 % train, 10 % val, 10 % test.

    Attributes:
        images: folder that file names are relative to, a path or URI; default: the table's folder, or `images/` in it.
            Absolute paths below it are allowed.
        split: put all images into this split; default: the column `split`, else a hash of the file name.
        disjoint_classes: make splits that share no class, by a hash of the classes.
        uris: allow URIs as file names: https://, file://, and gs:// or s3:// with the extra `beam`. The author of the
            table then decides which addresses are requested.
        file_column: column with file names; default: the one with a usual name.
        caption_column: column with captions; default: the one with a usual name.
    """

    images: str | os.PathLike[str] | None = None
    split: str | None = None
    disjoint_classes: bool = False
    uris: bool = False
    file_column: str | None = None
    caption_column: str | None = None

    def check(self) -> None:
        if self.disjoint_classes and self.split is not None:
            raise invalid_argument("split", self.split, "omitted with disjoint_classes, which makes three splits")

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        return bool(_tables(path)) if path.is_dir() else path.suffix.lower() in _SUFFIXES

    def read(self, source: str | os.PathLike[str]) -> Source:
        table = the_file(source, _tables, "tables .csv, .tsv or .jsonl")
        folders = image_folders(self.images, table.parent, table.parent / "images")
        captions: dict[str, list[str]] = {}
        facts: dict[str, tuple[str, str | None]] = {}
        bad = BadRows()

        def add(where: str, row: dict[str, Any]) -> None:
            name = _text(where, "file name", row.get("file"))
            if name is None:
                raise DataError(f"{where}: the file name is empty.")
            texts = row.get("caption")
            if not isinstance(texts, list):
                texts = ["" if texts is None else texts]
            for text in texts:
                check_text(where, "caption", text)
            if not scheme(name):
                name = _relative(where, file_name(name, folders), folders)
            split = self.split or row_split(where, row)
            if self.disjoint_classes and split:
                raise DataError(f"{where}: splits by class need a table without splits; got {split!r}.")
            class_name = row_class(where, row)
            if self.disjoint_classes and class_name is None:
                raise DataError(f"{where}: {name} has no class, which splits by class need in a column `class`.")
            fact = (split or hash_split(name), class_name)
            if facts.setdefault(name, fact) != fact:
                raise DataError(f"{where}: {name} has split and class {fact}, and {facts[name]} in an earlier row.")
            captions.setdefault(name, []).extend(texts)

        named = {"file": self.file_column, "caption": self.caption_column}
        columns = COLUMNS | {ours: (name.strip().lower(),) for ours, name in named.items() if name is not None}
        for where, row in read_rows(table, columns, ("file", "caption"), weak=WEAK, bad=bad, fix=_NAME):
            name = str(row.get("file")).strip()
            if scheme(name) and not self.uris:
                # Raised outside `with bad`: one URI rejects the whole table.
                raise DataError(f"{where}: {name!r} is a URI. If the table may name any, allow it with `uris`.")
            with bad:
                add(where, row)
        bad.require(table, captions)
        if self.disjoint_classes:
            classes = {str(class_name) for _, class_name in facts.values()}
            by_class = dealt(classes, shares(len(classes), 0.1, 0.1))
            facts = {name: (by_class[str(class_name)], class_name) for name, (_, class_name) in facts.items()}
        local = [name for name in captions if not scheme(name)]
        folder = find_images(local, folders) if local else folders[0]
        records = []
        for name, texts in captions.items():
            split, class_name = facts[name]
            image = located(name) if scheme(name) else image_path(folder, name)
            records.append(ImageRecord(name, tuple(texts), split, image, class_name))
        options: dict[str, Any] = {"split": self.split, "disjoint_classes": self.disjoint_classes, "uris": self.uris}
        options |= {"file_column": self.file_column, "caption_column": self.caption_column}
        options = {name: value for name, value in options.items() if value}
        notes = _layout(table).notes
        return Source("table", Path(source).resolve().name, records, (table,), options, notes, tuple(bad))


def _relative(where: str, name: str, folders: Sequence[Path | RemoteFolder]) -> str:
    """Return an image's name relative to the folder that contains it."""
    for folder in folders:
        relative = below(folder, name)
        if relative is not None:
            return relative
    allowed = "; ".join(map(str, folders))
    raise DataError(f"{where}: the image must lie below the images folder ({allowed}); got {name!r}.")


def _text(where: str, column: str, value: Any) -> str | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if not isinstance(value, str):
        raise DataError(f"{where}: the {column} must be text; got {value!r}.")
    return value.strip()


def read_rows(
    path: Path,
    columns: Mapping[str, Sequence[str]],
    required: Sequence[str],
    *,
    weak: Collection[str] = (),
    desc: str | None = None,
    bad: AbstractContextManager[None] = STRICT,
    fix: str = _RENAME,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read the rows of a file.

    Args:
        path: `.jsonl`, or a table whose first line names the columns. Columns are separated by commas, semicolons or
            bars with quoting as in CSV, or by tabs. A table with tabs has quoting only if it has quoted fields.
        columns: our columns -> their accepted names, in lower case.
        required: our columns that the file must have.
        weak: names that count only if the header has no other name of the same column.
        desc: label of the progress bar, before the file's name; None for no bar.
        bad: `BadRows` to record malformed rows, which are then left out. By default, the first such row is an error.
        fix: what to do about a header that does not fit, a sentence for errors.

    Yields:
        File and line of a row, for error messages, and {our column: value} of the columns in the file.

    Raises:
        DataError: if the first line lacks a required column, or a row is malformed; the message names the line.
    """
    lines = numbered_lines(path, desc, bad)
    if path.suffix.lower() in (".jsonl", ".json"):
        for where, line in lines:
            if line.strip():
                with bad:
                    row = _object(where, line)
                    named = named_columns(where, list(row), columns, required, weak, fix)
                    yield where, {ours: row[name] for ours, name in named.items()}
        return
    rows = _cells(path, lines, bad)
    where, header = next(rows, ("", []))
    if not header:
        raise DataError(f"{path} is empty.")
    named = named_columns(where, header, columns, required, weak, fix)
    places = {ours: header.index(name) for ours, name in named.items()}
    for where, cells in rows:
        with bad:
            if len(cells) != len(header):
                fix = "Put text with the separator in quotation marks."
                raise DataError(f"{where}: the row must have {len(header)} columns; got {len(cells)}. {fix}")
            yield where, {ours: cells[place] for ours, place in places.items()}


def _object(where: str, line: str) -> dict[str, Any]:
    row = json_object(where, line)
    if "\\u" in line and has_surrogate(json.dumps(row, ensure_ascii=False)):
        raise DataError(f"{where}: the text must be valid Unicode, without lone surrogates; got {line[:60]!r}.")
    return row


@dataclass(frozen=True)
class _Layout:
    """How the columns of a table are separated.

    Attributes:
        delimiter: the character between columns.
        quoted: whether fields may be quoted as in CSV.
        notes: a line to report if the layout is unusual for the file's ending.
    """

    delimiter: str
    quoted: bool
    notes: tuple[str, ...] = ()


def _layout(path: Path) -> _Layout:
    """Infer the layout of a table from its header and quotation marks."""
    if path.suffix.lower() in (".jsonl", ".json"):
        return _Layout("", quoted=False)
    header = next((line for _, line in numbered_lines(path)), "")
    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    # max() returns the first of equals, so the usual delimiter wins a tie.
    delimiter = max((usual, *_DELIMITERS), key=header.count)
    # Most tables with tabs have no quoting, so that a quotation mark is text. A quoted table is recognized by quoted
    # column names, or by an escaped mark in a quoted field.
    quoted = delimiter != "\t" or header.startswith('"')
    lines = numbered_lines(path, bad=BadRows())
    quoted = quoted or any('""' in line and _ESCAPED.search(line) is not None for _, line in lines)
    if (delimiter, quoted) == (usual, usual == ","):
        return _Layout(delimiter, quoted)
    how = "quoted fields" if quoted else "no quoting"
    return _Layout(delimiter, quoted, (f"{path.name}: columns separated by {_DELIMITERS[delimiter]}, {how}.",))


def _cells(
    path: Path, lines: Iterator[tuple[str, str]], bad: AbstractContextManager[None]
) -> Iterator[tuple[str, list[str]]]:
    """Yield the cells of each row that is not blank, after its file and line."""
    layout = _layout(path)
    if not layout.quoted:
        for where, line in lines:
            cells = line.split(layout.delimiter)
            if any(map(str.strip, cells)):
                yield where, cells
        return
    reader = csv.reader((f"{line}\n" for _, line in lines), strict=True, delimiter=layout.delimiter)
    while True:
        first = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            # The reader continues with the next line. An unclosed quotation mark may have consumed many lines.
            last = f" to {reader.line_num}" if reader.line_num > first else ""
            with bad:
                raise DataError(f"{path}, line {first}{last}: {error}.") from error
        else:
            if any(map(str.strip, cells)):
                yield f"{path}, line {first}", cells


def named_columns(
    where: str,
    header: Sequence[str],
    columns: Mapping[str, Sequence[str]],
    required: Sequence[str],
    weak: Collection[str] = (),
    fix: str = _RENAME,
) -> dict[str, str]:
    """Map our column names to names of the header.

    Raises:
        DataError: if a required column is missing, or several names fit one column.
    """
    named: dict[str, str] = {}
    for ours, names in columns.items():
        matches = [name for name in header if name.strip().lower() in names]
        matches = [name for name in matches if name.strip().lower() not in weak] or matches
        if len(matches) > 1:
            raise DataError(f"{where}: several columns could be the {ours}: {', '.join(matches)}. {fix}")
        if matches:
            named[ours] = matches[0]
    missing = [ours for ours in required if ours not in named]
    if missing:
        understood = "; ".join(f"{', '.join(columns[ours])} for {ours}" for ours in missing)
        raise DataError(
            f"{where}: no column {' and no column '.join(missing)}; got {', '.join(header)[:120]}. "
            f"{fix} Names that are understood: {understood}."
        )
    return named

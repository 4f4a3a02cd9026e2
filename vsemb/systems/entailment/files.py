"""The files of sentence pairs: JSON lines and tab-separated tables, read a line at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from vsemb.errors import DataError

#: The classes; a pair's label is its place here.
CLASSES = ("entailment", "neutral", "contradiction")

#: Our columns -> the names, in lower case, that are understood: plain ones, SNLI's and SICK's.
COLUMNS = {
    "premise": ("premise", "sentence1", "sentence_a"),
    "hypothesis": ("hypothesis", "sentence2", "sentence_b"),
    "label": ("label", "gold_label", "entailment_label", "entailment_judgment"),
    "split": ("split", "semeval_set"),
}
SPLITS = ("train", "val", "test")
EXPECTED = (
    "a folder with snli_1.0_train, _dev and _test (.jsonl, .txt or .tsv), a SICK.txt, or a .jsonl or "
    "tab-separated file with premise, hypothesis and label"
)

_LABELS = {name: number for number, name in enumerate(CLASSES)} | {"0": 0, "1": 1, "2": 2}
# SNLI's mark of a pair on which the annotators did not agree, and what it becomes where labels are numbers.
_NO_LABEL = ("-", "-1")
_SPLIT_NAMES = {name: name for name in SPLITS} | dict.fromkeys(("dev", "valid", "validation", "trial"), "val")
# Where a split is there in several formats, as in SNLI's archive, the first of these is read.
_SUFFIXES = (".jsonl", ".tsv", ".txt")

Row = Mapping[str, Any]


def find_files(path: Path) -> dict[str, Path]:
    """Finds the files of a source.

    Args:
        path: a folder or a file.

    Returns:
        split -> its file; or "" -> the one file with everything.

    Raises:
        DataError: if there are none, or it is not clear which are meant.
    """
    if not path.exists():
        raise DataError(f"No sentence pairs at {path}: there is no such file or folder.")
    if not path.is_dir():
        if path.suffix.lower() not in _SUFFIXES:
            raise DataError(f"{path} is no file of sentence pairs. Expected: {EXPECTED}.")
        return {"": path}
    files = [file for file in sorted(path.iterdir()) if file.suffix.lower() in _SUFFIXES and file.is_file()]
    tables = [file for file in files if not re.match(r"\.|readme", file.name.lower())]
    found: dict[str, Path] = {}
    for file in sorted(tables, key=lambda file: _SUFFIXES.index(file.suffix.lower())):
        split = _split_of(file)
        if split is None:
            continue
        other = found.setdefault(split, file)
        if other != file and other.suffix.lower() == file.suffix.lower():
            raise DataError(f"{path} holds two files of the split {split!r}: {other.name}, {file.name}.")
    if found:
        return {split: found[split] for split in SPLITS if split in found}
    if len(tables) == 1:
        return {"": tables[0]}
    raise DataError(f"{path} holds no sentence pairs, or several files of them. Expected: {EXPECTED}.")


def _split_of(file: Path) -> str | None:
    """Returns the split that a file's name names: snli_1.0_dev.jsonl, SICK_trial.txt."""
    named = {_SPLIT_NAMES[word] for word in re.split(r"[\W_]+", file.stem.lower()) if word in _SPLIT_NAMES}
    return named.pop() if len(named) == 1 else None


def read_rows(file: Path, desc: str | None = None) -> Iterator[tuple[str, Row]]:
    """Reads a file's rows, one at a time.

    Args:
        file: `.jsonl`, or tab-separated with a header and without quoting.
        desc: what the progress bar says, before the file's name; None for no bar.

    Yields:
        where it stands, for messages, and {our column: value}; `split` only where the file has it.

    Raises:
        DataError: naming the line, if it is malformed or lacks a column.
    """
    lines = _lines(file, desc)
    return _json_rows(lines) if file.suffix.lower() == ".jsonl" else _table_rows(file, lines)


def _lines(file: Path, desc: str | None) -> Iterator[tuple[str, str]]:
    try:
        total = file.stat().st_size
        with (
            open(file, "rb") as opened,
            tqdm(
                total=total,
                desc=f"{desc}, {file.name}",
                unit="B",
                unit_scale=True,
                leave=False,
                disable=None if desc else True,
            ) as bar,
        ):
            # Only line feeds end a line: sentences may hold what `str.splitlines` breaks at.
            for number, raw in enumerate(opened, 1):
                where = f"{file}, line {number}"
                try:
                    text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise DataError(f"{where}: not UTF-8 text. Convert the file to UTF-8.") from error
                bar.update(len(raw))
                if text.strip():
                    yield where, text.rstrip("\r\n")
    except OSError as error:
        raise DataError(f"Cannot read {file}: {error.strerror or error}.") from error


def _json_rows(lines: Iterator[tuple[str, str]]) -> Iterator[tuple[str, Row]]:
    for where, line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: not JSON ({error}).") from error
        if not isinstance(row, dict):
            raise DataError(f"{where}: expected a JSON object. Received: {line[:60]!r}.")
        yield where, {ours: row[theirs] for ours, theirs in _columns(where, list(row)).items()}


def _table_rows(file: Path, lines: Iterator[tuple[str, str]]) -> Iterator[tuple[str, Row]]:
    where, first = next(lines, ("", ""))
    if not first:
        raise DataError(f"{file} is empty. Expected: {EXPECTED}.")
    header = first.split("\t")
    places = {ours: header.index(theirs) for ours, theirs in _columns(where, header).items()}
    for where, line in lines:
        cells = line.split("\t")
        if len(cells) != len(header):
            raise DataError(f"{where}: {len(cells)} columns, and {len(header)} in the first line.")
        yield where, {ours: cells[place] for ours, place in places.items()}


def _columns(where: str, header: Sequence[str]) -> dict[str, str]:
    """Returns our column names -> the header's."""
    columns: dict[str, str] = {}
    for ours, names in COLUMNS.items():
        found = [theirs for theirs in header if theirs.strip().lower() in names]
        if len(found) > 1:
            raise DataError(f"{where}: several columns could be the {ours}: {', '.join(found)}.")
        if found:
            columns[ours] = found[0]
    if missing := [ours for ours in ("premise", "hypothesis", "label") if ours not in columns]:
        raise DataError(
            f"{where}: no column {missing[0]}. Received: {', '.join(header)[:120]}. Expected: one of "
            f"{', '.join(COLUMNS[missing[0]])}."
        )
    return columns


def sentence(where: str, row: Row, side: str) -> str:
    """Returns the premise or the hypothesis of a row.

    Raises:
        DataError: if it is no text; one without words is a text.
    """
    text = row[side]
    if not isinstance(text, str):
        raise DataError(f"{where}: the {side} is no text. Received: {text!r}.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"{where}: the {side} is no Unicode text (half a surrogate pair).") from error
    return text


def label(where: str, row: Row) -> int | None:
    """Returns the number of a row's class; None where there is no gold label.

    Raises:
        DataError: for anything else.
    """
    given = row["label"]
    key = given.strip().lower() if isinstance(given, str) else str(given)
    if key in _LABELS:
        return _LABELS[key]
    if given is None or key in _NO_LABEL:
        return None
    raise DataError(
        f"{where}: unknown label. Received: {given!r}. Expected: {', '.join(CLASSES)}, 0, 1, 2, or - for none."
    )


def split_name(where: str, row: Row) -> str:
    """Returns the split of a row: train, val or test.

    Raises:
        DataError: for anything else.
    """
    given = row.get("split")
    name = given.strip().lower() if isinstance(given, str) else ""
    if name not in _SPLIT_NAMES:
        names = ", ".join(_SPLIT_NAMES)
        raise DataError(f"{where}: unknown split. Received: {given!r}. Expected: one of {names}.")
    return _SPLIT_NAMES[name]

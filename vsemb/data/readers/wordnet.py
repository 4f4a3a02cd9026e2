"""Noun concepts (synsets) of WordNet's database files (WNDB).

The manual page wndb(5WN) describes the format. Only `data.noun` is read. It is in the `dict/` folder of WordNet
releases, and in Debian's package `wordnet-base`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from vsemb.errors import DataError
from vsemb.files import read_bytes, reading

# Folders to try if none is given; the second is Debian's.
PLACES = ("$WNHOME/dict", "/usr/share/wordnet")

_HYPERNYMS = ("@", "@i")  # hypernym and instance hypernym
_POINTER_FIELDS = 4  # symbol, offset, part of speech, source/target


@dataclass(frozen=True)
class Synset:
    """A noun concept, parsed from its line in `data.noun`.

    Attributes:
        offset: eight digits, its identifier.
        words: its words, the most usual first, with underscores for spaces.
        hypernyms: offsets of its hypernyms and instance hypernyms.
        gloss: its definition and examples.
    """

    offset: str
    words: list[str]
    hypernyms: list[str]
    gloss: str


def find_wordnet(folder: str | os.PathLike[str] | None = None) -> Path:
    """Find the folder that holds `data.noun`.

    Args:
        folder: the folder; default: `$WNHOME/dict` or `/usr/share/wordnet`.

    Raises:
        DataError: if no folder holds the file.
    """
    if folder is not None:
        if not (Path(folder) / "data.noun").is_file():
            raise DataError(f"{folder} holds no data.noun. Expected: a WordNet database (dict) folder.")
        return Path(folder)
    for place in map(os.path.expandvars, PLACES):
        if "$" not in place and (Path(place) / "data.noun").is_file():
            return Path(place)
    raise DataError(
        f"No WordNet found in {' or '.join(PLACES)}. Install it (apt install wordnet-base), or name a "
        "folder that holds data.noun."
    )


class NounFile:
    """The lines of `data.noun` that hold synsets.

    Args:
        folder: a `dict/` folder.

    Attributes:
        path: the file.
        lines: number in the file, from 1 -> line.

    Raises:
        DataError: if the file is missing or unreadable.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / "data.noun"
        with reading(self.path):
            lines = read_bytes(self.path).split(b"\n")
        # The file begins with the licence, on lines that are indented by two spaces.
        self.lines = {n: line for n, line in enumerate(lines, 1) if line.strip() and not line.startswith(b"  ")}

    def synset(self, number: int) -> Synset:
        """Parse a line.

        Args:
            number: its number, from 1.

        Raises:
            DataError: if the line is malformed.
        """
        try:
            return _parsed(self.lines[number].decode("utf-8"))
        except (ValueError, IndexError) as error:
            reason = "it ends too early" if isinstance(error, IndexError) else error
            raise DataError(f"{self.path}, line {number} is not in WordNet's data format: {reason}.") from error


def _parsed(line: str) -> Synset:
    head, _, gloss = line.partition("|")
    fields = head.split()
    offset, part_of_speech, words = fields[0], fields[2], int(fields[3], 16)
    if len(offset) != 8 or not offset.isdecimal():
        raise ValueError(f"{offset!r} is not an offset of eight digits")
    if part_of_speech != "n":
        raise ValueError(f"expected a noun (n), received {part_of_speech!r}")
    if words < 1:
        raise ValueError("a concept without a word")
    first = 4 + 2 * words
    stated, rest = int(fields[first]), fields[first + 1 :]
    if len(rest) != stated * _POINTER_FIELDS:
        raise ValueError(f"{stated} pointers announced, {len(rest)} fields of {_POINTER_FIELDS} a pointer follow")
    hypernyms = []
    for start in range(0, len(rest), _POINTER_FIELDS):
        symbol, target, target_type = rest[start : start + 3]
        if symbol in _HYPERNYMS and target_type == "n":
            hypernyms.append(target)
    return Synset(offset, fields[4:first:2], hypernyms, gloss.strip())

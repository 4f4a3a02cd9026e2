"""WordNet's own database files (WNDB): the noun concepts and which of them is a kind or instance of which.

The format is that of the manual page wndb(5WN). Only `data.noun` is read; Debian's package `wordnet-base`
brings it, and so does any `dict/` folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vsemb.errors import DataError

# Where to look when no folder is given; Debian's is the second.
PLACES = ("$WNHOME/dict", "/usr/share/wordnet")

_HYPERNYMS = ("@", "@i")  # hypernym and instance hypernym
_QUOTED = re.compile(r'"([^"]*)"')
_POINTER_FIELDS = 4  # symbol, offset, part of speech, source/target


@dataclass(frozen=True)
class WordNet:
    """The noun concepts (synsets) of a WordNet and its direct hypernym edges.

    Attributes:
        names: of the concepts, printable and distinct, in the order of the file: the first word, "n" for
            noun and the synset's offset, e.g. "dog.n.02084071". A concept's number is its place here.
        edges: (edges, 2) int32, distinct rows (hyponym, hypernym) of concept numbers, sorted; instances
            ("New York" of "city") are hyponyms too.
    """

    names: list[str]
    edges: np.ndarray

    def words(self) -> list[str]:
        """Returns each concept's first word alone, e.g. "dog"; two concepts may share it."""
        return [name.rsplit(".", 2)[0] for name in self.names]


@dataclass(frozen=True)
class Concept:
    """A noun concept as its dictionary entry has it.

    Attributes:
        words: its words, the usual one first, with spaces between the parts of a word.
        definition: its gloss without the examples.
        examples: sentences or phrases that use it.
        hypernyms: the offsets of what it is a kind or instance of.
    """

    words: tuple[str, ...]
    definition: str
    examples: tuple[str, ...]
    hypernyms: tuple[str, ...]


def find_wordnet(folder: str | os.PathLike[str] | None = None) -> Path:
    """Finds the folder that holds `data.noun`.

    Args:
        folder: where it is; without it, `$WNHOME/dict` and `/usr/share/wordnet` are tried.

    Raises:
        DataError: if it is not there.
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


def read_wordnet(folder: str | os.PathLike[str]) -> WordNet:
    """Reads the nouns of a WordNet database.

    Args:
        folder: a `dict/` folder; only its `data.noun` is read.

    Raises:
        DataError: if the file is missing, empty or unreadable, a line is not in the format, two concepts
            have one offset, a pointer leads to no concept, or the hypernyms go in a circle.
    """
    path = Path(folder) / "data.noun"
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.") from error
    numbers: dict[str, int] = {}
    names: list[str] = []
    pointers: list[tuple[int, int, str]] = []  # line, hyponym, offset of the hypernym
    for number, line in enumerate(lines, start=1):
        # The licence stands at the head of the file, its lines indented by two spaces.
        if not line.strip() or line.startswith(b"  "):
            continue
        try:
            offset, word, hypernyms = _concept(line.decode("utf-8"))
        except (ValueError, IndexError) as error:
            reason = "it ends too early" if isinstance(error, IndexError) else error
            raise DataError(f"{path}, line {number} is not in WordNet's data format: {reason}.") from error
        if offset in numbers:
            raise DataError(f"{path}, line {number}: the offset {offset} stands there a second time.")
        numbers[offset] = len(names)
        pointers += [(number, len(names), hypernym) for hypernym in hypernyms]
        names.append(f"{word}.n.{offset}")
    if not names:
        raise DataError(f"{path} holds no concepts.")
    edges = np.empty((len(pointers), 2), np.int32)
    for row, (number, hyponym, offset) in enumerate(pointers):
        if offset not in numbers:
            raise DataError(f"{path}, line {number} points to {offset}, where no concept is.")
        edges[row] = hyponym, numbers[offset]
    edges = np.unique(edges, axis=0)
    if (circle := _first_in_circle(edges, len(names))) is not None:
        raise DataError(f"{path}: the hypernyms of {names[circle]} go in a circle.")
    return WordNet(names, edges)


def read_concepts(folder: str | os.PathLike[str], offsets: Iterable[str]) -> dict[str, Concept]:
    """Reads words and glosses of some noun concepts and of all that they are a kind or instance of.

    Args:
        folder: a `dict/` folder; only its `data.noun` is read.
        offsets: the concepts, each by its eight digits; ImageNet's ids are those of WordNet 3.0 behind an n.

    Returns:
        offset -> concept, the ancestors included.

    Raises:
        DataError: if the file is missing or unreadable, it has no concept at an offset, or the line of one is
            not in the format.

    Example:

    ```python
    read_concepts("/usr/share/wordnet", ["01443537"])["01443537"].words  # ("goldfish", "Carassius auratus")
    ```
    """
    path = Path(folder) / "data.noun"
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.") from error
    places = {line[:8]: place for place, line in enumerate(lines) if not line.startswith(b" ")}
    found: dict[str, Concept] = {}
    waiting = list(dict.fromkeys(offsets))
    while waiting:
        offset = waiting.pop()
        place = places.get(offset.encode("utf-8"))
        if place is None or not offset:
            raise DataError(
                f"{path} has no concept at {offset!r}. ImageNet's ids are those of WordNet 3.0; "
                "other versions have other offsets."
            )
        try:
            found[offset] = concept = _described(lines[place].decode("utf-8"))
        except (ValueError, IndexError) as error:
            reason = "it ends too early" if isinstance(error, IndexError) else error
            raise DataError(f"{path}, line {place + 1} is not in WordNet's data format: {reason}.") from error
        waiting += [above for above in concept.hypernyms if above not in found]
    return found


def _described(line: str) -> Concept:
    _, _, hypernyms = _concept(line)
    head, _, gloss = line.partition("|")
    fields = head.split()
    words = tuple(word.replace("_", " ") for word in fields[4 : 4 + 2 * int(fields[3], 16) : 2])
    # definition; "example"; "example" - a definition may itself hold semicolons and quotation marks.
    definition, _, examples = gloss.strip().partition('; "')
    return Concept(
        words=tuple(dict.fromkeys(words)),
        definition=definition.rstrip("; "),
        examples=tuple(text for text in map(str.strip, _QUOTED.findall(f'"{examples}')) if text),
        hypernyms=tuple(dict.fromkeys(hypernyms)),
    )


def _concept(line: str) -> tuple[str, str, list[str]]:
    """Returns the offset, first word and hypernyms' offsets that a line states; ValueError if it cannot."""
    fields = line.partition("|")[0].split()
    offset, kind, words = fields[0], fields[2], int(fields[3], 16)
    if len(offset) != 8 or not offset.isdecimal():
        raise ValueError(f"{offset!r} is no offset of eight digits")
    if kind != "n":
        raise ValueError(f"expected a noun (n), received {kind!r}")
    if words < 1:
        raise ValueError("a concept without a word")
    first = 4 + 2 * words
    stated, rest = int(fields[first]), fields[first + 1 :]
    if len(rest) != stated * _POINTER_FIELDS:
        raise ValueError(f"{stated} pointers announced, {len(rest)} fields of {_POINTER_FIELDS} a pointer follow")
    hypernyms = [
        rest[start + 1]
        for start in range(0, len(rest), _POINTER_FIELDS)
        if rest[start] in _HYPERNYMS and rest[start + 2] == "n"
    ]
    return offset, fields[4], hypernyms


def _first_in_circle(edges: np.ndarray, concepts: int) -> int | None:
    """Returns a concept from which hypernyms lead in a circle, if there is one."""
    # Takes away, again and again, the edges to concepts that have no hypernyms left.
    while len(edges):
        open_ended = np.bincount(edges[:, 0], minlength=concepts) > 0
        kept = edges[open_ended[edges[:, 1]]]
        if len(kept) == len(edges):
            return int(edges[0, 0])
        edges = kept
    return None


def transitive_closure(edges: np.ndarray, *, paths: bool = False) -> np.ndarray:
    """Returns every (concept, ancestor), by any number of edges from one up.

    With `paths` there is a row for every path, so that an ancestor that is reached on two ways stands there
    twice. WordNet 3.0 has 743,241 pairs and 837,888 paths; the 838,073 edges of Vendrov et al. 2016, section
    3.2, are paths, and so one of their test edges in five stands among their training edges.

    Args:
        edges: (edges, 2) int (hyponym, hypernym), distinct rows.
        paths: whether to count paths instead of pairs. Their number can grow exponentially with depth.

    Returns:
        (pairs, 2) int32, sorted.

    Raises:
        DataError: if the edges go in a circle.

    Example: a dog is an animal as a canine and as a pet.

    >>> edges = np.array([[0, 1], [0, 2], [1, 3], [2, 3]])
    >>> transitive_closure(edges).tolist()
    [[0, 1], [0, 2], [0, 3], [1, 3], [2, 3]]
    >>> len(transitive_closure(edges, paths=True))
    6
    """
    if not len(edges):
        return np.empty((0, 2), np.int32)
    concepts = int(edges.max()) + 1
    if (circle := _first_in_circle(edges, concepts)) is not None:
        raise DataError(f"The hypernyms go in a circle, through concept {circle}.")
    order = np.argsort(edges[:, 0], kind="stable")
    above = edges[order, 1].astype(np.int64)
    count = np.bincount(edges[:, 0], minlength=concepts)
    begin = np.cumsum(count) - count
    # Pairs as one number each, of the paths of one length; then those longer by an edge.
    newest = edges[:, 0].astype(np.int64) * concepts + edges[:, 1]
    found = [newest]
    while len(newest):
        low, high = newest // concepts, newest % concepts
        ways = count[high]
        place = np.arange(ways.sum()) - np.repeat(np.cumsum(ways) - ways, ways)
        newest = np.repeat(low, ways) * concepts + above[np.repeat(begin[high], ways) + place]
        if not paths:
            newest = np.unique(newest)
        found.append(newest)
    keys = np.sort(np.concatenate(found)) if paths else np.unique(np.concatenate(found))
    return np.stack([keys // concepts, keys % concepts], axis=1).astype(np.int32)

"""WordNet's hierarchy: the noun concepts, and which of them is a kind or instance of which."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from vsemb.data.readers.wordnet import NounFile
from vsemb.errors import DataError


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


def read_wordnet(folder: str | os.PathLike[str]) -> WordNet:
    """Reads the nouns of a WordNet database.

    Args:
        folder: a `dict/` folder; only its `data.noun` is read.

    Raises:
        DataError: if the file is missing, empty or unreadable, a line is not in the format, two concepts
            have one offset, a pointer leads to no concept, or the hypernyms go in a circle.
    """
    file = NounFile(folder)
    numbers: dict[str, int] = {}
    names: list[str] = []
    pointers: list[tuple[int, int, str]] = []  # line, hyponym, offset of the hypernym
    for line in file.lines:
        synset = file.synset(line)
        if synset.offset in numbers:
            raise DataError(f"{file.path}, line {line}: the offset {synset.offset} stands there a second time.")
        pointers += [(line, len(names), hypernym) for hypernym in synset.hypernyms]
        numbers[synset.offset] = len(names)
        names.append(f"{synset.words[0]}.n.{synset.offset}")
    if not names:
        raise DataError(f"{file.path} holds no concepts.")
    for line, _, offset in pointers:
        if offset not in numbers:
            raise DataError(f"{file.path}, line {line} points to {offset}, where no concept is.")
    edges = np.array([(hyponym, numbers[offset]) for _, hyponym, offset in pointers], np.int32).reshape(-1, 2)
    edges = np.unique(edges, axis=0)
    if (circle := _first_in_circle(edges, len(names))) is not None:
        raise DataError(f"{file.path}: the hypernyms of {names[circle]} go in a circle.")
    return WordNet(names, edges)


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

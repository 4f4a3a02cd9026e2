"""WordNet's hierarchy: noun concepts and their hypernyms, pairs, splits and corrupted pairs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vsemb.data.readers.source import BadRows, listed
from vsemb.data.readers.wordnet import NounFile
from vsemb.errors import DataError, invalid_argument


@dataclass(frozen=True)
class WordNet:
    """The noun concepts (synsets) of a WordNet and its direct hypernym edges.

    Attributes:
        names: names of the concepts, printable and distinct, in file order: first word, "n" for noun and offset of the
            synset, e.g. "dog.n.02084071". A concept's number is its index.
        edges: (edges, 2) int32, distinct rows (hyponym, hypernym) of concept numbers, sorted. Instances ("New York" of
            "city") are hyponyms too.
    """

    names: list[str]
    edges: np.ndarray

    def words(self) -> list[str]:
        """Return the first word of each concept, e.g. "dog"; words may repeat."""
        return [name.rsplit(".", 2)[0] for name in self.names]


def read_wordnet(folder: str | os.PathLike[str], report: Callable[[str], None] | None = None) -> WordNet:
    """Read the nouns of a WordNet database.

    Args:
        folder: a `dict/` folder with `data.noun`.
        report: called with the reason for each part that is left out: a malformed line, a line with a repeated offset,
            or a pointer to an unknown offset. By default, these are errors.

    Raises:
        DataError: if the file is missing, empty or unreadable, the hypernyms have a cycle, or a line cannot be used and
            `report` is None. All such lines are named.
    """
    file = NounFile(folder)
    numbers: dict[str, int] = {}
    names: list[str] = []
    pointers: list[tuple[int, int, str]] = []  # line, hyponym, offset of the hypernym
    bad = BadRows()
    for line in file.lines:
        with bad:
            synset, where = file.synset(line), f"{file.path}, line {line}"
            if synset.offset in numbers:
                raise DataError(f"{where}: offsets must be distinct; got {synset.offset} a second time.")
            pointers += [(line, len(names), hypernym) for hypernym in synset.hypernyms]
            numbers[synset.offset] = len(names)
            names.append(f"{synset.words[0]}.n.{synset.offset}")
    if bad and report is None:
        raise DataError(listed(bad))
    if not names:
        raise DataError(f"{file.path} must contain concepts; got 0.")
    pairs = []
    for line, hyponym, offset in pointers:
        with bad:
            if offset not in numbers:
                raise DataError(f"{file.path}, line {line}: a pointer must be the offset of a concept; got {offset}.")
            pairs.append((hyponym, numbers[offset]))
    if bad and report is None:
        raise DataError(listed(bad))
    if report is not None:
        for reason in bad:
            report(f"left out: {reason}")
    edges = np.unique(np.array(pairs, np.int32).reshape(-1, 2), axis=0)
    circle = _first_in_circle(edges, len(names))
    if circle is not None:
        raise DataError(f"{file.path}: hypernyms must have no cycle; got one above {names[circle]}.")
    return WordNet(names, edges)


def _first_in_circle(edges: np.ndarray, concepts: int) -> int | None:
    """Return a concept whose hypernyms lead to a cycle, or None."""
    # Repeatedly removes the edges to concepts without hypernyms.
    while len(edges):
        open_ended = np.bincount(edges[:, 0], minlength=concepts) > 0
        kept = edges[open_ended[edges[:, 1]]]
        if len(kept) == len(edges):
            return int(edges[0, 0])
        edges = kept
    return None


def transitive_closure(edges: np.ndarray, *, paths: bool = False) -> np.ndarray:
    """Return every pair (concept, ancestor).

    With `paths`, an ancestor that is reached over two paths has two rows. WordNet 3.0 has 743,241 pairs and 837,888
    paths. The 838,073 edges of Vendrov et al. 2016, section 3.2, are paths, so 20 % of their test edges are also
    training edges.

    Args:
        edges: (edges, 2) int (hyponym, hypernym), distinct rows.
        paths: whether to count paths in place of pairs. Paths can grow exponentially with depth.

    Returns:
        (pairs, 2) int32, sorted.

    Raises:
        DataError: if the edges have a cycle.

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
    circle = _first_in_circle(edges, concepts)
    if circle is not None:
        raise DataError(f"Hypernyms must have no cycle; got one above concept {circle}.")
    order = np.argsort(edges[:, 0], kind="stable")
    above = edges[order, 1].astype(np.int64)
    count = np.bincount(edges[:, 0], minlength=concepts)
    begin = np.cumsum(count) - count
    # A pair is one number. The first paths have length 1; each round adds one edge.
    newest = edges[:, 0].astype(np.int64) * concepts + edges[:, 1]
    paths_by_length = [newest]
    while len(newest):
        low, high = newest // concepts, newest % concepts
        ways = count[high]
        place = np.arange(ways.sum()) - np.repeat(np.cumsum(ways) - ways, ways)
        newest = np.repeat(low, ways) * concepts + above[np.repeat(begin[high], ways) + place]
        if not paths:
            newest = np.unique(newest)
        paths_by_length.append(newest)
    keys = np.concatenate(paths_by_length)
    keys = np.sort(keys) if paths else np.unique(keys)
    return np.stack([keys // concepts, keys % concepts], axis=1).astype(np.int32)


# Draws per pair, after which it counts as a pair without a false version.
_ROUNDS = 1000


class PairSet:
    """A set of (specific, general) pairs with vectorized lookup.

    Args:
        pairs: (pairs, 2) int concept numbers; repeated rows count once.
        concepts: number of concepts.

    Raises:
        DataError: if a number is outside [0, concepts).

    Example:

    >>> known = PairSet(np.array([[0, 1], [1, 2]]), concepts=3)
    >>> known.contains(np.array([[1, 2], [2, 1]])).tolist()
    [True, False]
    """

    def __init__(self, pairs: np.ndarray, concepts: int) -> None:
        if len(pairs) and not (pairs.min() >= 0 and pairs.max() < concepts):
            raise DataError(
                f"Pairs must have concept numbers of 0 to {concepts - 1}; got {pairs.min()} to {pairs.max()}."
            )
        self.concepts = concepts
        self._keys = np.unique(self._key(pairs))

    def __len__(self) -> int:
        return len(self._keys)

    def _key(self, pairs: np.ndarray) -> np.ndarray:
        return pairs[:, 0].astype(np.int64) * self.concepts + pairs[:, 1]

    def contains(self, pairs: np.ndarray) -> np.ndarray:
        """Return whether each row of (pairs, 2) int is in the set: (pairs,) bool."""
        if not len(self._keys):
            return np.zeros(len(pairs), bool)
        keys = self._key(pairs)
        # Sorted searches access neighbouring memory, in a third of the time.
        order = np.argsort(keys)
        keys = keys[order]
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        result = np.empty(len(pairs), bool)
        result[order] = self._keys[place] == keys
        return result


@dataclass(frozen=True)
class PairSplit:
    """True pairs for training, development and test; each (pairs, 2) int32."""

    train: np.ndarray
    dev: np.ndarray
    test: np.ndarray


def split_pairs(pairs: np.ndarray, *, held_out: int = 4000, seed: int = 0) -> PairSplit:
    """Sample test and development rows (Vendrov et al. 2016, section 3.2).

    Args:
        pairs: (pairs, 2) int; repeated rows are sampled independently.
        held_out: rows of the test set and of the development set, each; default 4000.
        seed: seed of the sample; default 0.

    Raises:
        InvalidArgumentError: if `held_out` < 1, or the training set would be empty.
    """
    if not 1 <= held_out < len(pairs) / 2:
        raise invalid_argument("held_out", held_out, f"from 1 to less than half of {len(pairs)} pairs")
    order = np.random.default_rng(seed).permutation(len(pairs))
    test, dev, train = np.split(pairs[order], [held_out, 2 * held_out])
    return PairSplit(train, dev, test)


def corrupt(
    pairs: np.ndarray, concepts: int, generator: np.random.Generator, known: PairSet | None = None
) -> np.ndarray:
    """Replace one concept of each pair, the first or the second, with a random concept.

    Args:
        pairs: (pairs, 2) int true pairs.
        concepts: number of concepts.
        generator: samples which concept is replaced, and its replacement.
        known: true pairs. They, and pairs of a concept with itself, are never returned: both choices are sampled again,
            because replacing the first concept of a pair under "entity" always gives a true pair. None allows any
            pair, as in the paper.

    Returns:
        (pairs, 2) int32.

    Raises:
        DataError: if a pair has no false version after 1,000 draws.

    Example: of three concepts in a chain, the false pairs lead downwards.

    >>> chain = np.array([[0, 1], [0, 2], [1, 2]])
    >>> known = PairSet(chain, concepts=3)
    >>> false = corrupt(chain[:1], 3, np.random.default_rng(0), known)
    >>> bool(known.contains(false)[0])
    False
    """
    corrupted = np.array(pairs, np.int32)
    pending = np.arange(len(pairs))
    for _ in range(_ROUNDS):
        drawn = np.array(pairs[pending], np.int32)
        end = generator.integers(2, size=len(pending))
        drawn[np.arange(len(pending)), end] = generator.integers(concepts, size=len(pending), dtype=np.int32)
        corrupted[pending] = drawn
        if known is None:
            return corrupted
        pending = pending[(drawn[:, 0] == drawn[:, 1]) | known.contains(drawn)]
        if not len(pending):
            return corrupted
    low, high = pairs[pending[0]]
    raise DataError(f"Pair ({low}, {high}) must have a false version with one end replaced; got 0 in {_ROUNDS} draws.")


def labelled_pairs(
    pairs: np.ndarray, concepts: int, seed: int | Sequence[int], known: PairSet | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return true pairs, followed by the same number of corrupted pairs, and their labels.

    Args:
        pairs: (pairs, 2) int true pairs.
        concepts: number of concepts.
        seed: seed of the corruption, for `numpy.random.default_rng`.
        known: see `corrupt`.

    Returns:
        (2 * pairs, 2) int32 and (2 * pairs,) int8, 1 for a true pair.
    """
    false = corrupt(pairs, concepts, np.random.default_rng(seed), known)
    labels = np.repeat(np.array([1, 0], np.int8), len(pairs))
    return np.concatenate([pairs.astype(np.int32), false]), labels

"""Hypernym pairs for learning and evaluation: held-out splits and corrupted pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vsemb.errors import DataError, invalid_argument

# What is drawn again and again without finding a false pair has none, or next to none.
_ROUNDS = 1000


class PairSet:
    """A set of (specific, general) pairs that answers for many pairs at once.

    Args:
        pairs: (pairs, 2) int concept numbers; repeated rows count once.
        concepts: the number of concepts.

    Raises:
        DataError: for a number that is no concept's.

    Example:

    >>> known = PairSet(np.array([[0, 1], [1, 2]]), concepts=3)
    >>> known.contains(np.array([[1, 2], [2, 1]])).tolist()
    [True, False]
    """

    def __init__(self, pairs: np.ndarray, concepts: int) -> None:
        if len(pairs) and not (pairs.min() >= 0 and pairs.max() < concepts):
            raise DataError(f"The pairs name concepts outside of 0 to {concepts - 1}.")
        self.concepts = concepts
        self._keys = np.unique(self._key(pairs))

    def __len__(self) -> int:
        return len(self._keys)

    def _key(self, pairs: np.ndarray) -> np.ndarray:
        return pairs[:, 0].astype(np.int64) * self.concepts + pairs[:, 1]

    def contains(self, pairs: np.ndarray) -> np.ndarray:
        """Returns for each row of (pairs, 2) int whether it is in the set: (pairs,) bool."""
        if not len(self._keys):
            return np.zeros(len(pairs), bool)
        keys = self._key(pairs)
        # Neighbouring searches touch neighbouring memory: sorting first takes a third of the time.
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
    """Draws a test and a development set of rows (Vendrov et al. 2016, section 3.2).

    Args:
        pairs: (pairs, 2) int; of rows that are there twice, one may be drawn and the other left.
        held_out: rows of each of the two.
        seed: of the draw.

    Raises:
        InvalidArgumentError: if nothing would be left to learn from, or held_out < 1.
    """
    if not 1 <= held_out < len(pairs) / 2:
        raise invalid_argument("held_out", held_out, f"from 1 to less than half of {len(pairs)} pairs")
    order = np.random.default_rng(seed).permutation(len(pairs))
    test, dev, train = np.split(pairs[order], [held_out, 2 * held_out])
    return PairSplit(train, dev, test)


def corrupt(
    pairs: np.ndarray, concepts: int, generator: np.random.Generator, known: PairSet | None = None
) -> np.ndarray:
    """Replaces one concept of each pair, the first or the second, by one drawn from all.

    Args:
        pairs: (pairs, 2) int true pairs.
        concepts: the number of concepts.
        generator: draws the ends and the concepts.
        known: true pairs that must not come out, nor a concept paired with itself; what does is drawn
            again, the end too, since for some pairs nothing false comes of replacing one end (whatever
            stands under "entity" is one). Without it anything may come out, as in the paper.

    Returns:
        (pairs, 2) int32.

    Raises:
        DataError: if no false pair is found for one of the pairs.

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
    raise DataError(f"No false pair was found by replacing one end of ({low}, {high}) in {_ROUNDS} draws.")


def labelled_pairs(
    pairs: np.ndarray, concepts: int, seed: int | Sequence[int], known: PairSet | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns true pairs followed by as many corrupted ones, and their labels.

    Args:
        pairs: (pairs, 2) int true pairs.
        concepts: the number of concepts.
        seed: of the corruption, as `numpy.random.default_rng` takes it.
        known: as in `corrupt`.

    Returns:
        (2 * pairs, 2) int32 and (2 * pairs,) int8, 1 for a true pair.
    """
    false = corrupt(pairs, concepts, np.random.default_rng(seed), known)
    labels = np.repeat(np.array([1, 0], np.int8), len(pairs))
    return np.concatenate([pairs.astype(np.int32), false]), labels

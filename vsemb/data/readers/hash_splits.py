"""Splits by hashes of names, of images or of classes."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence

from vsemb.errors import DataError

SPLITS = ("train", "val", "test")


def ranked(names: Iterable[str]) -> list[str]:
    """Return distinct names in the order of their SHA-256, an arbitrary order that is the same on all machines.

    Example:

    >>> ranked(["ant", "bee", "cat", "bee"])
    ['bee', 'ant', 'cat']
    """
    return sorted(set(names), key=lambda name: (_digest(name), name))


def _digest(name: str) -> bytes:
    return hashlib.sha256(unicodedata.normalize("NFC", name).encode("utf-8", "replace")).digest()


def hash_split(name: str) -> str:
    """Return train (80 %), val (10 %) or test (10 %) by the SHA-256 of a file name.

    Only the name decides, so an image keeps its split if other images are added or removed.

    Example:

    >>> hash_split("dog.jpg")
    'train'
    """
    return split_of_digest(_digest(name))


def split_of_digest(digest: bytes) -> str:
    """Return train for 80 % of digests, val for 10 % and test for 10 %."""
    tenth = int.from_bytes(digest[:8], "big") % 10
    return {8: "val", 9: "test"}.get(tenth, "train")


def dealt(names: Iterable[str], counts: Sequence[int]) -> dict[str, str]:
    """Assign classes to train, val and test in the order of their hashes.

    Args:
        names: the classes.
        counts: number of classes for train, val and test; their sum is the number of distinct names.

    Returns:
        class -> split.
    """
    splits = [split for split, count in zip(SPLITS, counts, strict=True) for _ in range(count)]
    return dict(zip(ranked(names), splits, strict=True))


def shares(classes: int, val: float, test: float) -> tuple[int, int, int]:
    """Return the number of classes for train, val and test, each at least 1.

    Args:
        classes: the number of classes, 3 or more.
        val, test: fractions of the classes for val and test.

    Raises:
        DataError: for fewer than 3 classes.

    Example:

    >>> shares(200, 0.1, 0.15), shares(3, 0.1, 0.1)
    ((150, 20, 30), (1, 1, 1))
    """
    if classes < 3:
        raise DataError(
            f"The source has {classes} classes; three splits that share none need at least 3. Put all images "
            "into one split instead, or name the splits in the source."
        )
    in_val = max(1, round(classes * val))
    in_test = max(1, round(classes * test))
    return classes - in_val - in_test, in_val, in_test

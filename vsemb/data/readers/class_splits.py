"""Splits that share no class: from lists of classes, or dealt by a hash of their names."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from vsemb.data.readers.source import text_lines
from vsemb.errors import DataError

SPLITS = ("train", "val", "test")


def ranked(names: Iterable[str]) -> list[str]:
    """Returns distinct names in the order of their SHA-256: arbitrary, and the same everywhere.

    Example:

    >>> ranked(["ant", "bee", "cat", "bee"])
    ['bee', 'ant', 'cat']
    """
    return sorted(set(names), key=lambda name: (_digest(name), name))


def _digest(name: str) -> bytes:
    return hashlib.sha256(unicodedata.normalize("NFC", name).encode("utf-8", "replace")).digest()


def dealt(names: Iterable[str], counts: Sequence[int]) -> dict[str, str]:
    """Deals classes to train, val and test in the order of their hashes.

    Args:
        names: the classes.
        counts: how many go to train, to val and to test; their sum is the number of classes.

    Returns:
        class -> split.
    """
    splits = [split for split, count in zip(SPLITS, counts, strict=True) for _ in range(count)]
    return dict(zip(ranked(names), splits, strict=True))


def shares(classes: int, val: float, test: float) -> tuple[int, int, int]:
    """Returns how many classes go to train, val and test, none of them empty.

    Args:
        classes: the number of classes, 3 or more.
        val, test: the shares of val and test.

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
    few = max(1, round(classes * val))
    some = max(1, round(classes * test))
    return classes - few - some, few, some


def class_lists(folder: Path) -> tuple[dict[str, str], list[Path], list[str]]:
    """Reads the lists trainclasses.txt, valclasses.txt and testclasses.txt, one class a line.

    Where trainvalclasses.txt stands in for the first two, a fifth of its classes, in the order of their
    hashes, is val.

    Args:
        folder: where the lists are.

    Returns:
        class -> split, the files read, lines worth showing.

    Raises:
        DataError: if a list is missing or empty, or a class is in two of them.
    """
    files = {split: folder / f"{split}classes.txt" for split in SPLITS}
    both = folder / "trainvalclasses.txt"
    whole = files["train"].is_file() and files["val"].is_file()
    if not files["test"].is_file() or not (whole or both.is_file()):
        raise DataError(
            f"The lists of classes are not in {folder}. Put trainclasses.txt, valclasses.txt and "
            "testclasses.txt there, a class a line, as they come with the descriptions; trainvalclasses.txt "
            "may stand for the first two."
        )
    if whole:
        return _members({split: _class_list(path) for split, path in files.items()}), list(files.values()), []
    names = _class_list(both)
    count = max(1, round(len(names) / 5))
    order = ranked(names)
    members = {"train": order[count:], "val": order[:count], "test": _class_list(files["test"])}
    note = f"{count} of the {len(names)} classes of {both.name} are val, in the order of their hashes."
    return _members(members), [both, files["test"]], [note]


def _class_list(path: Path) -> list[str]:
    names = [line.strip() for line in text_lines(path) if line.strip()]
    if not names:
        raise DataError(f"{path} is empty; it needs a class a line.")
    return names


def _members(lists: dict[str, list[str]]) -> dict[str, str]:
    members: dict[str, str] = {}
    for split, names in lists.items():
        for name in names:
            if members.setdefault(name, split) != split:
                raise DataError(
                    f"The class {name!r} is in the lists of {members[name]} and {split}; splits share none."
                )
    return members

"""What a client answers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np


@dataclass(frozen=True, eq=False)
class Embeddings:
    """What texts or images were embedded to.

    Attributes:
        embedding: (n, dim) float32, zero in rows that are not valid. Of a model of sets (n, items, dim): a
            vector for each word or region, zero where there is none.
        valid: (n,) bool, whether there was anything to embed: a word, an image.
    """

    embedding: np.ndarray
    valid: np.ndarray


@dataclass(frozen=True, eq=False)
class Found:
    """What was found for each query, best first.

    Attributes:
        ids: (n, k) int64, -1 in rows that are not valid; fewer than k columns where the model holds fewer.
        scores: (n, k) float32.
        keys: n lists of k names, empty in rows that are not valid.
        valid: (n,) bool.
    """

    ids: np.ndarray
    scores: np.ndarray
    keys: list[list[str]]
    valid: np.ndarray


_Rows = TypeVar("_Rows", Embeddings, Found)


def joined(parts: Sequence[_Rows]) -> _Rows:
    """Returns answers about parts of a list as the answer about the whole of it.

    Args:
        parts: one at least, in order, all of a kind.

    Example:

    >>> one = Embeddings(np.ones((1, 2), np.float32), np.array([True]))
    >>> joined([one, one]).embedding.shape
    (2, 2)
    """
    if len(parts) == 1:
        return parts[0]
    values: dict[str, Any] = {}
    for item in fields(parts[0]):
        each = [getattr(part, item.name) for part in parts]
        listed = isinstance(each[0], list)
        values[item.name] = list(itertools.chain(*each)) if listed else np.concatenate(each)
    return type(parts[0])(**values)


def found_of(answer: dict[str, np.ndarray], k: int) -> Found:
    """Reads the answer of a search for k results.

    Args:
        answer: the outputs. A server that puts requests together may give all rows as many places as the
            largest k asks for.
        k: of this request.
    """
    ids, scores, keys = (answer[name][:, :k] for name in ("ids", "scores", "keys"))
    named = [[_text(key) for key, item in zip(*row, strict=True) if item >= 0] for row in zip(keys, ids, strict=True)]
    return Found(ids, scores, named, answer["valid"])


def _text(value: bytes) -> str:
    return value.decode("utf-8", errors="replace")

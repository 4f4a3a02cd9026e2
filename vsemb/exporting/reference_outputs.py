"""Reference outputs: golden inputs that a SavedModel is tried with, what it gives, and how two answers compare.

Good rows and bad ones, since that a bad row costs its neighbours nothing is part of what is promised.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

#: Values by the name of an input or output, each with the batch as 0th dimension; strings are bytes.
Arrays = dict[str, np.ndarray]

# A text of more bytes is a row of many vectors where words have one each.
_LONG = 200


class Tie(NamedTuple):
    """Where two computations may give different values, because scores are as good as equal.

    Attributes:
        how: `ranked` for the results of a search, best first, -1 or "" behind the last: neighbours may change places,
            and the last may be another; `permuted` for a row whose values may change places; `chosen` for the best of
            several, of which another may be as good, -1 for none.
        by: the output with the scores.
    """

    how: str
    by: str


def golden_texts(tokenizer: Any, short: bool = False) -> list[bytes]:
    """Returns texts to try an export with: of the vocabulary's words where there is one, and odd ones.

    Args:
        tokenizer: of the model.
        short: whether long texts are left out, as for embeddings of a vector a word.
    """
    words = getattr(getattr(tokenizer, "vocabulary", None), "words", ())
    # Single ones too, since a word may be the name of a class, which is a text of its own.
    known = [words[0], " ".join(words[:7]), words[-1]] if words else []
    odd = ["a dog running on a beach", "zyzzyva", "", " .!? ", "ÜBER " * 300]
    texts = [text.encode() for text in (*known, *odd)] + [b"a \xff\xfe dog"]
    return [text for text in texts if len(text) <= _LONG] if short else texts


def golden_images() -> list[bytes]:
    """Returns images to try an export with: a JPEG, a PNG with alpha, a truncated one and no image."""
    random = np.random.default_rng(0)
    jpeg = tf.io.encode_jpeg(random.integers(0, 256, (37, 53, 3), dtype=np.uint8)).numpy()
    png = tf.io.encode_png(random.integers(0, 256, (64, 64, 4), dtype=np.uint8)).numpy()
    return [jpeg, b"not an image", png, png[: len(png) // 2], b""]


def golden_k(rows: int) -> np.ndarray:
    """Returns how many results each golden row asks a search for: (rows,) int32, zero among them.

    Example:

    >>> golden_k(5).tolist()
    [3, 1, 2, 0, 3]
    """
    return np.resize(np.array([3, 1, 2, 0], np.int32), rows)


def to_json(values: np.ndarray) -> list[Any]:
    """Returns values as TensorFlow Serving's REST API has them: bytes that are no text as {"b64": ...}.

    In sets of vectors, which are mostly padding, a vector of zeros is [].

    Example:

    >>> to_json(np.array([b"dog", bytes([255])], object)), to_json(np.float32([[0.1]]))
    (['dog', {'b64': '/w=='}], [[0.1]])
    """
    if values.ndim > 2 and values.dtype == np.float32:
        shown = [[vector if vector.any() else vector[:0] for vector in row] for row in values]
        return [[to_json(vector) for vector in row] for row in shown]
    if values.ndim > 1:
        return [to_json(row) for row in values]
    if values.dtype == np.float32:
        return [float(str(value)) for value in values]  # The fewest digits that are this float32.
    return [_string(value) if isinstance(value, bytes) else value.item() for value in values]


def _string(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def from_json(values: Any, dtype: str, shape: Sequence[int | None] = ()) -> np.ndarray:
    """Turns `to_json`'s result back.

    Args:
        values: nested lists.
        dtype: a name such as `float32` or `string`.
        shape: sizes, None for those that are open; where there are more than two, the last is known.

    Raises:
        ValueError: for what is no list of such values.
    """
    if not isinstance(values, list):
        raise ValueError("not a list")
    if dtype != "string":
        if len(shape) > 2:
            values = [[vector or [0] * (shape[-1] or 0) for vector in row] for row in values]
        return np.array(values, dtype)
    if values and isinstance(values[0], list):
        return np.stack([from_json(row, dtype) for row in values])
    found = np.empty(len(values), object)
    found[:] = [
        value.encode() if isinstance(value, str) else base64.b64decode(value["b64"], validate=True) for value in values
    ]
    return found


def part(rows: Arrays, row: int) -> Arrays:
    """Returns one row of a batch, as a batch of one."""
    return {name: values[row : row + 1] for name, values in rows.items()}


def compare(
    wanted: Arrays,
    got: Arrays,
    tolerance: float,
    scale: Mapping[str, float] | None = None,
    ties: Mapping[str, Tie] | None = None,
) -> tuple[float, str | None]:
    """Compares two answers of a signature.

    A row that was asked for alone may have fewer columns than in a batch, where another row wants more
    results of a search: what the narrower one has is compared, and the rest must be empty.

    Args:
        wanted: outputs by name.
        got: outputs by name.
        tolerance: the largest difference allowed, relative to the largest entry.
        scale: by output, the least that differences are relative to; 1 where it says nothing.
        ties: by output, which differences count for nothing.

    Returns:
        The largest relative difference of floats, and what is wrong: a phrase, or None.

    Example:

    >>> one, other = {"embedding": np.float32([[1, 0]])}, {"embedding": np.float32([[1, 0.5]])}
    >>> compare(one, other, 0.1)
    (0.5, 'differs by 5.0e-01 > 1e-01')
    """
    scale, ties = scale or {}, ties or {}
    if sorted(wanted) != sorted(got):
        return 0.0, f"gives {', '.join(sorted(got))}, not {', '.join(sorted(wanted))}"
    ranked = [name for name, tie in ties.items() if tie.how == "ranked"]
    wanted, got, problem = _same_width(wanted, got, ranked)
    if problem:
        return 0.0, problem
    largest = 0.0
    # `valid` last in the alphabet is first here: rows that are valid and should not be differ in all else.
    for name in sorted(wanted, key=lambda name: (name != "valid", name)):
        here, there = wanted[name], got[name]
        if here.dtype == np.float32:
            if not np.isfinite(here).all() or not np.isfinite(there).all():
                # Named as the reader knows them: embeddings, scores.
                return np.inf, f"gives {name.rstrip('s')}s that are not finite"
            if here.size:
                difference = float(np.abs(here - there).max()) / max(scale.get(name, 1.0), _largest(here))
                largest = max(largest, difference)
            continue
        differs = here != there
        if name in ties:
            how, by = ties[name]
            differs &= ~_excused(how, here, there, wanted[by], got[by], tolerance, scale.get(by, 1.0))
        if np.any(differs):
            if name == "valid":
                return largest, f"finds other rows valid: {there.tolist()}, not {here.tolist()}"
            return largest, f"gives other {name}"
    if largest > tolerance:
        return largest, f"differs by {largest:.1e} > {tolerance:.0e}"
    return largest, None


def _excused(
    how: str, here: np.ndarray, there: np.ndarray, wanted: np.ndarray, got: np.ndarray, tolerance: float, scale: float
) -> np.ndarray:
    """Returns where values may differ, (rows, k) bool.

    Args:
        how: see `Tie`.
        here: the values wanted.
        there: those that came.
        wanted: the scores of the former.
        got: the scores of the latter.
        tolerance: relative to the scale.
        scale: of the scores.
    """
    if how == "permuted":
        tied = _tied(wanted, tolerance * max(scale, _largest(wanted)))
        same = [sorted(row) == sorted(other) for row, other in zip(here, there, strict=True)]
        return tied & np.array(same, bool)[:, None]
    if how == "ranked":
        tied = _tied(wanted, tolerance * scale) | _last(~_is_nothing(here))
    else:
        # Of two that fit equally well, the scores tell no difference.
        tied = np.abs(wanted - got) <= tolerance * scale
    return tied & (_is_nothing(here) == _is_nothing(there))


def _is_nothing(values: np.ndarray) -> np.ndarray:
    return values == b"" if values.dtype == object else values < 0


def _same_width(wanted: Arrays, got: Arrays, ranked: Sequence[str]) -> tuple[Arrays, Arrays, str | None]:
    narrow: tuple[Arrays, Arrays] = ({}, {})
    for name in wanted:
        here, there = wanted[name], got[name]
        if here.dtype != there.dtype:
            return wanted, got, f"gives {name} as {there.dtype}, not {here.dtype}"
        if here.shape != there.shape:
            if not ranked or not here.ndim == there.ndim == 2 or len(here) != len(there):
                return wanted, got, f"gives {name} of shape {there.shape}, not {here.shape}"
            width = min(here.shape[1], there.shape[1])
            if name in ranked and not all(_is_nothing(values[:, width:]).all() for values in (here, there)):
                return wanted, got, "gives another number of results"
            here, there = here[:, :width], there[:, :width]
        narrow[0][name], narrow[1][name] = here, there
    return *narrow, None


def _largest(values: np.ndarray) -> float:
    return float(np.abs(values).max(initial=0.0))


def _tied(scores: np.ndarray, tolerance: float) -> np.ndarray:
    """Returns where a score is within rounding of its neighbour's: (rows, k) bool."""
    tied = np.zeros(scores.shape, bool)
    if scores.size:
        near = np.abs(np.diff(scores, axis=1)) <= 2 * tolerance
        tied[:, :-1] |= near
        tied[:, 1:] |= near
    return tied


def _last(filled: np.ndarray) -> np.ndarray:
    """Returns where the last result of each row is: (rows, k) bool.

    It may be tied with one that is not shown; its score is compared all the same.
    """
    after = np.zeros_like(filled)
    after[:, :-1] = filled[:, 1:]
    return filled & ~after

"""Reference outputs: golden inputs of a SavedModel, and the comparison of its outputs.

Some golden rows are invalid, which tests that an invalid row leaves its neighbours unchanged.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from vsemb.ops.tensorflow import tf

#: Values by the name of an input or output, each with the batch as 0th dimension; strings are bytes.
Arrays = dict[str, np.ndarray]

SIDES = ("inputs", "outputs")

# Bytes of the longest golden text of a multi-vector model.
_LONG = 200


class Tie(NamedTuple):
    """Allowed differences between two computations where scores are equal up to rounding.

    Attributes:
        how: `ranked` for search results, best first, padded with -1 or "": adjacent results may be swapped, and the
            last may be another item. `permuted` for a row whose values may be in another order. `chosen` for the best
            of several, or -1: it may be another one with an equal score.
        by: name of the output with the scores.
    """

    how: str
    by: str


@dataclass(frozen=True, eq=False)
class Golden:
    """Golden rows of one signature: inputs and the outputs they must give.

    Attributes:
        inputs: values by name.
        outputs: values by name.
        scale: output -> minimum that differences are relative to; default 1.
        ties: output -> differences that are allowed.
    """

    inputs: Arrays
    outputs: Arrays
    scale: Mapping[str, float] = field(default_factory=dict)
    ties: Mapping[str, Tie] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "scale": dict(self.scale),
            "ties": {output: list(tie) for output, tie in self.ties.items()},
            "inputs": {key: to_json(values) for key, values in self.inputs.items()},
            "outputs": {key: to_json(values) for key, values in self.outputs.items()},
        }

    @classmethod
    def from_json(cls, content: dict[str, Any], specs: dict[str, Any]) -> Golden:
        """Read the rows of a signature.

        Raises:
            ValueError: for malformed rows, or rows that do not match the specs.
        """
        sides = {
            side: {
                key: from_json(content[side][key], spec["dtype"], spec["shape"]) for key, spec in specs[side].items()
            }
            for side in SIDES
        }
        if not sides["inputs"] or not sides["outputs"]:
            raise ValueError("it has a signature without inputs or outputs")
        lengths = {values.shape[:1] for side in sides.values() for values in side.values()}
        if len(lengths) != 1 or lengths == {(0,)}:
            raise ValueError("its golden inputs and outputs must have equal numbers of rows, at least one")
        scale = {name: float(value) for name, value in content["scale"].items()}
        return cls(**sides, scale=scale, ties={name: Tie(*tie) for name, tie in content["ties"].items()})


def golden_texts(tokenizer: Any, short: bool = False) -> list[bytes]:
    """Return golden texts: words of the vocabulary, if there is one, and unusual texts.

    Args:
        tokenizer: the model's tokenizer.
        short: whether to leave out long texts, as for models with one vector per word.
    """
    words = getattr(getattr(tokenizer, "vocabulary", None), "words", ())
    if not words and hasattr(tokenizer, "get_vocabulary"):
        # Keras' `TextVectorization`, which lists padding and the unknown word first.
        words = tokenizer.get_vocabulary()[2:]
    # Include single words, since a word may be the name of a class.
    known = [words[0], " ".join(words[:7]), words[-1]] if words else []
    odd = ["a dog running on a beach", "zyzzyva", "", " .!? ", "ÜBER " * 300]
    texts = [text.encode() for text in (*known, *odd)] + [b"a \xff\xfe dog"]
    return [text for text in texts if len(text) <= _LONG] if short else texts


def golden_images() -> list[bytes]:
    """Return golden images: a JPEG, a PNG with alpha, a truncated PNG, and bytes that do not decode."""
    random = np.random.default_rng(0)
    jpeg = tf.io.encode_jpeg(random.integers(0, 256, (37, 53, 3), dtype=np.uint8)).numpy()
    png = tf.io.encode_png(random.integers(0, 256, (64, 64, 4), dtype=np.uint8)).numpy()
    return [jpeg, b"not an image", png, png[: len(png) // 2], b""]


def golden_k(rows: int) -> np.ndarray:
    """Return the number of results for each golden row of a search: (rows,) int32, including zero.

    Example:

    >>> golden_k(5).tolist()
    [3, 1, 2, 0, 3]
    """
    return np.resize(np.array([3, 1, 2, 0], np.int32), rows)


def to_json(values: np.ndarray) -> list[Any]:
    """Convert values to JSON as in TensorFlow Serving's REST API: invalid UTF-8 as {"b64": ...}.

    In sets of vectors, which are mostly padding, a zero vector is [].

    Example:

    >>> to_json(np.array([b"dog", bytes([255])], object)), to_json(np.float32([[0.1]]))
    (['dog', {'b64': '/w=='}], [[0.1]])
    """
    if values.ndim > 2 and values.dtype == np.float32:
        return [_vectors(row) for row in values]
    if values.ndim > 1:
        return [to_json(row) for row in values]
    if values.dtype == np.float32:
        return [float(str(value)) for value in values]  # `str` gives the fewest digits that identify the float32.
    return [_string(value) if isinstance(value, bytes) else value for value in values.tolist()]


def _vectors(rows: np.ndarray) -> list[Any]:
    if rows.ndim > 2:
        return [_vectors(row) for row in rows]
    return [to_json(vector) if vector.any() else [] for vector in rows]


def _string(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def from_json(values: Any, dtype: str, shape: Sequence[int | None] = ()) -> np.ndarray:
    """Convert the result of `to_json` back to an array.

    Args:
        values: nested lists.
        dtype: name of the type, such as `float32` or `string`.
        shape: sizes, None for open ones; the last of more than two is known.

    Raises:
        ValueError: for malformed values.
    """
    if not isinstance(values, list):
        raise ValueError("not a list")
    if dtype != "string":
        if len(shape) > 2:
            values = [[vector or [0] * (shape[-1] or 0) for vector in row] for row in values]
        return np.array(values, dtype)
    if values and isinstance(values[0], list):
        return np.stack([from_json(row, dtype) for row in values])
    strings = np.empty(len(values), object)
    strings[:] = [
        value.encode() if isinstance(value, str) else base64.b64decode(value["b64"], validate=True) for value in values
    ]
    return strings


def part(rows: Arrays, row: int) -> Arrays:
    """Return one row of a batch, as a batch of one."""
    return {name: values[row : row + 1] for name, values in rows.items()}


def compare(
    wanted: Arrays,
    got: Arrays,
    tolerance: float,
    scale: Mapping[str, float] | None = None,
    ties: Mapping[str, Tie] | None = None,
) -> tuple[float, str | None]:
    """Compare two outputs of a signature.

    The search results of a row have fewer columns alone than in a batch in which another row has a larger `k`. Then
    the common columns are compared, and the rest must be padding.

    Args:
        wanted: expected outputs by name.
        got: outputs by name.
        tolerance: maximum difference, relative to the largest entry.
        scale: output -> minimum that differences are relative to; default 1.
        ties: output -> differences that are allowed.

    Returns:
        The largest relative difference of floats, and a phrase that states the problem, or None.

    Example:

    >>> one, other = {"embedding": np.float32([[1, 0]])}, {"embedding": np.float32([[1, 0.5]])}
    >>> compare(one, other, 0.1)
    (0.5, 'differs by 5.0e-01 > 1e-01')
    """
    scale, ties = scale or {}, ties or {}
    if sorted(wanted) != sorted(got):
        return 0.0, f"gives {', '.join(sorted(got))} instead of {', '.join(sorted(wanted))}"
    ranked = [name for name, tie in ties.items() if tie.how == "ranked"]
    wanted, got, problem = _same_width(wanted, got, ranked)
    if problem:
        return 0.0, problem
    largest = 0.0
    # `valid` comes first, since rows of different validity differ in all other outputs.
    for name in sorted(wanted, key=lambda name: (name != "valid", name)):
        here, there = wanted[name], got[name]
        if here.dtype == np.float32:
            if not np.isfinite(here).all() or not np.isfinite(there).all():
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
                return largest, f"finds other rows valid: {there.tolist()} instead of {here.tolist()}"
            return largest, f"gives other {name}"
    if largest > tolerance:
        return largest, f"differs by {largest:.1e} > {tolerance:.0e}"
    return largest, None


def _excused(
    how: str, here: np.ndarray, there: np.ndarray, wanted: np.ndarray, got: np.ndarray, tolerance: float, scale: float
) -> np.ndarray:
    """Return a mask of the positions where values may differ, (rows, k) bool.

    Args:
        how: see `Tie`.
        here: expected values.
        there: actual values.
        wanted: expected scores.
        got: actual scores.
        tolerance: relative to the scale.
        scale: scale of the scores.
    """
    if how == "permuted":
        tied = _tied(wanted, tolerance * max(scale, _largest(wanted)))
        same = [sorted(row) == sorted(other) for row, other in zip(here, there, strict=True)]
        return tied & np.array(same, bool)[:, None]
    if how == "ranked":
        tied = _tied(wanted, tolerance * scale) | _last(~_is_nothing(here))
    else:
        # Equally good choices have equal scores.
        tied = np.abs(wanted - got) <= tolerance * scale
    return tied & (_is_nothing(here) == _is_nothing(there))


def _is_nothing(values: np.ndarray) -> np.ndarray:
    return values == b"" if values.dtype == object else values < 0


def _same_width(wanted: Arrays, got: Arrays, ranked: Sequence[str]) -> tuple[Arrays, Arrays, str | None]:
    narrow: tuple[Arrays, Arrays] = ({}, {})
    for name in wanted:
        here, there = wanted[name], got[name]
        if here.dtype != there.dtype:
            return wanted, got, f"gives {name} as {there.dtype} instead of {here.dtype}"
        if here.shape != there.shape:
            if not ranked or not here.ndim == there.ndim == 2 or len(here) != len(there):
                return wanted, got, f"gives {name} of shape {there.shape} instead of {here.shape}"
            width = min(here.shape[1], there.shape[1])
            if name in ranked and not all(_is_nothing(values[:, width:]).all() for values in (here, there)):
                return wanted, got, "gives another number of results"
            here, there = here[:, :width], there[:, :width]
        narrow[0][name], narrow[1][name] = here, there
    return *narrow, None


def _largest(values: np.ndarray) -> float:
    return float(np.abs(values).max(initial=0.0))


def _tied(scores: np.ndarray, tolerance: float) -> np.ndarray:
    """Return a mask of the positions whose score equals an adjacent one up to rounding: (rows, k) bool."""
    tied = np.zeros(scores.shape, bool)
    if scores.size:
        near = np.abs(np.diff(scores, axis=1)) <= 2 * tolerance
        tied[:, :-1] |= near
        tied[:, 1:] |= near
    return tied


def _last(filled: np.ndarray) -> np.ndarray:
    """Return a mask of the last result of each row: (rows, k) bool.

    It may be tied with the next, omitted result, so it may be another item. Its score is still compared.
    """
    after = np.zeros_like(filled)
    after[:, :-1] = filled[:, 1:]
    return filled & ~after

"""The answer to a `:predict` request, as TensorFlow Serving writes it: arrays -> text.

It has the form of the request, see `vsemb.serving.rest`: `predictions` in rows or `outputs` in columns.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from vsemb.serving.models import Arrays
from vsemb.serving.status import Code, RequestError, invalid


def encode(outputs: Arrays, rows: bool) -> bytes:
    """Writes the answer to a `:predict` request.

    Args:
        outputs: name -> array. Strings are written as text, or as `{"b64": ...}` where the name ends in
            `_bytes`; float32 with the fewest digits that give the same float32 again.
        rows: whether the request came in rows.

    Raises:
        RequestError: INVALID_ARGUMENT if the outputs are no rows; INTERNAL for text that is not UTF-8.

    Example:

    >>> encode({"y": np.array([2.5, 3.0], np.float32)}, rows=True)
    b'{"predictions": [2.5, 3.0]}'
    """
    if rows:
        _check_rows(outputs)
    values = {name: _listed(name, array) for name, array in sorted(outputs.items())}
    if len(values) == 1:
        (answer,) = values.values()
    elif rows:
        names = list(values)
        answer = [dict(zip(names, row, strict=True)) for row in zip(*values.values(), strict=True)]
    else:
        answer = values
    return json.dumps({"predictions" if rows else "outputs": answer}, ensure_ascii=False).encode("utf-8")


def _check_rows(outputs: Arrays) -> None:
    expected: int | None = None
    for name, array in sorted(outputs.items()):
        if not array.ndim:
            raise invalid(f"Tensor name: {name} has no shape information ")
        if expected is not None and array.shape[0] != expected:
            raise invalid(f"Tensor name: {name} has inconsistent batch size: {array.shape[0]} expecting: {expected}")
        expected = array.shape[0]


def _listed(name: str, array: np.ndarray) -> Any:
    if array.dtype != object:
        return (shortest(array) if array.dtype.itemsize < 8 else array).tolist()
    texts = np.empty(array.shape, dtype=object)
    for i, value in enumerate(array.ravel()):
        texts.flat[i] = _text(name, value)
    return texts.tolist()


def _text(name: str, value: bytes) -> Any:
    if name.endswith("_bytes"):
        return {"b64": base64.b64encode(value).decode("ascii")}
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise RequestError(
            Code.INTERNAL,
            f"Tensor name: {name} holds bytes that are not UTF-8, and its name ends not in _bytes",
        ) from None


def shortest(array: np.ndarray) -> np.ndarray:
    """Returns float64 values whose decimal form is the shortest that gives the same float32 again.

    Python writes a float64 with the fewest digits that identify it, 17 for most float32 values. Rounded
    to the digits that identify the float32, nine at most, it is written with those.

    Args:
        array: of any shape; arrays that hold no floats are returned as they are.

    Example:

    >>> shortest(np.array([0.2, 1e-3], np.float32)).tolist()
    [0.2, 0.001]
    """
    if array.dtype.kind not in "fV":
        return array
    exact = array.astype(np.float64)
    single = array.astype(np.float32)
    magnitude = np.abs(exact)
    # Powers of ten up to 22 are exact, so that one multiplication or division rounds once.
    plain = (magnitude > 1e-12) & (magnitude < 1e15)
    exponent = np.floor(np.log10(magnitude, where=plain, out=np.zeros_like(exact))).astype(np.int64)
    result, open_ = exact.copy(), plain.copy()
    for digits in range(6, 10):
        if not open_.any():
            break
        places = digits - 1 - exponent
        scale = 10.0 ** np.abs(places)
        down = places >= 0
        rounded = np.where(down, np.rint(exact * scale) / scale, np.rint(exact / scale) * scale)
        same = open_ & (rounded.astype(np.float32) == single)
        result[same] = rounded[same]
        open_ &= ~same
    for i in np.flatnonzero(~plain & (magnitude > 0) & np.isfinite(exact)):
        result.flat[i] = float(str(single.flat[i]))
    return result

"""JSON of `:predict` requests and answers, as in TensorFlow Serving.

Requests contain rows (`{"instances": [...]}`) or columns (`{"inputs": ...}`); answers use the same form, `predictions`
or `outputs`. Rules and error messages follow TensorFlow Serving, https://www.tensorflow.org/tfx/serving/api_rest and
`json_tensor.cc` as of 2021. In addition, inputs with a default may be omitted, and half and bfloat16 are supported.
Integers outside the range of their type are refused; TensorFlow Serving wraps 8-bit and 16-bit integers.
"""

from __future__ import annotations

import base64
import binascii
import functools
import gc
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import tensorflow as tf

from vsemb.serving.models import DEFAULT_SIGNATURE, Arrays, LoadedSignature
from vsemb.serving.parse_limits import require_json_size
from vsemb.serving.status import Code, RequestError, invalid

# Maximum characters of a value in an error message.
_SHOWN = 200

_TYPES = {list: "Array", dict: "Object", str: "String", type(None): "Null"}

# Names of types in TensorFlow's error messages.
_NAMES = {"float32": "float", "float64": "double"}

# The end of two error messages.
_SEVERAL = "as multiple input tensors required as per tensorinfo_map"

# NumPy's maximum number of dimensions.
_DIMENSIONS = 64

# Values of an answer that are encoded at once.
_VALUES = 2**16

# Strings, which stay as they are, and the spellings of numbers that TensorFlow Serving reads and Python does not.
# Possessive, and up to the end of an unterminated string: otherwise the time is quadratic, and the memory 100 times.
_SPELLINGS = re.compile(r'"(?>[^"\\]+|\\.)*+"?|-NaN|Inf(?!inity)', re.DOTALL)
_PYTHONS = {"-NaN": "NaN", "Inf": "Infinity"}


@dataclass(frozen=True)
class Request:
    """A `:predict` request.

    Attributes:
        signature: the requested signature.
        rows: whether the request contains rows.
        inputs: name -> array; strings as arrays of `bytes` objects.
    """

    signature: LoadedSignature
    rows: bool
    inputs: Arrays


def decode(body: bytes, signatures: Mapping[str, LoadedSignature], max_rows: int) -> Request:
    """Decode the body of a `:predict` request.

    Args:
        body: JSON in UTF-8, up to its end or a byte 0. NaN, Inf and Infinity are numbers; unknown keys are ignored,
            and of equal keys the first counts.
        signatures: name -> signature of the model.
        max_rows: maximum rows of a request.

    Raises:
        RequestError: INVALID_ARGUMENT for a malformed request, or one with more values than so many rows have.
    """
    # A byte 0 ends the document, as in TensorFlow Serving.
    body, _, _ = body.partition(b"\0")
    require_json_size(body, signatures.values(), max_rows)
    request = _decoded(_parse(body), signatures)
    if any(array.dtype.kind == "f" and np.isinf(array).any() for array in request.inputs.values()):
        # Python reads numbers beyond float64 as infinite, too. This reader of each number is slow.
        _parse(body, parse_float=_finite)
    return request


def _decoded(document: dict[str, Any], signatures: Mapping[str, LoadedSignature]) -> Request:
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise _wrong(document, "not formatted correctly. 'signature_name' key must be a string value.")
    signature = signatures.get(name or DEFAULT_SIGNATURE)
    if signature is None:
        raise invalid(f'Serving signature name: "{name or DEFAULT_SIGNATURE}" not found in signature def')
    if not signature.inputs:
        raise invalid(f"Failed to get input map for signature: {name or 'DEFAULT'}")
    if "instances" in document and "inputs" in document:
        raise _wrong(document, "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist ")
    if "instances" in document:
        instances = document["instances"]
        if not isinstance(instances, list):
            raise _wrong(document, "Expecting 'instances' to be an list/array")
        if not instances:
            raise _wrong(document, "No values in 'instances' array")
        return Request(signature, True, _from_rows(instances, signature))
    if "inputs" in document:
        return Request(signature, False, _from_columns(document["inputs"], signature))
    raise invalid("Missing 'inputs' or 'instances' key")


def _parse(body: bytes, **options: Any) -> dict[str, Any]:
    if not body.strip():
        raise invalid("JSON Parse error: The document is empty")
    collects = gc.isenabled()
    # A collection inside a deep document runs destructors, as of unloaded models, without stack, and they fail.
    gc.disable()
    try:
        document = _loads(body.decode("utf-8-sig"), object_pairs_hook=_first, **options)
    except json.JSONDecodeError as error:
        raise invalid(f"JSON Parse error: {error.msg} at offset: {error.pos}") from error
    except UnicodeDecodeError as error:
        raise invalid(f"JSON Parse error: Not UTF-8 at offset: {error.start}") from error
    except RecursionError as error:
        raise invalid("JSON Parse error: The document is nested too deeply") from error
    except ValueError as error:
        raise invalid(f"JSON Parse error: {error}") from error
    finally:
        if collects:
            gc.enable()
    if not isinstance(document, dict):
        raise _wrong(document, "Is not object")
    return document


def _loads(text: str, **options: Any) -> Any:
    try:
        return json.loads(text, **options)
    except json.JSONDecodeError:
        if not ("Inf" in text or "-NaN" in text):
            raise
        return json.loads(_SPELLINGS.sub(lambda match: _PYTHONS.get(match[0], match[0]), text), **options)


def _first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; of equal keys, the first counts."""
    document = dict(pairs)
    return document if len(document) == len(pairs) else dict(reversed(pairs))


def _finite(digits: str) -> float:
    number = float(digits)
    if np.isinf(number):
        raise ValueError("Number too big to be stored in double.")
    return number


def _from_rows(instances: list[Any], signature: LoadedSignature) -> Arrays:
    specs, required = signature.inputs, signature.required
    named = _is_object(instances[0])
    if not named and len(required) > 1:
        raise invalid(f"instances is a plain list, but expecting list of objects {_SEVERAL}")
    for i, instance in enumerate(instances):
        if _is_object(instance) != named:
            mismatch = "object but got list" if named else "value/list but got object"
            raise invalid(f"Expecting {mismatch} at item {i} of input list")
    if not named:
        (name,) = required
        return {name: _stack(instances, specs[name])}
    given = {name: spec for name, spec in specs.items() if name in required or name in instances[0]}
    for i, instance in enumerate(instances):
        for name in instance.keys() - specs.keys():
            raise invalid(
                f"Failed to process element: {i} key: {name} of 'instances' list. "
                f"Error: INVALID_ARGUMENT: JSON object: does not have named input: {name}"
            )
        if instance.keys() != given.keys():
            raise invalid(
                f"Failed to process element: {i} of 'instances' list. JSON object: {_show(instance)} "
                f"keys must be equal to: {','.join(sorted(given))}"
            )
    return {
        name: _stack([instance[name] for instance in instances], spec, f" key: {name}") for name, spec in given.items()
    }


def _stack(values: list[Any], spec: tf.TensorSpec, key: str = "") -> np.ndarray:
    """Convert a list of rows; errors name the row."""
    try:
        return _tensor(values, spec)
    except RequestError as failure:
        # Convert row by row, which is slow, to find the invalid row.
        expected: tuple[int, ...] | None = None
        for i, value in enumerate(values):
            try:
                array = _tensor(value, spec)
                expected = array.shape if expected is None else expected
                if array.size != int(np.prod(expected)):
                    raise invalid(f"Expecting tensor size: {int(np.prod(expected))} but got: {array.size}")
                if array.shape != expected:
                    raise invalid(f"Expecting shape {_brackets(expected)} but got: {_brackets(array.shape)}")
            except RequestError as error:
                where = f"Failed to process element: {i}{key} of 'instances' list."
                raise invalid(f"{where} Error: INVALID_ARGUMENT: {error.message}") from error
        raise failure


def _from_columns(value: Any, signature: LoadedSignature) -> Arrays:
    specs, required = signature.inputs, signature.required
    if not _is_object(value):
        if len(required) > 1:
            raise invalid(f"inputs is a plain value/list, but expecting an object {_SEVERAL}")
        (name,) = required
        return {name: _tensor(value, specs[name])}
    for name in required:
        if name not in value:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
    return {name: _tensor(value[name], spec) for name, spec in specs.items() if name in value}


def _tensor(value: Any, spec: tf.TensorSpec) -> np.ndarray:
    """Convert a value, or nested lists of values, to an array of the input's type."""
    leaves, shape = [value], list[int]()
    # Level by level, which is much faster than value by value for long lists.
    while any(type(leaf) is list for leaf in leaves):
        if odd := [leaf for leaf in leaves if type(leaf) is not list]:
            raise _level_error(leaves[0], odd[0], len(shape))
        sizes = set(map(len, leaves))
        if len(sizes) > 1:
            expected = len(leaves[0])
            other = next(len(leaf) for leaf in leaves if len(leaf) != expected)
            raise invalid(
                f"Encountered list at unexpected size: {other} at level: {len(shape)} expected size: {expected}"
            )
        shape.append(len(leaves[0]))
        if len(shape) > _DIMENSIONS:
            raise invalid(f"Encountered list at unexpected level: {_DIMENSIONS} expected < {_DIMENSIONS}")
        leaves = list(chain.from_iterable(leaves))
    return _values(leaves, spec).reshape(shape)


def _level_error(first: Any, odd: Any, level: int) -> RequestError:
    """Return the error for lists mixed with values; the first element sets the rank."""
    rank = level
    while type(first) is list:
        rank, first = rank + 1, first[0] if first else None
    if rank == level:
        return invalid(f"Encountered list at unexpected level: {level} expected < {rank}")
    return _wrong(odd, f"found at incorrect level: {level + 1} in the JSON DOM. Expected at level: {rank}")


def _values(leaves: list[Any], spec: tf.TensorSpec) -> np.ndarray:
    """Convert a flat list of values."""
    dtype, name = spec.dtype.as_numpy_dtype, spec.dtype.name
    if name == "string":
        allowed: set[type] = {str, dict}
    elif name == "bool":
        allowed = {bool}
    elif spec.dtype.is_floating or spec.dtype.is_integer:
        allowed = {int, float} if spec.dtype.is_floating else {int}
    else:
        raise RequestError(Code.UNIMPLEMENTED, f"Conversion of JSON values to type: {name}")
    kinds = set(map(type, leaves))
    if not kinds <= allowed:
        leaf = next(leaf for leaf in leaves if type(leaf) not in allowed)
        kind = str(leaf) if type(leaf) is bool else _TYPES.get(type(leaf), "Number")
        raise _wrong(leaf, f"Type: {kind} is not of expected type: {_NAMES.get(name, name)}")
    if name == "string":
        array = np.empty(len(leaves), dtype=object)
        array[:] = [_bytes(leaf) for leaf in leaves]
        return array
    if spec.dtype.is_floating:
        return _floats(leaves, dtype)
    try:
        return np.array(leaves, dtype=dtype)
    except OverflowError:
        limits = np.iinfo(dtype)
        outside = next(leaf for leaf in leaves if not limits.min <= leaf <= limits.max)
        raise _wrong(outside, f"Type: Number is not of expected type: {name}") from None


def _floats(leaves: list[Any], dtype: Any) -> np.ndarray:
    """Convert numbers to the nearest ones of a type; numbers beyond its range become infinite."""
    try:
        array = np.array(leaves, dtype=np.float64)
    except OverflowError:
        raise invalid("JSON Parse error: Number too big to be stored in double.") from None
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def _bytes(value: str | dict[str, Any]) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError:
            raise _wrong(value, "is not valid Unicode") from None
    if not _is_base64(value):
        raise _wrong(value, "not formatted correctly for base64 data")
    try:
        text = "".join(value["b64"].split()).rstrip("=")
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise invalid("Unable to base64 decode") from None


def _is_base64(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not _is_base64(value)


def _brackets(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


def _wrong(value: Any, what: str) -> RequestError:
    return invalid(f"JSON Value: {_show(value)} {what}")


def _show(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        # JSON that can be read may be nested too deeply to be written.
        text = "…"
    text = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return text.encode("utf-8", "replace").decode("utf-8")


def encode(outputs: Arrays, rows: bool) -> bytes:
    """Encode the answer to a `:predict` request.

    Args:
        outputs: name -> array. Strings are written as text, or as `{"b64": ...}` if the name ends in `_bytes`; float32
            with the fewest digits that give the same float32.
        rows: whether the request contained rows.

    Raises:
        RequestError: INVALID_ARGUMENT without outputs, for complex numbers, and if the outputs have no equal batch
            dimension; INTERNAL for invalid UTF-8.

    Example:

    >>> encode({"y": np.array([2.5, 3.0], np.float32)}, rows=True)
    b'{"predictions": [2.5, 3.0]}'
    """
    return b"".join(encoded_parts(outputs, rows))


def encoded_parts(outputs: Arrays, rows: bool) -> Iterator[bytes]:
    """Encode an answer as `encode`, in parts: the numbers of a large answer take 20 times its bytes in Python.

    Args:
        outputs: name -> array, see `encode`.
        rows: whether the request contained rows.

    Yields:
        The parts of the JSON.

    Raises:
        RequestError: as `encode`.
    """
    if not outputs:
        raise invalid("Cannot convert empty tensor map to JSON")
    outputs = dict(sorted(outputs.items()))
    if rows:
        _check_rows(outputs)
        yield b'{"predictions": '
        yield from _encoded(outputs, _rows)
    elif len(outputs) == 1:
        yield b'{"outputs": '
        yield from _encoded(outputs, _column)
    else:
        for place, (name, array) in enumerate(outputs.items()):
            yield (b", " if place else b'{"outputs": {') + _dumped(name) + b": "
            yield from _encoded({name: array}, _column)
        yield b"}"
    yield b"}"


def _encoded(arrays: Arrays, listed: Callable[[Arrays], Any]) -> Iterator[bytes]:
    """Yield the JSON of arrays in parts of rows; `listed` returns the values of some rows."""
    first, *_ = arrays.values()
    length = len(first) if first.ndim else 1
    values = sum(array.size for array in arrays.values())
    if values <= _VALUES or length == 1:
        yield _dumped(listed(arrays))
        return
    step = max(1, length * _VALUES // values)
    for start in range(0, length, step):
        part = {name: array[start : start + step] for name, array in arrays.items()}
        yield (b", " if start else b"[") + _dumped(listed(part))[1:-1]
    yield b"]"


def _rows(outputs: Arrays) -> Any:
    columns = [_listed(name, array) for name, array in outputs.items()]
    if len(columns) == 1:
        return columns[0]
    return [dict(zip(outputs, row, strict=True)) for row in zip(*columns, strict=True)]


def _column(outputs: Arrays) -> Any:
    ((name, array),) = outputs.items()
    return _listed(name, array)


def _dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8")


def _check_rows(outputs: Arrays) -> None:
    expected: int | None = None
    for name, array in outputs.items():
        if not array.ndim:
            raise invalid(f"Tensor name: {name} has no shape information ")
        if expected is not None and len(array) != expected:
            raise invalid(f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: {expected}")
        expected = len(array)


def _listed(name: str, array: np.ndarray) -> Any:
    if array.dtype.kind == "c":
        raise invalid(f"Failed to write JSON value for tensor type: {array.dtype.name}")
    if array.dtype == object:
        array = np.vectorize(functools.partial(_text, name), otypes=[object])(array)
    elif array.dtype.itemsize < 8:
        array = shortest(array)
    return array.tolist()


def _text(name: str, value: bytes) -> Any:
    if name.endswith("_bytes"):
        return {"b64": base64.b64encode(value).decode("ascii")}
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise RequestError(
            Code.INTERNAL,
            f"Tensor name: {name} holds invalid UTF-8; the name of an output of bytes must end in _bytes",
        ) from None


def shortest(array: np.ndarray) -> np.ndarray:
    """Round to float64 values whose shortest decimals identify the float32 values.

    Python writes a float64 with the fewest digits that identify it, which are 17 for most float32 values. After
    rounding to the digits that identify the float32, it is written with at most nine.

    Args:
        array: any shape; arrays of other types than float are returned unchanged.

    Example:

    >>> shortest(np.array([0.2, 1e-3], np.float32)).tolist()
    [0.2, 0.001]
    """
    if array.dtype.kind not in "fV":
        return array
    exact = array.astype(np.float64)
    single = array.astype(np.float32)
    magnitude = np.abs(exact)
    # Powers of ten up to 10^22 are exact in float64, so a multiplication or division by one rounds only once.
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

"""Arrays to TensorFlow's TensorProto and back, as TensorFlow Serving fills it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from vsemb.serving.status import invalid

# A proto may state a large shape and one value for all of it. More elements than this, and than it has bytes,
# are refused: what a request costs is to be limited by its size.
_ELEMENTS = 2**20

# Field numbers of TensorProto whose packed values are the array's own bytes.
_RAW_FIELDS = {np.dtype(np.float32): 5, np.dtype(np.float64): 6}


def from_protos(protos: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Converts the inputs of a PredictRequest.

    Returns:
        name -> array; strings as arrays of `bytes` objects.

    Raises:
        RequestError: INVALID_ARGUMENT for a proto that is no tensor.
    """
    return {name: _from_proto(name, proto) for name, proto in protos.items()}


def _from_proto(name: str, proto: Any) -> np.ndarray:
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or any(size < 0 for size in sizes):
        raise invalid(f"Input {name} has no complete shape: {sizes}.")
    if math.prod(sizes) > max(_ELEMENTS, proto.ByteSize()):
        raise invalid(f"Input {name} has shape {sizes}: more than {_ELEMENTS} elements and than its bytes.")
    try:
        array = tf.make_ndarray(proto)
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        # The last two for a type without arrays, and a value that its type cannot hold.
        raise invalid(f"Input {name} is not a tensor: {error}") from error
    if array.shape != tuple(sizes):
        raise invalid(f"Input {name} has {array.size} values; its shape is {sizes}.")
    return array


def to_proto(array: np.ndarray) -> Any:
    """Converts an array to a TensorProto with its values in the type's own field, e.g. `float_val`.

    TensorFlow Serving fills these fields and many clients read them. `tf.make_tensor_proto` fills
    `tensor_content` for numbers.

    Example:

    >>> list(to_proto(np.array([0.5, 2.0], np.float32)).float_val)
    [0.5, 2.0]
    """
    from tensorflow.core.framework import tensor_pb2

    proto = tensor_pb2.TensorProto(dtype=tf.as_dtype(array.dtype).as_datatype_enum)
    if array.dtype == object:
        proto.dtype = tf.string.as_datatype_enum
        proto.string_val.extend(array.ravel().tolist())
    elif array.dtype in _RAW_FIELDS:
        # The wire format of a packed field is a tag, a length and the values: no loop over them in Python.
        values = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
        tag = _RAW_FIELDS[array.dtype] << 3 | 2
        proto.MergeFromString(bytes([tag]) + _varint(len(values)) + values)
    elif array.dtype == np.int64:
        proto.int64_val.extend(array.ravel().tolist())
    elif array.dtype == bool:
        proto.bool_val.extend(array.ravel().tolist())
    elif array.dtype in (np.int32, np.int16, np.int8, np.uint8, np.uint16):
        proto.int_val.extend(array.ravel().tolist())
    else:
        proto = tf.make_tensor_proto(array)
        return proto
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    return proto


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)

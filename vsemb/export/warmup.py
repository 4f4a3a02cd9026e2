"""Requests that TensorFlow Serving sends to a model as it loads it, so that the first real one is fast.

They are PredictionLog messages in `assets.extra/tf_serving_warmup_requests`. Their classes come with
tensorflow-serving-api, an extra; what is written here is four nested messages, encoded by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from vsemb.errors import DataError

#: TensorFlow Serving fails to load a model with more.
MOST_RECORDS = 1000

WARMUP_FILE = "tf_serving_warmup_requests"


def write_warmup(directory: Path, model: str, requests: Iterable[tuple[str, Mapping[str, np.ndarray]]]) -> Path:
    """Writes warm-up requests into a SavedModel.

    Args:
        directory: of the SavedModel; its `assets.extra` is made.
        model: the name that it is served by.
        requests: signature and inputs by name, each with the batch as 0th dimension; strings are bytes.

    Returns:
        The file.

    Raises:
        DataError: for more than `MOST_RECORDS`, or if the file system refuses.

    Example:

        write_warmup(Path("1"), "flickr8k", [("encode_text", {"text": np.array([b"a dog"], object)})])
    """
    records = [prediction_log(model, signature, inputs) for signature, inputs in requests]
    if len(records) > MOST_RECORDS:
        raise DataError(f"{len(records)} warm-up requests are more than the {MOST_RECORDS} that are allowed.")
    path = directory / "assets.extra" / WARMUP_FILE
    path.parent.mkdir(exist_ok=True)
    try:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in records:
                writer.write(record)
    except tf.errors.OpError as error:
        raise DataError(f"Cannot write {path}: {error.message}.") from error
    return path


def prediction_log(model: str, signature: str, inputs: Mapping[str, np.ndarray]) -> bytes:
    """Encodes a PredictionLog with a PredictRequest.

    Args:
        model: the name that the model is served by.
        signature: its signature.
        inputs: values by name.

    Example:

    >>> b"encode_text" in prediction_log("m", "encode_text", {"text": np.array([b"a dog"], object)})
    True
    """
    # tensorflow_serving/apis: ModelSpec.name = 1, signature_name = 3; PredictRequest.model_spec = 1,
    # inputs = 2 (a map: key = 1, value = 2); PredictLog.request = 1; PredictionLog.predict_log = 6.
    spec = _field(1, model.encode()) + _field(3, signature.encode())
    request = _field(1, spec)
    for name, values in sorted(inputs.items()):
        tensor = tf.make_tensor_proto(values.tolist() if values.dtype == object else values)
        request += _field(2, _field(1, name.encode()) + _field(2, tensor.SerializeToString()))
    return _field(6, _field(1, request))


def _field(number: int, content: bytes) -> bytes:
    """Encodes a field of bytes: key, length, content."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])

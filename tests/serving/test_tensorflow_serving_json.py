"""The cases of TensorFlow Serving's own test of its JSON, `json_tensor_test.cc` as of 2022, with their results.

Left out, because `vsemb serve` answers them with UNIMPLEMENTED: requests and answers of `classify` and `regress`.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from vsemb.serving.models import LoadedSignature
from vsemb.serving.rest_json import Request, decode, encode
from vsemb.serving.status import Code, RequestError

LARGEST, SMALLEST = (getattr(np.finfo(np.float64), name) for name in ("max", "tiny"))
NAN, INF = float("nan"), float("inf")
PAIRS = [[[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 0], [1, 2]]]


def asked(body: str, **types: tf.DType) -> Request:
    """Reads a request; the inputs have these types and any shape."""
    inputs = {name: tf.TensorSpec(None, dtype) for name, dtype in types.items()}
    signatures = {name: LoadedSignature(name, inputs, {}, {}) for name in ("serving_default", "predict_images")}
    return decode(body.encode(), signatures, 4096)


@pytest.mark.parametrize(
    ("body", "dtype", "expected"),
    [
        ('{"instances": [[1,2],[3,4],[5,6]]}', tf.int32, [[1, 2], [3, 4], [5, 6]]),
        # Numbers with and without a point.
        ('{"instances": [1, 2.0, 3, 4, 5.003, 0.007, 0.0]}', tf.float32, [1, 2, 3, 4, 5.003, 0.007, 0]),
        ('{"instances": [1.0, 2, 3, 4, 0.662, 0, 0.0]}', tf.float64, [1, 2, 3, 4, 0.662, 0, 0]),
        # Too many digits for float32.
        ('{"instances": [1435774380]}', tf.float32, [1435774380]),
        ('{"instances": [1435774380.0]}', tf.float32, [1435774380]),
        # Beyond the range of float32.
        (f'{{"instances": [{LARGEST}]}}', tf.float32, [INF]),
        (f'{{"instances": [{-LARGEST}]}}', tf.float32, [-INF]),
        (f'{{"instances": [{SMALLEST}]}}', tf.float32, [0.0]),
        (f'{{"instances": [{-SMALLEST}]}}', tf.float32, [-0.0]),
        ('{"signature_name": "predict_images", "instances": [[1,2]]}', tf.int32, [[1, 2]]),
        # Bytes.
        ('{"instances": [{"b64" : "aGVsbG8="}, {"b64": "d29ybGQ="}]}', tf.string, [b"hello", b"world"]),
        ('{"instances": [[{"b64" : "aGVsbG8="}], [{"b64": "d29ybGQ="}]]}', tf.string, [[b"hello"], [b"world"]]),
        (
            '{"instances": [{"default": [[{"b64" : "aGVsbG8="}], [{"b64": "d29ybGQ="}]]}]}',
            tf.string,
            [[[b"hello"], [b"world"]]],
        ),
        # Columns, with and without the name of the input.
        ('{"inputs": {"default": [[[1,2],[3,4],[5,6]]]}}', tf.int32, [[[1, 2], [3, 4], [5, 6]]]),
        ('{"inputs": [[[1,2],[3,4],[5,6]]]}', tf.int32, [[[1, 2], [3, 4], [5, 6]]]),
    ],
)
def test_one_input(body: str, dtype: tf.DType, expected: list) -> None:
    request = asked(body, default=dtype)
    assert request.rows == ("instances" in body)
    assert request.signature.name == ("predict_images" if "predict_images" in body else "serving_default")
    wanted = np.array(expected, object if dtype == tf.string else dtype.as_numpy_dtype)
    np.testing.assert_array_equal(request.inputs["default"], wanted)
    if dtype.is_floating:
        np.testing.assert_array_equal(np.signbit(request.inputs["default"]), np.signbit(wanted))


def test_several_inputs_in_rows() -> None:
    rows = [
        {"ints": PAIRS[0], "strings": ["foo", "bar"], "floats": [1.0, NAN], "doubles": [NAN]},
        {"ints": PAIRS[1], "strings": ["baz", "bat"], "floats": [2.0, INF], "doubles": [2.0]},
    ]
    types = {"ints": tf.int32, "strings": tf.string, "floats": tf.float32, "doubles": tf.float64}
    inputs = asked(json.dumps({"instances": rows}), **types).inputs
    assert inputs["ints"].tolist() == PAIRS
    assert inputs["strings"].tolist() == [[b"foo", b"bar"], [b"baz", b"bat"]]
    np.testing.assert_array_equal(inputs["floats"], np.array([[1, NAN], [2, INF]], np.float32))
    np.testing.assert_array_equal(inputs["doubles"], [[NAN], [2]])


def test_several_inputs_in_columns() -> None:
    columns = {"ints": PAIRS[:1], "strings": ["foo", "bar"], "binary": {"b64": "aGVsbG8="}}
    inputs = asked(json.dumps({"inputs": columns}), ints=tf.int32, strings=tf.string, binary=tf.string).inputs
    assert {name: value.tolist() for name, value in inputs.items()} == {
        "ints": PAIRS[:1],
        "strings": [b"foo", b"bar"],
        "binary": b"hello",
    }


INTS = {"default": tf.int32}
TWO = {"ints": tf.int32, "strings": tf.string}


@pytest.mark.parametrize(
    ("body", "types", "message"),
    [
        ("", INTS, "document is empty"),
        ('{"signature_name": 5, "instances": [[1,2],[3,4],[5,6,7]]}', INTS, "must be a string value"),
        ('{"instances": [[1,2]], "inputs": [[1,2]]}', INTS, "Not formatted correctly"),
        ('{"instances": [[1,2],[3,4],[5,6,7]]}', INTS, "Expecting tensor size"),
        ('{"instances": [[1,2],[3,4],[[5,6]]]}', INTS, "Expecting shape"),
        ('{"instances": [1, [1]]}', INTS, "Expecting shape"),
        ('{"instances": [[1,2],["a", "b"]]}', INTS, "not of expected type"),
        (
            '{"instances": [{"ints": [[1,2],[3,4]], "strings": ["a"]}, {"ints": [[[1,2],[3,4]]], "strings": ["b"]}]}',
            TWO,
            "Expecting shape",
        ),
        (
            '{"instances": [{"ints": [[1,2],[3,4]], "strings": ["a"]}, {"ints": [[1,2]], "strings": ["b"]}]}',
            TWO,
            "Expecting tensor size",
        ),
        ('{"instances": [{"ints": [1], "strings": ["a"]}, [1, 20, 30]]}', TWO, "Expecting object but got list"),
        (
            '{"instances": [["baz", "bar"], {"strings": ["baz", "bat"]}]}',
            {"strings": tf.string},
            "Expecting value/list but got object",
        ),
    ],
)
def test_requests_that_are_refused(body: str, types: dict[str, tf.DType], message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        asked(body, **types)
    assert caught.value.code is Code.INVALID_ARGUMENT


def strings(values: list) -> np.ndarray:
    return np.array(values, object)


SEVERAL = {
    "doubles": np.array([8.0, 9.0]),
    "floats": np.array([[1.0], [2.0]], np.float32),
    "ints": np.array(PAIRS, np.int32),
    "strings": strings([[b"foo", b"bar"], [b"baz", b"bat"]]),
    "strings_bytes": strings([[b"hello", b"world"], [b"tf", b"serving"]]),
}
BASE64 = [[{"b64": "aGVsbG8="}, {"b64": "d29ybGQ="}], [{"b64": "dGY="}, {"b64": "c2VydmluZw=="}]]
COLUMNS: dict[str, Any] = {
    "doubles": [8.0, 9.0],
    "floats": [[1.0], [2.0]],
    "ints": PAIRS,
    "strings": [["foo", "bar"], ["baz", "bat"]],
    "strings_bytes": BASE64,
}


@pytest.mark.parametrize(
    ("outputs", "rows", "columns"),
    [
        ({"ints": np.array(PAIRS, np.int32)}, PAIRS, PAIRS),
        ({"ints": np.arange(1, 6)}, [1, 2, 3, 4, 5], [1, 2, 3, 4, 5]),
        ({"strings_bytes": SEVERAL["strings_bytes"]}, BASE64, BASE64),
        (SEVERAL, [{name: column[row] for name, column in COLUMNS.items()} for row in range(2)], COLUMNS),
        # No rows.
        ({"ints": np.zeros((0, 2), np.int32)}, [], []),
        ({"a": strings([]).reshape(0, 1, 2), "b": np.zeros((0, 3, 4), np.float32)}, [], {"a": [], "b": []}),
    ],
)
def test_answers(outputs: dict, rows: list, columns: Any) -> None:
    assert json.loads(encode(outputs, rows=True)) == {"predictions": rows}
    assert json.loads(encode(outputs, rows=False)) == {"outputs": columns}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        # TensorFlow Serving writes the first and the fifth number as 9e+06 and 3e-05.
        (
            [[9000000, 999999, 0.5], [0.0003, 0.00003, 555557.5]],
            "[[9000000.0, 999999.0, 0.5], [0.0003, 3e-05, 555557.5]]",
        ),
        ([[NAN, INF], [3, -INF]], "[[NaN, Infinity], [3.0, -Infinity]]"),
    ],
)
def test_digits_of_answers(values: list, text: str) -> None:
    assert encode({"y": np.array(values, np.float32)}, rows=True).decode() == f'{{"predictions": {text}}}'


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({}, "empty tensor map"),
        ({"y": np.zeros(2, np.complex64)}, "tensor type: complex64"),
        ({"y": np.array(1, np.int32)}, "no shape information"),
        ({"a": np.zeros((2, 3), np.int32), "b": strings([[b"foo", b"bar", b"baz"]])}, "inconsistent batch size"),
        ({"a": np.zeros((0, 2), np.int32), "b": strings([[b"foo", b"bar"]])}, "inconsistent batch size"),
    ],
)
def test_answers_that_cannot_be_written(outputs: dict, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        encode(outputs, rows=True)
    assert caught.value.code is Code.INVALID_ARGUMENT

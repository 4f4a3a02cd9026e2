"""The JSON of `:predict`, without a server."""

from __future__ import annotations

import gc
import json

import numpy as np
import pytest
import tensorflow as tf

from vsemb.serving.models import LoadedSignature
from vsemb.serving.rest_json import Request, decode, encode
from vsemb.serving.status import Code, RequestError


def signature(**inputs: tuple[tf.DType, tuple[int | None, ...]]) -> LoadedSignature:
    return LoadedSignature("s", {name: tf.TensorSpec(shape, dtype) for name, (dtype, shape) in inputs.items()}, {}, {})


FLOATS = signature(x=(tf.float32, (None,)))
MATRIX = signature(x=(tf.float32, (None, 2)))
INTS = signature(x=(tf.int32, (None,)))
TEXTS = signature(text=(tf.string, (None,)))
TWO = signature(a=(tf.float32, (None,)), b=(tf.string, (None,)))
QUERY = signature(k=(tf.int32, (None,)), text=(tf.string, (None,))).inputs
SEARCH = LoadedSignature("s", QUERY, {}, {"k": np.array([10])})


def decoded(body: str | bytes, wanted: LoadedSignature = FLOATS) -> Request:
    return decode(body if isinstance(body, bytes) else body.encode(), {"serving_default": wanted}, 4096)


@pytest.mark.parametrize(
    ("body", "wanted", "expected"),
    [
        ('{"instances": [1, 2.5]}', FLOATS, {"x": [1, 2.5]}),
        ('{"inputs": [1, 2.5]}', FLOATS, {"x": [1, 2.5]}),
        ('{"inputs": {"x": [1, 2.5]}}', FLOATS, {"x": [1, 2.5]}),
        ('{"instances": [{"x": 1}, {"x": 2.5}]}', FLOATS, {"x": [1, 2.5]}),
        ('{"inputs": 3}', FLOATS, {"x": 3}),
        ('{"inputs": []}', FLOATS, {"x": []}),
        ('{"instances": [[1, 2], [3, 4]]}', MATRIX, {"x": [[1, 2], [3, 4]]}),
        ('{"instances": ["é", {"b64": "/9g="}]}', TEXTS, {"text": ["é".encode(), b"\xff\xd8"]}),
        ('{"instances": [{"b64": "/9g"}]}', TEXTS, {"text": [b"\xff\xd8"]}),
        ('{"inputs": {"b64": "/9g="}}', TEXTS, {"text": b"\xff\xd8"}),
        ('{"instances": [{"a": 1, "b": "u"}, {"b": "v", "a": 2}]}', TWO, {"a": [1, 2], "b": [b"u", b"v"]}),
        ('{"inputs": {"a": [1], "b": ["u", "v"]}}', TWO, {"a": [1], "b": [b"u", b"v"]}),
        ('{"inputs": {"a": [1], "b": ["u"], "c": 1}, "more": 1}', TWO, {"a": [1], "b": [b"u"]}),
        ('{"instances": ["a", "b"]}', SEARCH, {"text": [b"a", b"b"]}),
        ('{"instances": [{"text": "a"}]}', SEARCH, {"text": [b"a"]}),
        ('{"instances": [{"text": "a", "k": 3}]}', SEARCH, {"k": [3], "text": [b"a"]}),
        ('{"inputs": ["a"]}', SEARCH, {"text": [b"a"]}),
        ('{"inputs": {"text": ["a"]}}', SEARCH, {"text": [b"a"]}),
    ],
)
def test_what_is_accepted(body: str, wanted: LoadedSignature, expected: dict) -> None:
    request = decoded(body, wanted)
    assert request.rows == ("instances" in json.loads(body))
    assert {name: array.tolist() for name, array in request.inputs.items()} == expected
    for name, array in request.inputs.items():
        spec = wanted.inputs[name].dtype
        assert array.dtype == (object if spec == tf.string else spec.as_numpy_dtype)


def test_not_a_number_and_infinity_are_read() -> None:
    array = decoded('{"instances": [NaN, Infinity, -Infinity]}').inputs["x"]
    np.testing.assert_array_equal(array, np.array([np.nan, np.inf, -np.inf], np.float32))


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("16777216", 16777216.0),
        ("16777217", 16777216.0),
        ("-16777217", -16777216.0),
        ("1435774380", 1435774336.0),
        ("18446744073709551615", 2.0**64),
        ("1" + "0" * 38, np.float32(1e38)),
        ("3.4028235e38", np.finfo(np.float32).max),
        ("3.4028236e38", np.inf),
        ("-1e39", -np.inf),
        ("1e-50", 0.0),
    ],
)
def test_numbers_are_rounded_to_the_type(number: str, expected: float) -> None:
    assert decoded(f'{{"instances": [{number}]}}').inputs["x"].tolist() == [expected]
    # The same of half, whose range is smaller.
    half = decoded(f'{{"inputs": [{number}]}}', signature(x=(tf.float16, (None,)))).inputs["x"]
    assert half.dtype == np.float16 and (np.isinf(half) == (abs(expected) > 65519)).all()


def test_a_double_keeps_integers_up_to_its_digits() -> None:
    doubles = signature(x=(tf.float64, (None,)))
    found = decoded('{"inputs": [9007199254740993, 1.7976931348623157e308]}', doubles).inputs["x"]
    assert found.tolist() == [2.0**53, np.finfo(np.float64).max]


def test_the_document_ends_with_the_body_or_a_zero() -> None:
    assert decoded('{"instances": [1, 2]}' + "\0" + "more").inputs["x"].tolist() == [1, 2]
    assert decoded('\ufeff{"instances": [1, 2]} \n').inputs["x"].tolist() == [1, 2]


def test_of_equal_keys_the_first_counts() -> None:
    assert decoded('{"inputs": [1], "inputs": [2]}').inputs["x"].tolist() == [1]
    assert decoded('{"inputs": {"x": [1], "x": [2]}}').inputs["x"].tolist() == [1]
    assert decoded('{"instances": [{"x": 1, "x": "a"}, {"x": 3, "x": 4}]}').inputs["x"].tolist() == [1, 3]


def test_short_names_of_infinity_are_read() -> None:
    found = decoded('{"instances": [Inf, -Inf, Infinity, -NaN]}').inputs["x"]
    np.testing.assert_array_equal(found, np.array([np.inf, -np.inf, np.inf, np.nan], np.float32))
    texts = decoded('{"inputs": {"a": [-Inf], "b": ["Inf \\" Inf", "-NaN"]}}', TWO).inputs["b"]
    assert texts.tolist() == [b'Inf " Inf', b"-NaN"]


def test_numbers_are_read_as_bfloat16() -> None:
    wanted = signature(x=(tf.bfloat16, (None,)))
    assert decoded('{"inputs": [1, 2.5]}', wanted).inputs["x"].tolist() == [1, 2.5]
    assert decoded('{"inputs": [257, 1e39]}', wanted).inputs["x"].tolist() == [256, np.inf]


def test_nesting_that_is_just_read_is_no_failure_of_the_server() -> None:
    # Where reading ends depends on the stack; what is read there is deeper than what is written.
    for depth in range(700, 1000, 3):
        with pytest.raises(RequestError) as caught:
            decoded('{"inputs": ' + '{"y":' * depth + "1" + "}" * depth + "}")
        assert caught.value.code is Code.INVALID_ARGUMENT
        with pytest.raises(RequestError) as caught:
            decoded('{"inputs": {"x": ' + '{"y":' * depth + "1" + "}" * depth + "}}")
        assert caught.value.code is Code.INVALID_ARGUMENT


BAD = "Failed to process element: "
AT = " of 'instances' list. Error: INVALID_ARGUMENT: "


@pytest.mark.parametrize(
    ("body", "wanted", "message"),
    [
        ("", FLOATS, "JSON Parse error: The document is empty"),
        ("{", FLOATS, "JSON Parse error: "),
        (b"\xff", FLOATS, "JSON Parse error: Not UTF-8 at offset: 0"),
        ("[" * 5_000, FLOATS, "JSON Parse error: "),
        ('{"inputs": [' + "9" * 5000 + "]}", INTS, "JSON Parse error: "),
        ("[1]", FLOATS, "JSON Value: [1] Is not object"),
        ("{}", FLOATS, "Missing 'inputs' or 'instances' key"),
        ('{"signature_name": 1}', FLOATS, "'signature_name' key must be a string value."),
        ('{"instances": [1], "inputs": [1]}', FLOATS, "expecting only one of 'inputs' or 'instances'"),
        ('{"instances": 1}', FLOATS, "Expecting 'instances' to be an list/array"),
        ('{"instances": []}', FLOATS, "No values in 'instances' array"),
        ('{"instances": [1, {"x": 1}]}', FLOATS, "Expecting value/list but got object at item 1"),
        ('{"instances": [{"x": 1}, 1]}', FLOATS, "Expecting object but got list at item 1 of input list"),
        ('{"instances": [1, 2]}', TWO, "instances is a plain list, but expecting list of objects"),
        ('{"instances": [{"b64": "QQ=="}]}', TWO, "instances is a plain list, but expecting list of objects"),
        ('{"instances": [{"y": 1}]}', FLOATS, f"{BAD}0 key: y{AT}JSON object: does not have named input: y"),
        ('{"instances": [{"a": 1}]}', TWO, 'JSON object: {"a": 1} keys must be equal to: a,b'),
        ('{"instances": [{"k": 3}]}', SEARCH, 'JSON object: {"k": 3} keys must be equal to: k,text'),
        ('{"instances": [{"text": "a"}, {"text": "a", "k": 3}]}', SEARCH, "keys must be equal to: text"),
        ('{"inputs": {"k": [3]}}', SEARCH, "Missing named input: text in 'inputs' object."),
        ('{"inputs": [1]}', TWO, "inputs is a plain value/list, but expecting an object as multiple"),
        ('{"inputs": {"a": [1]}}', TWO, "Missing named input: b in 'inputs' object."),
        (
            '{"instances": [1, "a"]}',
            FLOATS,
            f'{BAD}1{AT}JSON Value: "a" Type: String is not of expected type: float',
        ),
        ('{"instances": [true]}', FLOATS, "JSON Value: true Type: True is not of expected type: float"),
        ('{"instances": [null]}', FLOATS, "JSON Value: null Type: Null is not of expected type: float"),
        ('{"instances": [1.0]}', INTS, "JSON Value: 1.0 Type: Number is not of expected type: int32"),
        ('{"instances": [2147483648]}', INTS, "2147483648 Type: Number is not of expected type: int32"),
        ('{"instances": [1e400]}', FLOATS, "JSON Parse error: Number too big to be stored in double."),
        ('{"instances": [1, 2]} 3', FLOATS, "JSON Parse error: "),
        ('{"instances": [1' + "\0" + "2]}", FLOATS, "JSON Parse error: "),
        ('{"instances": [1, +Inf]}', FLOATS, "JSON Parse error: "),
        ('{"instances": [1' + "0" * 400 + "]}", FLOATS, "JSON Parse error: Number too big to be stored in double."),
        ('{"instances": [1]}', TEXTS, "JSON Value: 1 Type: Number is not of expected type: string"),
        ('{"inputs": [{"b64": "!"}]}', TEXTS, "Unable to base64 decode"),
        ('{"inputs": [{"b64": 1}]}', TEXTS, "not formatted correctly for base64 data"),
        ('{"inputs": ["\\ud800"]}', TEXTS, "is not valid Unicode"),
        ('{"instances": [[1], [1, 2]]}', MATRIX, f"{BAD}1{AT}Expecting tensor size: 1 but got: 2"),
        ('{"instances": [[[1, 2]], [[1], [2]]]}', MATRIX, f"{BAD}1{AT}Expecting shape [1,2] but got: [2,1]"),
        (
            '{"instances": [[1, [2]]]}',
            MATRIX,
            f"{BAD}0{AT}Encountered list at unexpected level: 1 expected < 1",
        ),
        ('{"instances": [[[2], 1]]}', MATRIX, f"{BAD}0{AT}JSON Value: 1 found at incorrect level: 2 in"),
        ('{"inputs": ' + "[" * 65 + "1" + "]" * 65 + "}", FLOATS, "Encountered list at unexpected level: 64"),
        (
            '{"inputs": [[1], [1, 2]]}',
            MATRIX,
            "Encountered list at unexpected size: 2 at level: 1 expected size: 1",
        ),
    ],
)
def test_what_is_refused(body: str | bytes, wanted: LoadedSignature, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        decoded(body, wanted)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert message in caught.value.message
    assert len(caught.value.message) < 600


def test_rows_and_columns_of_one_and_of_several_outputs() -> None:
    one = {"y": np.array([2.5, 3.0], np.float32)}
    assert encode(one, rows=True) == b'{"predictions": [2.5, 3.0]}'
    assert encode(one, rows=False) == b'{"outputs": [2.5, 3.0]}'
    several = {"n": np.array([2**62, 1]), "flag": np.array([True, False])}
    rows = [{"flag": True, "n": 2**62}, {"flag": False, "n": 1}]
    assert json.loads(encode(several, rows=True)) == {"predictions": rows}
    assert json.loads(encode(several, rows=False)) == {"outputs": {"flag": [True, False], "n": [2**62, 1]}}


def test_only_outputs_named_bytes_are_base64() -> None:
    values = np.array([b"\xff\xd8", "é".encode()], dtype=object)
    assert json.loads(encode({"raw_bytes": values}, rows=True)) == {"predictions": [{"b64": "/9g="}, {"b64": "w6k="}]}
    assert json.loads(encode({"raw": values[1:]}, rows=True)) == {"predictions": ["é"]}
    with pytest.raises(RequestError, match="raw holds invalid UTF-8") as caught:
        encode({"raw": values}, rows=True)
    assert caught.value.code is Code.INTERNAL


def test_special_numbers_are_the_literals_of_javascript() -> None:
    values = np.array([np.nan, np.inf, -np.inf], np.float32)
    assert encode({"y": values}, rows=True) == b'{"predictions": [NaN, Infinity, -Infinity]}'


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"y": np.float32(1)}, "Tensor name: y has no shape information"),
        ({"a": np.zeros(2), "b": np.zeros(3)}, "Tensor name: b has inconsistent batch size: 3 expecting: 2"),
    ],
)
def test_what_is_no_rows_can_only_be_asked_for_in_columns(outputs: dict, message: str) -> None:
    outputs = {name: np.asarray(value) for name, value in outputs.items()}
    with pytest.raises(RequestError, match=message):
        encode(outputs, rows=True)
    assert b"outputs" in encode(outputs, rows=False)


def test_floats_are_written_short_and_come_back_the_same() -> None:
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    ordinary = random.standard_normal(20_000).astype(np.float32)
    edges = np.array([0, -0.0, 0.1, 1e-45, 1.1754944e-38, 3.4028235e38, 16777216, 1e15, 1e-12], np.float32)
    values = np.concatenate([bits[np.isfinite(bits)], ordinary, edges])
    written = json.loads(encode({"y": values}, rows=False))["outputs"]
    # The value comes back bit by bit, with no more digits than NumPy's shortest form of a float32.
    assert np.array_equal(np.array(written, np.float32).view(np.uint32), values.view(np.uint32))
    digits = [len(repr(one).split("e")[0].strip("-0.").replace(".", "").rstrip("0")) for one in written]
    fewest = [len(str(one).split("e")[0].strip("-0.").replace(".", "").rstrip("0")) for one in values]
    assert max(digits) <= 9
    assert all(mine <= best for mine, best in zip(digits, fewest, strict=True))


class Cycle:
    """Garbage whose destructor needs some stack, as those of TensorFlow's objects do."""

    ended = 0

    def __init__(self) -> None:
        self.own = self

    def __del__(self) -> None:
        def down(depth: int) -> None:
            if depth:
                down(depth - 1)

        down(60)
        Cycle.ended += 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_deep_document_does_not_break_destructors() -> None:
    before, made = gc.get_threshold(), range(600, 1000, 10)
    try:
        # So that some collection comes where the stack is nearly used up.
        for allocations in made:
            gc.collect()
            Cycle()
            gc.set_threshold(allocations, 1000, 1000)
            with pytest.raises(RequestError, match="nested too deeply"):
                decode(b"[" * 5000, {}, 4096)
            gc.set_threshold(*before)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert Cycle.ended == len(made) and gc.isenabled()

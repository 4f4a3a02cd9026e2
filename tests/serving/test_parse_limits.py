"""Limits of what requests become in memory, found before they are parsed."""

from __future__ import annotations

import json
import random
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from tests.serving.asking import ask
from vsemb.serving.models import LoadedSignature
from vsemb.serving.parse_limits import count_fields, require_json_size
from vsemb.serving.rest_json import decode
from vsemb.serving.server import Server
from vsemb.serving.status import Code, RequestError

REQUEST = predict_pb2.PredictRequest.DESCRIPTOR


def signature(**inputs: tf.TensorSpec) -> LoadedSignature:
    return LoadedSignature("s", inputs, {}, {})


TEXT = signature(text=tf.TensorSpec([None], tf.string))
FEATURES = signature(image=tf.TensorSpec([None, 3, 2], tf.float32), k=tf.TensorSpec([None], tf.int32))
OPEN = signature(ids=tf.TensorSpec([None, None], tf.int32))

# The most that 1,000 rows can hold, as rows and as columns.
ENCODED = {"b64": "LHt7Wyw="}
LEGAL = [
    (TEXT, {"instances": [{"text": ENCODED}] * 1000}),
    (TEXT, {"inputs": {"text": [ENCODED] * 1000}}),
    (TEXT, {"instances": ['a, {[ "b" \\'] * 1000}),
    (TEXT, {"instances": [',{[\\"' * 1000] * 1000}),
    (FEATURES, {"instances": [{"image": [[1, 2]] * 3, "k": 1}] * 1000}),
    (FEATURES, {"inputs": {"image": [[[1, 2]] * 3] * 1000, "k": [1] * 1000}}),
    (OPEN, {"instances": [[1] * 500] * 1000}),
]


@pytest.mark.parametrize(("wanted", "document"), LEGAL)
def test_the_largest_legal_requests_pass(wanted: LoadedSignature, document: dict) -> None:
    require_json_size(json.dumps(document).encode(), [wanted], 1000)


@pytest.mark.parametrize("part", [b"{},", b"[],", b'{"a":1},', b'"\\"",{},'])
def test_many_empty_rows_are_refused(part: bytes) -> None:
    for wanted in (TEXT, FEATURES) if b'"' in part else (TEXT, FEATURES, OPEN):
        refused(b'{"instances":[' + part * 150_000 + b"{}]}", wanted)


def refused(many: bytes, wanted: LoadedSignature) -> None:
    with pytest.raises(RequestError) as caught:
        require_json_size(many, [wanted], 1000)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_many_strings_are_no_request_for_texts() -> None:
    refused(b'["ab"' + b',"ab"' * 10_000 + b"]", TEXT)
    require_json_size(b'["ab"' + b',"ab"' * 10_000 + b"]", [TEXT], 10_000)


def test_a_string_without_end_takes_time_in_proportion_to_its_length() -> None:
    # "Inf" has the strings searched for it.
    started = time.process_time()
    with pytest.raises(RequestError, match="JSON Parse error"):
        decode(b'[Inf, "' + b'\\"' * 200_000, {"serving_default": TEXT}, 1000)
    assert time.process_time() - started < 1


def test_fields_are_counted_in_all_messages_of_a_message() -> None:
    made = predict_pb2.PredictRequest()
    assert count_fields(made.SerializeToString(), REQUEST, 100) == 0
    made.model_spec.name = "a"
    made.model_spec.version.value = 1 << 40
    made.inputs["x"].CopyFrom(tf.make_tensor_proto(np.zeros((2, 3), np.float32)))
    made.inputs["x"].float_val.extend([0.5] * 100)
    # Spec: itself, name, version, its value. Input: itself, key, tensor; type, shape, 2 sizes in 2 fields, floats. The
    # zeros are one more field.
    assert count_fields(made.SerializeToString(), REQUEST, 100) == 4 + 3 + 1 + 1 + 4 + 1 + 1
    made.inputs["x"].string_val.extend([b""] * 1000)
    assert count_fields(made.SerializeToString(), REQUEST, 2000) == 1015
    assert count_fields(made.SerializeToString(), REQUEST, 100) == 101


def test_malformed_messages_are_left_to_the_parser() -> None:
    made = predict_pb2.PredictRequest()
    made.model_spec.name = "a" * 300
    made.inputs["x"].CopyFrom(tf.make_tensor_proto(["a", "b"]))
    whole, generator = made.SerializeToString(), random.Random(0)
    for _ in range(300):
        broken = bytearray(whole[: generator.randrange(len(whole))])
        for _ in range(min(3, len(broken))):
            broken[generator.randrange(len(broken))] = generator.randrange(256)
        assert count_fields(bytes(broken), REQUEST, 1000) <= 1000
    started = time.process_time()
    assert count_fields(b"\xff" * 2**20, REQUEST, 1000) == 1
    assert time.process_time() - started < 0.5


def test_both_apis_refuse_requests_that_would_not_fit(server: Server) -> None:
    rows = b'{"instances": [' + b"{}," * 50_000 + b"{}]}"
    status, answer = ask(server.rest_port, "POST", "/v1/models/everything:predict", rows)
    assert status == 400 and "Send it in parts" in answer["error"]
    # Empty entries of `inputs`, which take 80 times their bytes.
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        predict = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        with pytest.raises(grpc.RpcError, match="fields") as caught:
            predict(b"\x12\x00" * 270_000, timeout=60)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert server.predictor.bytes.used == 0

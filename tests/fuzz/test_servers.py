"""Damaged requests to a running server: an answer or a refusal of the client's, and the next good one is right."""

from __future__ import annotations

import http.client
import json

import grpc
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tensorflow_serving.apis import predict_pb2

from tests.fuzz.mutations import damaged, dumped, edits, json_values, with_value
from tests.serving.asking import ask
from tests.serving.conftest import everything, server  # noqa: F401
from vsemb.serving.server import Server

pytestmark = pytest.mark.slow
PREDICT = "/v1/models/everything:predict"
BODIES = [
    {"instances": [1, 2.5]},
    {"signature_name": "two", "inputs": {"a": [[1, 2]], "b": [3]}},
    {"signature_name": "strings", "instances": ["a", {"b64": "Yg=="}]},
    {"signature_name": "widest", "inputs": [3]},
]
GOOD = {"predictions": [2.5]}
REFUSED = {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED"}


def post(running: Server, body: bytes) -> None:
    status, answer = ask(running.rest_port, "POST", PREDICT, body)
    assert status == 200 or list(answer) == ["error"]
    # The test's model gives bytes back under a name of text.
    assert status < 500 or "holds invalid UTF-8" in answer["error"]


@given(body=st.sampled_from(BODIES), place=st.integers(0, 20), value=json_values)
def test_other_values_in_json(server: Server, body: dict, place: int, value) -> None:  # noqa: F811
    post(server, dumped(with_value(body, place, value)))


@given(body=st.sampled_from(BODIES), changes=edits)
def test_damaged_json(server: Server, body: dict, changes) -> None:  # noqa: F811
    post(server, damaged(json.dumps(body).encode(), changes))
    assert ask(server.rest_port, "POST", PREDICT, {"instances": [1]}) == (200, GOOD)


@given(
    method=st.sampled_from(["GET", "POST", "HEAD", "PUT", "OPTIONS"]),
    path=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30),
)
def test_paths(server: Server, method: str, path: str) -> None:  # noqa: F811
    for prefix in ("/", "/v1/models/", "/v1/models/everything/"):
        try:
            assert ask(server.rest_port, method, prefix + path, b"")[0] < 502
        except (http.client.InvalidURL, json.JSONDecodeError):
            continue


def test_requests_of_the_openapi_description(server: Server) -> None:  # noqa: F811
    schemathesis = pytest.importorskip("schemathesis", reason="the extra dev is not installed")
    from schemathesis import checks

    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{server.rest_port}/openapi.json")
    kept = [checks.not_a_server_error, checks.status_code_conformance, checks.response_schema_conformance]
    operations = [each.ok() for each in schema.get_all_operations()]
    assert [each.path for each in operations][2:] == [PREDICT]
    for operation in operations:

        @given(case=operation.as_strategy())
        def asked(case) -> None:
            response = case.call()
            # The test's model gives bytes back under a name of text.
            if response.status_code == 500 and "holds invalid UTF-8" in response.text:
                return
            # These literals are no JSON, and have no schema.
            strict = not any(each in response.content for each in (b"NaN", b"Infinity"))
            case.validate_response(response, checks=kept if strict else kept[:2])

        asked()


def predict_request() -> bytes:
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "everything", "two"
    request.inputs["a"].CopyFrom(tf.make_tensor_proto(np.ones((2, 2), np.float32)))
    request.inputs["b"].CopyFrom(tf.make_tensor_proto(np.array([3, 4], np.int32)))
    return request.SerializeToString(deterministic=True)


@given(changes=edits)
def test_damaged_protos(server: Server, changes) -> None:  # noqa: F811
    content = damaged(predict_request(), changes)
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        try:
            predict_pb2.PredictResponse.FromString(call(content, timeout=30))
        except grpc.RpcError as error:
            assert error.code().name in REFUSED, error
        predict_pb2.PredictResponse.FromString(call(predict_request(), timeout=30))

"""The gRPC API of a running server, through TensorFlow Serving's own stubs."""

from __future__ import annotations

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from vsemb.serving.server import Server


@pytest.fixture(scope="module")
def channel(server: Server):
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield channel


@pytest.fixture(scope="module")
def predict(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict


def request(name: str = "everything", signature: str = "", filter=(), **inputs) -> predict_pb2.PredictRequest:
    made = predict_pb2.PredictRequest(output_filter=filter)
    made.model_spec.name, made.model_spec.signature_name = name, signature
    for key, value in inputs.items():
        made.inputs[key].CopyFrom(value if hasattr(value, "tensor_shape") else tf.make_tensor_proto(value))
    return made


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_an_answer_names_the_version_and_signature_that_gave_it(predict) -> None:
    response = predict(request(x=floats(1, 2, 5)))
    assert list(response.outputs["y"].float_val) == [2.5, 3.0, 4.5]
    spec = response.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("everything", 1, "serving_default")


def test_types_and_strings(predict) -> None:
    two = request(signature="two", a=np.ones((2, 2), np.float32), b=np.array([3, 4], np.int32))
    outputs = predict(two).outputs
    assert list(outputs["big"].int64_val) == [2**53 + 3, 2**53 + 4]
    assert list(outputs["odd"].bool_val) == [True, False]
    outputs = predict(request(signature="strings", text=[b"a", b"\xff"])).outputs
    assert list(outputs["raw_bytes"].string_val) == [b"a", b"\xff"]
    for proto in outputs.values():
        assert tf.make_ndarray(proto).shape == (2,)
    assert tf.make_ndarray(predict(request(signature="scalar", x=np.float32(2))).outputs["y"]) == 4


def test_output_filter(predict) -> None:
    assert list(predict(request(signature="strings", filter=["upper"], text=["a"])).outputs) == ["upper"]


def test_versions_and_labels(predict) -> None:
    by_number, by_label = request(x=floats(1)), request(x=floats(1))
    by_number.model_spec.version.value = 1
    by_label.model_spec.version_label = "stable"
    for made in (by_number, by_label):
        assert predict(made).model_spec.version.value == 1


def with_version(number: int = 0, label: str = "") -> predict_pb2.PredictRequest:
    made = request(x=floats(1))
    if label:
        made.model_spec.version_label = label
    else:
        made.model_spec.version.value = number
    return made


def broken(**fields):
    proto = tf.make_tensor_proto(floats(1, 2))
    if "size" in fields:
        proto.tensor_shape.dim[0].size = fields["size"]
    if "content" in fields:
        proto.tensor_content = fields["content"]
    return proto


@pytest.mark.parametrize(
    ("made", "code", "message"),
    [
        (request(""), "INVALID_ARGUMENT", "Missing ModelSpec"),
        (request("none"), "NOT_FOUND", "Servable not found for request: Latest(none)"),
        (with_version(7), "NOT_FOUND", "Servable not found for request: Specific(everything, 7)"),
        (with_version(label="none"), "INVALID_ARGUMENT", "Unrecognized servable version label: none"),
        (request(signature="none"), "FAILED_PRECONDITION", 'Serving signature key "none" not found.'),
        (request(), "INVALID_ARGUMENT", "Sent extra: {}. Missing but required: {x}."),
        (request(y=floats(1)), "INVALID_ARGUMENT", "Sent extra: {y}. Missing but required: {x}."),
        (request(x=[1]), "INVALID_ARGUMENT", "Expects input x to be float32 but int32 is provided"),
        (request(x=["a"]), "INVALID_ARGUMENT", "Expects input x to be float32 but string is provided"),
        (request(x=[[1.0]]), "INVALID_ARGUMENT", "Input x has shape [1, 1]; expected: float32 [?]"),
        (request(x=broken(size=10**12)), "INVALID_ARGUMENT", "at most"),
        (
            request(x=broken(size=2**20 + 1)),
            "INVALID_ARGUMENT",
            "at most 1048576 elements",
        ),
        (request(x=TensorProto(dtype=types_pb2.DT_RESOURCE)), "INVALID_ARGUMENT", "Input x must be a tensor"),
        (
            request(x=TensorProto(dtype=types_pb2.DT_BFLOAT16, half_val=[2**31 - 1])),
            "INVALID_ARGUMENT",
            "Input x must be a tensor",
        ),
        (request(x=broken(size=-1)), "INVALID_ARGUMENT", "must be complete; got [-1]"),
        (request(x=broken(content=b"123")), "INVALID_ARGUMENT", "Input x must be a tensor"),
        (request(signature="picky", x=floats(-1)), "INVALID_ARGUMENT", "negative input"),
        (
            request(filter=["z"], x=floats(1)),
            "INVALID_ARGUMENT",
            "output tensor alias not found in signature: z",
        ),
        (request(filter=["y", "y"], x=floats(1)), "INVALID_ARGUMENT", "duplicate output tensor alias: y"),
    ],
)
def test_failures_of_predict(predict, made, code: str, message: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        predict(made)
    assert message in caught.value.details()
    assert caught.value.code().name == code


def test_a_message_that_cannot_be_parsed_is_a_bad_request(channel, caplog) -> None:
    with pytest.raises(grpc.RpcError, match="The message cannot be read") as caught:
        channel.unary_unary("/tensorflow.serving.PredictionService/Predict")(b"\xff")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not caplog.records


def test_metadata(channel) -> None:
    ask = prediction_service_pb2_grpc.PredictionServiceStub(channel).GetModelMetadata
    made = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    made.model_spec.name = "everything"
    response = ask(made)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert signatures.signature_def["two"].inputs["b"].dtype == tf.int32.as_datatype_enum
    assert (response.model_spec.name, response.model_spec.version.value) == ("everything", 1)
    for fields, message in (([], "at least one metadata_field"), (["other"], "other is not supported")):
        bad = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
        bad.model_spec.name = "everything"
        with pytest.raises(grpc.RpcError, match=message) as caught:
            ask(bad)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_status(channel) -> None:
    ask = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus
    made = get_model_status_pb2.GetModelStatusRequest()
    made.model_spec.name = "everything"
    (status,) = ask(made).model_version_status
    assert (status.version, status.state) == (1, get_model_status_pb2.ModelVersionStatus.AVAILABLE)
    assert not status.status.error_code
    made.model_spec.version.value = 7
    with pytest.raises(grpc.RpcError, match="Could not find version 7 of model everything") as caught:
        ask(made)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_what_is_not_implemented_says_so(channel) -> None:
    predictions = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    models = model_service_pb2_grpc.ModelServiceStub(channel)
    for method, made in (
        (predictions.Classify, classification_pb2.ClassificationRequest()),
        (predictions.Regress, regression_pb2.RegressionRequest()),
        (predictions.MultiInference, inference_pb2.MultiInferenceRequest()),
        (models.HandleReloadConfigRequest, model_management_pb2.ReloadConfigRequest()),
    ):
        with pytest.raises(grpc.RpcError, match="is not implemented by this server") as caught:
            method(made)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_message_above_the_limit_is_refused(everything) -> None:
    with (
        Server({"everything": everything}, port=0, rest_port=0, poll=0, max_body=1000) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        with pytest.raises(grpc.RpcError) as caught:
            prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request(x=floats(*range(500))))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

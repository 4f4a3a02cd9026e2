"""Warm-up requests: what tensorflow-serving-api reads in them, and that the model answers each."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from vsemb.errors import DataError
from vsemb.export import warmup
from vsemb.export.warmup import prediction_log, write_warmup


@pytest.fixture(scope="module")
def logs():
    return pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2", reason="the extra serving")


@pytest.mark.parametrize(
    "inputs",
    [
        {"text": np.array([b"a dog"], object)},
        {"text": np.array([b"\xff" * 70_000], object), "k": np.array([3], np.int32)},
        {"vectors": np.ones((2, 300), np.float32)},
    ],
)
def test_the_message_is_the_one_of_the_library(inputs, logs):
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "scenes", "encode_text"
    for name, values in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
    wanted = logs.PredictionLog(predict_log=logs.PredictLog(request=request))
    assert logs.PredictionLog.FromString(prediction_log("scenes", "encode_text", inputs)) == wanted


def test_every_signature_is_warmed_up_and_answers(everything, logs):
    path = everything / "1" / "assets.extra" / "tf_serving_warmup_requests"
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    requests = [logs.PredictionLog.FromString(record).predict_log.request for record in records]
    loaded = tf.saved_model.load(str(everything / "1"))
    assert {request.model_spec.signature_name for request in requests} == set(loaded.signatures)
    assert {request.model_spec.name for request in requests} == {"scenes"}
    assert len(requests) <= 1000
    for request in requests:
        inputs = {name: tf.constant(tf.make_ndarray(value)) for name, value in request.inputs.items()}
        outputs = loaded.signatures[request.model_spec.signature_name](**inputs)
        assert outputs["valid"].numpy().tolist() == [True]


def test_too_many_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(warmup, "MOST_RECORDS", 2)
    request = ("encode_text", {"text": np.array([b"a"], object)})
    write_warmup(tmp_path, "scenes", [request] * 2)
    with pytest.raises(DataError, match="3 warm-up requests are more than the 2"):
        write_warmup(tmp_path / "other", "scenes", [request] * 3)
    assert not (tmp_path / "other").exists()

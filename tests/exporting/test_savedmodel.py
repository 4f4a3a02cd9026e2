"""SavedModels: core TensorFlow alone, versions, tried out before they are published."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from tests.label_signature import Labels
from vsemb.errors import DataError
from vsemb.exporting import ServedModel, savedmodel
from vsemb.exporting.savedmodel import export_savedmodel, prediction_log, write_warmup
from vsemb.searching.storage import read_index

ALONE = """
    import json, sys
    import tensorflow as tf

    before = set(sys.modules)
    model = tf.saved_model.load(sys.argv[1])
    texts, images = tf.constant(["a red circle", "", "two shapes"]), tf.constant([b"no image"])
    text = model.signatures["encode_text"](text=texts)
    default = model.signatures["serving_default"](text=texts)
    image = model.signatures["encode_image"](image_bytes=images)
    text_outputs = model.signatures["encode_text"].structured_outputs
    print(json.dumps({
        "text": text["embedding"].numpy().tolist(), "valid": text["valid"].numpy().tolist(),
        "same": bool(tf.reduce_all(text["embedding"] == default["embedding"])),
        "image_valid": image["valid"].numpy().tolist(),
        "modules": sorted(name.split(".")[0] for name in set(sys.modules) - before),
        "shapes": {name: str(value.shape) for name, value in text_outputs.items()},
    }))
"""


@pytest.mark.slow  # `vsemb verify` runs a model without Keras too, in test_verify.py.
def test_tensorflow_alone_loads_and_runs_it(exported, tiny_pixel_run):
    command = [sys.executable, "-c", textwrap.dedent(ALONE), str(exported / "1")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert not {"vsemb", "keras", "tensorflow_text", "keras_hub", "tf_keras"} & set(found["modules"])
    assert found["valid"] == [True, False, True] and found["same"] and found["image_valid"] == [False]
    assert found["shapes"] == {"embedding": "(None, 16)", "known": "(None,)", "valid": "(None,)"}
    run = tiny_pixel_run
    wanted = run.model.encode_texts(run.tokenizer(tf.constant(["a red circle", "two shapes"])))
    np.testing.assert_allclose(np.array(found["text"])[[0, 2]], wanted, atol=1e-5)


def test_the_graph_holds_core_operations_only(exported):
    from tensorflow.core.protobuf import saved_model_pb2
    from tensorflow.python.framework import op_def_registry

    saved = saved_model_pb2.SavedModel.FromString((exported / "1" / "saved_model.pb").read_bytes())
    graph = saved.meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    functions = {function.signature.name for function in graph.library.function}
    names = {node.op for node in nodes} - functions
    # tensorflow_text is not imported here, so its operations are not registered. Python functions would
    # need this process, and cuDNN a GPU.
    assert [name for name in names if op_def_registry.get(name) is None] == []
    assert [name for name in names if "PyFunc" in name or "Cudnn" in name] == []
    assert not any("gpu" in node.device.lower() for node in nodes)


@pytest.mark.slow
def test_files_of_one_model_number_its_variables_alike(tiny_run, tmp_path):
    served = ServedModel(tiny_run.model, tiny_run.tokenizer)
    shapes = []
    for number in range(2):
        savedmodel.write(served, tmp_path / str(number))
        shapes.append(dict(tf.train.list_variables(str(tmp_path / str(number) / "variables" / "variables"))))
    assert len(shapes[0]) > 3 and shapes[0] == shapes[1]


@pytest.fixture
def changeable(tiny_pixel_run):
    """The run; its text weights are put back afterwards."""
    weights = tiny_pixel_run.model.text_encoder.trainable_weights
    before = [weight.numpy() for weight in weights]
    yield tiny_pixel_run
    for weight, value in zip(weights, before, strict=True):
        weight.assign(value)


def change_texts(model, change):
    for weight in model.text_encoder.trainable_weights:
        weight.assign(change(weight))


@pytest.mark.slow
def test_a_reload_that_differs_is_not_published(tmp_path, changeable, written):
    # As if a variable had not been saved: the model has another value than the file.
    change_texts(changeable.model, lambda weight: weight * -3 + 0.5)
    with pytest.raises(DataError, match=r"encode_text must equal the model's; .* differs by .* not published"):
        export_savedmodel(ServedModel(changeable.model, changeable.tokenizer), tmp_path / "scenes")
    assert list(tmp_path.iterdir()) == []


def test_embeddings_that_are_not_finite_are_not_published(tmp_path, changeable):
    change_texts(changeable.model, lambda weight: weight * np.nan)
    with pytest.raises(DataError, match="not finite"):
        export_savedmodel(ServedModel(changeable.model, changeable.tokenizer), tmp_path / "scenes")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_clear_error(tmp_path, tiny_run, monkeypatch):
    def full(*args, **kwargs):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", full)
    with pytest.raises(DataError, match="No space left"):
        export_savedmodel(ServedModel(tiny_run.model, tiny_run.tokenizer), tmp_path / "scenes")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def labels(pixel_index):
    return Labels.of(read_index(pixel_index))


def labelling(run, labels):
    """A model with the signature of labels, which alone is compared."""
    served = ServedModel(run.model, run.tokenizer, run.image_input, extras=[labels.signature])
    served.offered = served.offered[-1:]
    return served


def test_further_signatures_are_in_the_savedmodel(exported, tiny_pixel_run, scenes, labels):
    label = tf.saved_model.load(str(exported / "1")).signatures["label"]
    encoded = tf.constant([scenes.split("val").read_image(row) for row in range(3)] + [b"no image"])
    found = {name: value.numpy() for name, value in label(image_bytes=encoded).items()}
    (signature,) = labelling(tiny_pixel_run, labels).offered
    wanted = signature.rows(image_bytes=encoded)
    assert found["labels"].tolist() == [[b"red circle", b"blue square"]] * 4
    assert found["valid"].tolist() == [True, True, True, False] and not found["scores"][3].any()
    np.testing.assert_allclose(found["scores"], wanted["scores"], atol=1e-5)


@pytest.mark.slow
def test_a_further_signature_that_differs_is_not_published(tmp_path, tiny_pixel_run, labels, written):
    # As if other vectors, or the names in another order, had been written.
    for changed, said in (
        (Labels(labels.vectors + 1e-3), "differs by"),
        (Labels(labels.vectors, labels.names[::-1]), "gives other labels"),
    ):
        with pytest.raises(DataError, match=f"label must equal the model's; .* {said}"):
            export_savedmodel(labelling(tiny_pixel_run, changed), tmp_path / "scenes")
        assert list(tmp_path.iterdir()) == []


def test_scores_that_are_not_finite_are_not_published(tmp_path, tiny_pixel_run, labels, monkeypatch):
    labels.vectors[0, 0] = np.nan
    with pytest.raises(DataError, match=r"label must equal the model's; .* gives scores that are not finite"):
        export_savedmodel(labelling(tiny_pixel_run, labels), tmp_path / "scenes")


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


def test_every_signature_is_warmed_up_and_answers(exported, logs):
    path = exported / "1" / "assets.extra" / "tf_serving_warmup_requests"
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    requests = [logs.PredictionLog.FromString(record).predict_log.request for record in records]
    loaded = tf.saved_model.load(str(exported / "1"))
    assert {request.model_spec.signature_name for request in requests} == set(loaded.signatures)
    assert {request.model_spec.name for request in requests} == {"scenes"}
    assert len(requests) <= 1000
    for request in requests:
        inputs = {name: tf.constant(tf.make_ndarray(value)) for name, value in request.inputs.items()}
        outputs = loaded.signatures[request.model_spec.signature_name](**inputs)
        assert outputs["valid"].numpy().tolist() == [True]


def test_too_many_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(savedmodel, "MOST_RECORDS", 2)
    request = ("encode_text", {"text": np.array([b"a"], object)})
    write_warmup(tmp_path, "scenes", [request] * 2)
    with pytest.raises(DataError, match="must be at most 2; got 3"):
        write_warmup(tmp_path / "other", "scenes", [request] * 3)
    assert not (tmp_path / "other").exists()

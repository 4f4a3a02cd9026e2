"""SavedModels: core TensorFlow alone, versions, tried out before they are published."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from vsemb.errors import DataError
from vsemb.export import ServedModel, savedmodel
from vsemb.export.savedmodel import export_savedmodel, golden_images, golden_texts
from vsemb.recipes.serve import image_input

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


@pytest.fixture(scope="module")
def exported(tiny_pixel_run, tmp_path_factory):
    out = tmp_path_factory.mktemp("savedmodels") / "scenes"
    run = tiny_pixel_run
    return export_savedmodel(run.model, run.tokenizer, out, image_input=image_input(run))


def test_tensorflow_alone_loads_and_runs_it(exported, tiny_pixel_run):
    assert exported.name == "1"
    command = [sys.executable, "-c", textwrap.dedent(ALONE), str(exported)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert not {"vsemb", "keras", "tensorflow_text", "keras_hub", "tf_keras"} & set(found["modules"])
    assert found["valid"] == [True, False, True] and found["same"] and found["image_valid"] == [False]
    assert found["shapes"] == {"embedding": "(None, 16)", "valid": "(None,)"}
    run = tiny_pixel_run
    wanted = run.model.encode_texts(run.tokenizer(tf.constant(["a red circle", "two shapes"])))
    np.testing.assert_allclose(np.array(found["text"])[[0, 2]], wanted, atol=1e-5)


def test_the_graph_holds_core_operations_only(exported):
    from tensorflow.core.protobuf import saved_model_pb2
    from tensorflow.python.framework import op_def_registry

    saved = saved_model_pb2.SavedModel.FromString((exported / "saved_model.pb").read_bytes())
    graph = saved.meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    functions = {function.signature.name for function in graph.library.function}
    names = {node.op for node in nodes} - functions
    # tensorflow_text is not imported here, so its operations are not registered. Python functions would
    # need this process, and cuDNN a GPU.
    assert [name for name in names if op_def_registry.get(name) is None] == []
    assert [name for name in names if "PyFunc" in name or "Cudnn" in name] == []
    assert not any("gpu" in node.device.lower() for node in nodes)


def test_a_second_export_is_version_2(tmp_path, tiny_run):
    arguments = (tiny_run.model, tiny_run.tokenizer, tmp_path / "scenes")
    versions = [export_savedmodel(*arguments, image_input=None).name for _ in range(2)]
    assert versions == ["1", "2"]
    signatures = tf.saved_model.load(str(tmp_path / "scenes" / "2")).signatures
    assert sorted(signatures) == ["encode_text", "serving_default"]


@pytest.fixture
def changeable(tiny_run):
    """The run; its text weights are put back afterwards."""
    weights = tiny_run.model.text_encoder.trainable_weights
    before = [weight.numpy() for weight in weights]
    yield tiny_run
    for weight, value in zip(weights, before, strict=True):
        weight.assign(value)


def change_texts(model, change):
    for weight in model.text_encoder.trainable_weights:
        weight.assign(change(weight))


def test_a_reload_that_differs_is_not_published(tmp_path, changeable, monkeypatch):
    write = savedmodel.write

    def write_and_train_on(served, directory):
        write(served, directory)
        # As if a variable had not been saved: the model has another value than the file.
        change_texts(served.model, lambda weight: weight * -3 + 0.5)

    monkeypatch.setattr(savedmodel, "write", write_and_train_on)
    with pytest.raises(DataError, match=r"encode_text differs from the model by .* not published"):
        export_savedmodel(changeable.model, changeable.tokenizer, tmp_path / "scenes", image_input=None)
    assert list(tmp_path.iterdir()) == []


def test_embeddings_that_are_not_finite_are_not_published(tmp_path, changeable):
    change_texts(changeable.model, lambda weight: weight * np.nan)
    with pytest.raises(DataError, match="not finite"):
        export_savedmodel(changeable.model, changeable.tokenizer, tmp_path / "scenes", image_input=None)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_clear_error(tmp_path, tiny_run, monkeypatch):
    def full(*args, **kwargs):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", full)
    with pytest.raises(DataError, match="No space left"):
        export_savedmodel(tiny_run.model, tiny_run.tokenizer, tmp_path / "scenes", image_input=None)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_export_leaves_no_version(tmp_path, tiny_run):
    code = """
        import os, signal, sys
        from vsemb.export import savedmodel
        from vsemb.recipes.run import Run

        # Killed when all files are written, at the latest moment before publication.
        savedmodel.verify = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
        run = Run.open(sys.argv[1])
        savedmodel.export_savedmodel(run.model, run.tokenizer, sys.argv[2], image_input=None)
    """
    out = tmp_path / "models" / "scenes"
    command = [sys.executable, "-c", textwrap.dedent(code), str(tiny_run.path), str(out)]
    assert subprocess.run(command, env={**os.environ}, capture_output=True).returncode == -signal.SIGKILL
    assert not out.exists()
    left = [path.name for path in out.parent.iterdir()]
    assert len(left) == 1 and left[0].startswith(".scenes.")
    assert export_savedmodel(tiny_run.model, tiny_run.tokenizer, out, image_input=None) == out / "1"


def test_golden_inputs_are_good_and_bad(tiny_pixel_run):
    served = ServedModel(tiny_pixel_run.model, tiny_pixel_run.tokenizer, image_input(tiny_pixel_run))
    for function, rows in (
        (served.encode_text, golden_texts(tiny_pixel_run.tokenizer)),
        (served.encode_image, golden_images()),
    ):
        assert 2 <= sum(function(tf.constant(rows))["valid"].numpy()) < len(rows)

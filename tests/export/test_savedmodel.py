"""SavedModels: core TensorFlow alone, versions, tried out before they are published."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
import tensorflow as tf

from vsemb.encoders import ImageEncoder, WordEmbedding
from vsemb.errors import DataError
from vsemb.export import ClassPrompts, ServedModel, savedmodel
from vsemb.export.reference_outputs import golden_images, golden_texts
from vsemb.export.savedmodel import export_savedmodel
from vsemb.models import DualEncoder
from vsemb.runs.serve import image_input
from vsemb.systems.zero_shot.attribute_encoder import AttributeEncoder
from vsemb.systems.zero_shot.class_names import ClassTokenizer
from vsemb.systems.zero_shot.convolutional import CHARACTER_STAGES, ConvolutionalSentenceEncoder
from vsemb.text import CharacterTokenizer, Vocabulary

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
    with pytest.raises(DataError, match=r"encode_text is not the model's: .* differs by .* not published"):
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
        from vsemb.runs.run import Run

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


def small_model(text_encoder: keras.layers.Layer) -> DualEncoder:
    keras.utils.set_random_seed(3)
    model = DualEncoder(ImageEncoder(6), text_encoder, "dot")
    model.build({"image": (None, 8), "text": (None, None)})
    return model


@pytest.mark.parametrize("recurrent", [None, "rnn"])
def test_a_model_of_characters(recurrent, tmp_path):
    tokenizer = CharacterTokenizer()
    words = WordEmbedding(len(tokenizer.vocabulary), 8)
    # The paper's lengths, and few filters.
    stages = [(8, *sizes) for _, *sizes in CHARACTER_STAGES]
    encoder = ConvolutionalSentenceEncoder(words, 6, length=201, stages=stages, recurrent=recurrent, units=5, hidden=7)
    model = small_model(encoder)
    path = export_savedmodel(model, tokenizer, tmp_path / "characters", image_input=None)
    served = tf.saved_model.load(str(path)).signatures["encode_text"]
    texts = ["A yellow bird!", "", "犬", " \n", "a yellow bird", "long " * 100, "long " * 41]
    outputs = {name: value.numpy() for name, value in served(text=tf.constant(texts)).items()}
    # A text of unknown characters is a text, one of white space is none.
    assert outputs["valid"].tolist() == [True, False, True, False, True, True, True]
    wanted = model.encode_texts(tokenizer(texts))
    valid = outputs["valid"]
    np.testing.assert_allclose(outputs["embedding"][valid], wanted.numpy()[valid], atol=1e-5)
    assert not outputs["embedding"][~valid].any()
    assert np.abs(outputs["embedding"][0] - outputs["embedding"][4]).max() > 1e-4
    # Both are "long long … l" behind the cut at 201.
    np.testing.assert_allclose(outputs["embedding"][5], outputs["embedding"][6], atol=1e-6)


def test_a_model_of_classes(tmp_path):
    tokenizer = ClassTokenizer(Vocabulary(["Blue Jay", "Crow"]))
    encoder = AttributeEncoder(classes=2, attributes=3, dim=6)
    encoder.set_attributes(np.array([[0, 0, 0], [0, 0, 0], [1, 0, 0.5], [0, 2, 0]]))
    model = small_model(encoder)
    path = export_savedmodel(model, tokenizer, tmp_path / "classes", image_input=None)
    served = tf.saved_model.load(str(path)).signatures["encode_text"]
    outputs = served(text=tf.constant(["Crow", " ", " Blue Jay\n", "crow"]))
    assert outputs["valid"].numpy().tolist() == [True, False, True, True]
    wanted = model.encode_texts(np.array([[3], [2], [1]])).numpy()
    np.testing.assert_allclose(outputs["embedding"].numpy()[[0, 2, 3]], wanted, atol=1e-6)
    assert golden_texts(tokenizer)[0] == b"Blue Jay" and golden_texts(tokenizer)[2] == b"Crow"


@pytest.fixture
def classes():
    embeddings = np.random.default_rng(0).normal(size=(2, 3, 16)).astype(np.float32)
    return ClassPrompts(("red circle", "blue square"), embeddings)


def test_classes_are_in_the_savedmodel(tmp_path, tiny_pixel_run, scenes, classes):
    run = tiny_pixel_run
    path = export_savedmodel(
        run.model, run.tokenizer, tmp_path / "scenes", image_input=image_input(run), classes=classes
    )
    classify = tf.saved_model.load(str(path)).signatures["classify"]
    encoded = tf.constant([scenes.split("val").read_image(row) for row in range(3)] + [b"no image"])
    found = {name: value.numpy() for name, value in classify(image_bytes=encoded).items()}
    wanted = ServedModel(run.model, run.tokenizer, image_input(run), classes).class_rows(encoded)
    assert found["classes"].tolist() == [[b"red circle", b"blue square"]] * 4
    assert found["valid"].tolist() == [True, True, True, False] and not found["scores"][3].any()
    np.testing.assert_allclose(found["scores"], wanted["scores"], atol=1e-5)


@pytest.mark.parametrize("key", ["scores", "classes"])
def test_a_savedmodel_that_classifies_otherwise_is_not_published(tmp_path, tiny_pixel_run, classes, monkeypatch, key):
    write = savedmodel.write

    def write_and_change(served, directory):
        write(served, directory)
        # As if other prompts, or the names in another order, had been written.
        names, embeddings = classes.names, classes.embeddings
        served.classes = ClassPrompts(names[::-1] if key == "classes" else names, embeddings + 1e-3 * (key == "scores"))

    monkeypatch.setattr(savedmodel, "write", write_and_change)
    run = tiny_pixel_run
    with pytest.raises(DataError, match=r"classify is not the model's: .* (differs by|gives other classes)"):
        export_savedmodel(run.model, run.tokenizer, tmp_path / "scenes", image_input=image_input(run), classes=classes)
    assert list(tmp_path.iterdir()) == []


def test_scores_that_are_not_finite_are_not_published(tmp_path, tiny_pixel_run, classes):
    classes.embeddings[0, 0, 0] = np.nan
    run = tiny_pixel_run
    with pytest.raises(DataError, match=r"classify is not the model's: .* gives scores that are not finite"):
        export_savedmodel(run.model, run.tokenizer, tmp_path / "scenes", image_input=image_input(run), classes=classes)

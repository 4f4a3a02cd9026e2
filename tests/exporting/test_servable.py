"""What is refused before it is published: types, shapes and operations that servers cannot take."""

from __future__ import annotations

import os

import pytest
import tensorflow as tf

from vsemb.errors import DataError
from vsemb.exporting import servable
from vsemb.exporting.servable import check_servable, foreign_operations, known_operations, signature_table


def save(path, function, *extra):
    module = tf.Module()
    module.function = tf.function(
        function, input_signature=[tf.TensorSpec([None], tf.string, name="text")], autograph=False
    )
    tf.saved_model.save(module, str(path), signatures={"encode_text": module.function})
    return path


def test_every_signature_of_a_model_is_servable(exported):
    check_servable(exported / "1")
    specs = servable.signature_specs(exported / "1")
    assert {spec["shape"][0] for sides in specs.values() for side in sides.values() for spec in side.values()} == {None}


def test_the_c_library_knows_its_own_operations_and_no_others():
    known = known_operations()
    assert {"MatMul", "ParallelMapDatasetV2", "StaticRegexReplace"} <= known
    assert not any(name.startswith("TFText>") for name in known)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (lambda text: tf.zeros([tf.shape(text)[0], 4], tf.bfloat16), "embedding must be float32.*got bfloat16"),
        (lambda text: tf.zeros([tf.shape(text)[0], 4], tf.float64), "embedding must be float32.*got float64"),
        (lambda text: tf.zeros([]), r"embedding must have the batch as 0th dimension; got shape \[\]"),
        (lambda text: tf.zeros([3, 4]), r"embedding must have the batch as 0th dimension; got shape \[3, 4\]"),
    ],
)
def test_types_and_shapes(output, said, tmp_path):
    path = save(tmp_path / "model", lambda text: {"embedding": output(text)})
    with pytest.raises(DataError, match=f"encode_text: the output {said}.*not published"):
        check_servable(path)


def whitespace(text):
    from tensorflow_text.python.ops import whitespace_tokenizer

    return whitespace_tokenizer.WhitespaceTokenizer().tokenize(text).row_lengths()


def in_a_pipeline(function):
    def mapped(text):
        rows = tf.data.Dataset.from_tensors(text).map(function)
        return rows.get_single_element()

    return mapped


def python(text):
    lengths = tf.numpy_function(lambda rows: rows.astype("U").size + 0 * rows.size, [text], tf.int64)
    return tf.fill([tf.shape(text)[0]], tf.reshape(lengths, []))


@pytest.mark.parametrize(
    ("function", "operation"),
    [
        (whitespace, "TFText>WhitespaceTokenize"),
        (in_a_pipeline(whitespace), "TFText>WhitespaceTokenize"),
        (python, "PyFunc"),
    ],
)
def test_operations(function, operation, tmp_path):
    path = save(tmp_path / "model", lambda text: {"valid": function(text)})
    assert all(operation in name for name in foreign_operations(path)) and foreign_operations(path)
    with pytest.raises(DataError, match=f"core TensorFlow's .*got .*{operation}"):
        check_servable(path)


def test_a_refused_model_is_not_published(tiny_run, tmp_path, written, monkeypatch):
    from vsemb.exporting import ServedModel, export_savedmodel

    known = known_operations() - {"StringLower"}
    monkeypatch.setattr(servable, "known_operations", lambda: known)
    with pytest.raises(DataError, match="got StringLower"):
        export_savedmodel(ServedModel(tiny_run.model, tiny_run.tokenizer), tmp_path / "scenes")
    assert os.listdir(tmp_path) == []


def test_no_savedmodel(tmp_path):
    with pytest.raises(DataError, match="No SavedModel at"):
        check_servable(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(b"\xff\xff")
    with pytest.raises(DataError, match="cannot be read"):
        check_servable(tmp_path)


def test_signatures_are_listed_with_their_batch(tmp_path):
    module = tf.Module()
    function = tf.function(
        lambda text: {"valid": text != "", "embedding": tf.zeros([tf.shape(text)[0], 4])},
        input_signature=[tf.TensorSpec([None], tf.string, name="text")],
    )
    tf.saved_model.save(module, str(tmp_path), signatures={"encode_text": function.get_concrete_function()})
    assert signature_table(tmp_path) == {
        "encode_text": {
            "inputs": [["text", "string", "[B]"]],
            "outputs": [["embedding", "float32", "[B, 4]"], ["valid", "bool", "[B]"]],
        }
    }

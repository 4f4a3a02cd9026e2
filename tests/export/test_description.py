"""Signature tables and serving commands."""

from __future__ import annotations

import json
import shlex

import tensorflow as tf

from vsemb.export.description import serving_command, signature_table


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


def test_the_command_survives_a_shell(tmp_path):
    lines = serving_command(tmp_path / "my models" / "dogs" / "3").replace("\\\n", " ").splitlines()
    verify, serve, curl, _, server = (shlex.split(line) for line in lines)
    assert verify[2] == serve[2] == str(tmp_path / "my models" / "dogs")
    assert f"--model_base_path={tmp_path / 'my models' / 'dogs'}" in server and "--model_name=dogs" in server
    assert curl[-1] == "http://localhost:8501/v1/models/dogs:predict"


def test_a_model_of_trees_is_asked_for_one(tmp_path):
    lines = serving_command(tmp_path / "trees" / "1", trees=True).splitlines()
    (body,) = [words[2] for words in map(shlex.split, lines[:3]) if words[0] == "curl"]
    assert json.loads(body) == {
        "instances": [{"tokens": ["", "a", "dog", "runs"], "heads": [0, 2, 3, 0]}],
    }

"""Signature tables and serving commands."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest
import tensorflow as tf

from vsemb.export.contract import Contract, Golden, version_contract_path
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


def written(path, instance) -> list[str]:
    side = {"text": np.array([b"a"], object)}
    specs = {"text": {"dtype": "string", "shape": [None]}}
    sides = {"inputs": specs, "outputs": specs}
    golden = {"serving_default": Golden(side, side)}
    contract = Contract("m", 1, None, {"serving_default": sides}, golden, 0.1, "", instance=instance)
    contract.write(version_contract_path(path))
    return serving_command(path).replace("\\\n", " ").splitlines()


def test_the_command_survives_a_shell(tmp_path):
    lines = written(tmp_path / "my models" / "dogs" / "3", "a dog's ball")
    verify, serve, curl, _, server = (shlex.split(line) for line in lines)
    assert verify[2] == serve[2] == str(tmp_path / "my models" / "dogs")
    assert f"--model_base_path={tmp_path / 'my models' / 'dogs'}" in server and "--model_name=dogs" in server
    assert curl[-1] == "http://localhost:8501/v1/models/dogs:predict"
    assert json.loads(curl[2]) == {"instances": ["a dog's ball"]}


@pytest.mark.parametrize("instance", [{"tokens": ["", "a"], "heads": [0, 0]}, {"b64": "dog.jpg"}], ids=str)
def test_a_model_is_asked_for_what_it_takes(instance, tmp_path):
    lines = "\n".join(written(tmp_path / "trees" / "1", instance)[2:])
    if "b64" in instance:
        assert """printf '{"instances": [{"b64": "%s"}]}' "$(base64 -w0 dog.jpg)" |\n    curl -d @- http""" in lines
    else:
        assert json.loads(shlex.split(lines)[2]) == {"instances": [instance]}

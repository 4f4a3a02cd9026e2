"""The contract: what is written at export, and what a reader makes of a broken one."""

from __future__ import annotations

import base64
import copy
import json
import shlex
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from vsemb.errors import DataError
from vsemb.exporting.contract import (
    Contract,
    changes,
    contract_path,
    curl_command,
    hashes,
    publish_contract,
    serving_command,
    version_contract_path,
)
from vsemb.exporting.reference_outputs import Golden
from vsemb.text.normalize import MAX_BYTES


@pytest.fixture(scope="module")
def content(exported):
    return json.loads(contract_path(exported).read_text())


def test_it_lies_beside_the_models_and_inside_the_version(exported, tiny_pixel_run, content):
    inside = exported / "1" / "assets.extra" / "contract.json"
    assert json.loads(inside.read_text()) == content
    assert content["format"] == "vsemb-contract" and content["version"] == 1
    assert content["model"] == "scenes" and content["model_version"] == 1
    assert content["fingerprint"] == tiny_pixel_run.fingerprint and content["libraries"] == []
    assert content["dim"] == 16 and content["similarity"] == {"kind": "cosine"}
    assert content["geometry"] == "unit length"
    assert content["max_text_bytes"] == MAX_BYTES and content["max_pixels"] == 50_000_000
    assert content["sha256"] == hashes(exported / "1") and "saved_model.pb" in content["sha256"]
    assert any(name.startswith("variables/variables.data") for name in content["sha256"])


def test_it_says_what_goes_in_and_out(content):
    signatures = content["signatures"]
    assert sorted(signatures) == [
        *("describe", "encode_image", "encode_text", "label", "search_image", "search_text", "serving_default")
    ]
    assert signatures["serving_default"] == signatures["encode_text"]
    assert signatures["encode_text"] == {
        "inputs": {"text": {"dtype": "string", "shape": [None]}},
        "outputs": {
            "embedding": {"dtype": "float32", "shape": [None, 16]},
            "known": {"dtype": "float32", "shape": [None]},
            "valid": {"dtype": "bool", "shape": [None]},
        },
    }
    assert signatures["search_image"]["inputs"]["k"] == {"dtype": "int32", "shape": [None], "default": [10]}
    assert signatures["search_image"]["outputs"]["ids"] == {"dtype": "int64", "shape": [None, None]}


def test_golden_rows_are_what_the_model_gives(content, served_everything):
    contract = Contract.from_json(content)
    assert sorted(contract.golden) == sorted(content["signatures"])
    texts = contract.golden["encode_text"]
    assert 2 <= texts.outputs["valid"].sum() < len(texts.outputs["valid"])
    wanted = served_everything.text_rows(text=tf.constant(texts.inputs["text"].tolist()))["embedding"].numpy()
    np.testing.assert_allclose(texts.outputs["embedding"], wanted, atol=contract.tolerance)
    # Written as TensorFlow Serving's REST API takes them.
    assert content["golden"]["encode_text"]["inputs"]["text"][-1] == {"b64": "YSD//iBkb2c="}
    images = contract.golden["encode_image"].outputs["valid"].tolist()
    assert images == [True, False, True, False, False]


def test_it_comes_back_as_it_was(content, tmp_path):
    contract = Contract.from_json(content)
    contract.write(tmp_path / "deeper" / "contract.json")
    text = (tmp_path / "deeper" / "contract.json").read_text()
    assert json.loads(text) == content
    # An embedding is one line.
    assert max(map(len, text.splitlines())) > 100 and len(text.splitlines()) < 350


def broken(content, change):
    content = copy.deepcopy(content)
    change(content)
    return content


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda it: it.update(format="other"), "format"),
        (lambda it: it.update(version=2), "version must be 1; got 2"),
        (lambda it: it.pop("golden"), "golden"),
        (lambda it: it.update(golden=3), "items"),
        (lambda it: it["golden"]["encode_text"]["outputs"].pop("valid"), "valid"),
        (lambda it: it["golden"]["encode_text"]["outputs"]["valid"].pop(), "equal numbers of rows"),
        (lambda it: it["golden"]["encode_text"]["inputs"].update(text=[{"b64": "?"}]), "must be a contract"),
        (lambda it: it["golden"].update(other=it["golden"]["label"]), "other"),
        (lambda it: it["signatures"].pop("label"), "label"),
        (lambda it: it["signatures"]["encode_text"].update(inputs={}), "without inputs"),
        (lambda it: it["signatures"].update(label=[]), "must be a contract"),
        (lambda it: it.update(tolerance=10), "tolerance"),
        (lambda it: it["golden"]["search_text"]["outputs"]["ids"][0].__setitem__(0, 2**63), "must be a contract"),
        (lambda it: it.update(sha256=[]), "sha256"),
    ],
)
def test_a_broken_one_is_one_clear_error(content, change, reason, tmp_path):
    path = tmp_path / "contract.json"
    path.write_text(json.dumps(broken(content, change)))
    with pytest.raises(DataError, match=f"must be a contract: .*{reason}|{reason}"):
        Contract.read(path)


def test_missing_or_not_json(tmp_path):
    with pytest.raises(DataError, match="No contract at"):
        Contract.read(tmp_path / "contract.json")
    (tmp_path / "contract.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        Contract.read(tmp_path / "contract.json")


SIDE = {"text": {"dtype": "string", "shape": [None]}}


def signatures(dim=4, dtype="float32", inputs=SIDE, **more):
    outputs = {"embedding": {"dtype": dtype, "shape": [None, dim]}, **more}
    return {"encode_text": {"inputs": inputs, "outputs": outputs}}


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (signatures(), []),
        # What clients of the one before never ask for.
        ({**signatures(), "label": {"inputs": {}, "outputs": {}}}, []),
        (signatures(scores={"dtype": "float32", "shape": [None]}), []),
        ({}, ["the signature encode_text was removed"]),
        (signatures(dim=8), ["encode_text: output embedding: float32 [B, 4] before, float32 [B, 8] now"]),
        (
            signatures(dtype="int32"),
            ["encode_text: output embedding: float32 [B, 4] before, int32 [B, 4] now"],
        ),
        (
            signatures(inputs={**SIDE, "k": {"dtype": "int32", "shape": [None]}}),
            ["encode_text: input k: none before, int32 [B] now"],
        ),
    ],
)
def test_what_clients_will_notice(after, said):
    before, after = (Contract("m", 1, None, each, {}, 0.1, "") for each in (signatures(), after))
    assert changes(before, after) == said


def test_the_newest_export_takes_the_place_and_says_what_changed(content, tmp_path):
    base, lines = tmp_path / "scenes", []
    first = Contract.from_json(content)
    publish_contract(first, base, lines.append)
    assert lines == []
    later = broken(content, lambda it: (it["golden"].pop("label"), it["signatures"].pop("label")))
    later.update(model_version=2, similarity={"kind": "dot"}, tolerance=5e-3)
    publish_contract(Contract.from_json(later), base, lines.append)
    assert lines == [
        "Change for clients of version 1: the signature label was removed.",
        f"Change for clients of version 1: the tolerance of outputs: {first.tolerance:.0e} before, 5e-03 now.",
        "Change for clients of version 1: the similarity: cosine before, dot now.",
    ]
    assert Contract.read(contract_path(base)).model_version == 2
    contract_path(base).write_text("{}")
    publish_contract(first, base, lines.append)
    assert "must be a contract" in lines[-1] and Contract.read(contract_path(base)).model_version == 1


@pytest.mark.slow
def test_an_export_is_a_new_version_and_says_what_its_clients_will_notice(exported_copy, tiny_run):
    from vsemb.exporting import ModelFacts, ServedModel, export_savedmodel
    from vsemb.exporting.card import card_path, version_card_path

    lines, served = [], ServedModel(tiny_run.model, tiny_run.tokenizer)
    path = export_savedmodel(served, exported_copy, card=ModelFacts(recipe="vsepp"), report=lines.append)
    gone = ("encode_image", "label", "search_image", "search_text")
    assert lines == [f"Change for clients of version 1: the signature {name} was removed." for name in gone]
    assert path == exported_copy / "2"
    assert sorted(tf.saved_model.load(str(path)).signatures) == ["describe", "encode_text", "serving_default"]
    written = json.loads(contract_path(exported_copy).read_text())
    assert written["model_version"] == 2 and written["max_pixels"] is None
    card = card_path(exported_copy).read_text()
    assert "# scenes, version 2\n" in card and "vsepp" in card
    assert card == version_card_path(path).read_text()
    # The version before keeps its own.
    assert Contract.read(version_contract_path(exported_copy / "1")).model_version == 1
    assert "# scenes, version 1\n" in version_card_path(exported_copy / "1").read_text()


def written(path, example) -> list[str]:
    side = {"text": np.array([b"a"], object)}
    specs = {"text": {"dtype": "string", "shape": [None]}}
    sides = {"inputs": specs, "outputs": specs}
    golden = {"serving_default": Golden(side, side)}
    examples = {"serving_default": example}
    contract = Contract("m", 1, None, {"serving_default": sides}, golden, 0.1, "", examples=examples)
    contract.write(version_contract_path(path))
    return serving_command(path).replace("\\\n", " ").splitlines()


def test_the_command_survives_a_shell(tmp_path):
    lines = written(tmp_path / "my models" / "dogs" / "3", {"text": "a dog's ball"})
    verify, serve, curl, _, server = (shlex.split(line) for line in lines)
    assert verify[2] == serve[2] == str(tmp_path / "my models" / "dogs")
    assert f"--model_base_path={tmp_path / 'my models' / 'dogs'}" in server and "--model_name=dogs" in server
    assert curl[-1] == "http://localhost:8501/v1/models/dogs:predict"
    assert json.loads(curl[2]) == {"signature_name": "serving_default", "instances": [{"text": "a dog's ball"}]}


def test_a_file_reaches_the_server_through_a_shell(tmp_path):
    (tmp_path / "my photo.jpg").write_bytes(bytes(range(256)))
    example = {"image_bytes": {"b64": "my photo.jpg"}, "text": 'a dog\'s "100 %" \\n ball'}
    command = curl_command("http://localhost:8501/v1/models/dogs", "align", example)
    sent, _, asked = command.rpartition("|")
    assert shlex.split(asked) == ["curl", "-d", "@-", "http://localhost:8501/v1/models/dogs:predict"]
    body = json.loads(subprocess.run(["sh", "-c", sent], capture_output=True, cwd=tmp_path, check=True).stdout)
    encoded = {"b64": base64.b64encode(bytes(range(256))).decode()}
    assert body == {"signature_name": "align", "instances": [{**example, "image_bytes": encoded}]}

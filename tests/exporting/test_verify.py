"""Verification: what is right passes in both processes, and each thing that is wrong is found."""

from __future__ import annotations

import json
import re
import shutil

import pytest

import vsemb
from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.exporting import ServedModel, export_savedmodel, savedmodel
from vsemb.exporting.contract import contract_path, hashes, version_contract_path
from vsemb.exporting.servable import PROBES
from vsemb.exporting.verify import verify_model

C_LIBRARY = {"TensorFlow's C library": PROBES["TensorFlow's C library"]}


def problems(base, **options):
    options = {"probes": C_LIBRARY, **options}
    return [(it.check, it.signature, it.problem) for it in verify_model(base, **options).failed]


def rewrite(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.slow
def test_what_was_exported_passes_in_both_processes(exported):
    found = verify_model(exported)
    assert not found.failed and found.path == exported / "1" and found.contract == contract_path(exported)
    by_probe = {name: {it.signature: it for it in found.checks if it.check == name} for name in PROBES}
    names = {"describe", "label", "encode_image", "encode_text", "search_image", "search_text", "serving_default"}
    assert [set(checks) for checks in by_probe.values()] == [names] * 2
    for checks in by_probe.values():
        assert checks["encode_text"].rows == 9 and checks["search_image"].rows == 5
        assert all(check.difference <= 1e-5 for check in checks.values())
    assert json.loads(json.dumps(found.to_json()))["ok"] is True


def sign(base):
    """Puts the hashes in the contract right, as if the files were those that were exported."""
    for path in (contract_path(base), version_contract_path(base / "1")):
        rewrite(path, lambda it: it.update(sha256=hashes(base / "1")))


@pytest.mark.slow
def test_other_weights(tiny_run, tmp_path):
    weights = tiny_run.model.text_encoder.trainable_weights
    before = [weight.numpy() for weight in weights]
    base, served = tmp_path / "models" / "scenes", ServedModel(tiny_run.model, tiny_run.tokenizer)
    export_savedmodel(served, base)
    for weight, value in zip(weights, before, strict=True):
        weight.assign(value * -0.5)
    savedmodel.write(served, tmp_path / "other")
    for weight, value in zip(weights, before, strict=True):
        weight.assign(value)
    shutil.rmtree(base / "1" / "variables")
    shutil.copytree(tmp_path / "other" / "variables", base / "1" / "variables")
    # The names and sizes of all variables are the same, and so only what they hold tells.
    first, *more = problems(base)
    assert first[0] == "files" and "differs from the contract" in first[2]
    assert [signature for _, signature, _ in more] == ["encode_text", "serving_default"]
    assert all(re.search(r"all rows: differs by [\d.e+-]+ > 1e-05", problem) for *_, problem in more)
    sign(base)
    assert problems(base, probes={}) == []


def test_a_byte_of_the_weights(exported_copy):
    data = exported_copy / "1" / "variables" / "variables.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    ((check, _, problem),) = problems(exported_copy, probes={})
    assert check == "files" and problem == f"variables/{data.name} differs from the contract"


def test_a_broken_variables_file_fails_with_its_hash_put_right(exported_copy):
    version = exported_copy / "1"
    data = version / "variables" / "variables.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
    sign(exported_copy)
    ((check, _, problem),) = problems(exported_copy)
    assert check == "TensorFlow's C library" and problem.startswith("failed: RuntimeError")


@pytest.mark.slow
def test_a_missing_file(exported_copy):
    for name in ("variables/variables.index", "saved_model.pb"):
        (exported_copy / "1" / name).unlink()
        found = problems(exported_copy)
        assert ("files", "", f"{name} is missing") in found
        assert any(check == "TensorFlow's C library" for check, _, _ in found)


def golden_of(name, key):
    def change(content):
        rows = content["golden"][name]["outputs"][key]
        rows[0] = (not rows[0]) if key == "valid" else [rows[0][0] + 0.01, *rows[0][1:]]

    return change


CHANGES = {
    "embedding": (golden_of("encode_text", "embedding"), "encode_text", "all rows: differs by .* > 1e-05"),
    "valid": (golden_of("encode_image", "valid"), "encode_image", "all rows: finds other rows valid"),
    "ids": (
        lambda it: it["golden"]["search_text"]["outputs"]["ids"].reverse(),
        "search_text",
        "gives other ids",
    ),
    "labels": (
        lambda it: it["golden"]["label"]["outputs"]["labels"][0].reverse(),
        "label",
        "gives other labels",
    ),
    "missing": (
        lambda it: (
            it["signatures"].update(caption=it["signatures"]["encode_text"]),
            it["golden"].update(caption=it["golden"]["encode_text"]),
        ),
        "caption",
        "is missing",
    ),
    "dtype": (
        lambda it: it["signatures"]["search_text"]["inputs"]["k"].update(dtype="int64"),
        "search_text",
        r"input k is int32 \[B\] = 10 instead of int64 \[B\] = 10",
    ),
    "dim": (
        lambda it: it["signatures"]["encode_text"]["outputs"]["embedding"].update(shape=[None, 17]),
        "encode_text",
        r"output embedding is float32 \[B, 16\] instead of float32 \[B, 17\]",
    ),
    "extra": (
        lambda it: (it["signatures"].pop("label"), it["golden"].pop("label")),
        "label",
        "is not in the contract",
    ),
    "no golden rows": (lambda it: it["golden"].pop("search_image"), "search_image", "has no golden rows"),
}


# Each of the two has changes of other signatures, so that one run finds them all.
@pytest.mark.slow
@pytest.mark.parametrize("names", [("embedding", "valid", "ids", "labels", "missing"), tuple(CHANGES)[-4:]])
def test_another_contract(names, exported, tmp_path):
    path = tmp_path / "contract.json"
    path.write_bytes(contract_path(exported).read_bytes())
    for name in names:
        rewrite(path, CHANGES[name][0])
    found = {signature: problem for _, signature, problem in problems(exported, contract=path)}
    assert sorted(found) == sorted(CHANGES[name][1] for name in names)
    for name in names:
        _, signature, said = CHANGES[name]
        assert re.search(said, found[signature]), name


def test_copies_that_differ(exported_copy):
    rewrite(contract_path(exported_copy), lambda it: it.update(fingerprint="other"))
    ((check, _, problem),) = problems(exported_copy, probes={})
    assert check == "contract" and "differs from the copy inside the version" in problem


def test_which_version_and_which_contract(exported_copy, tmp_path):
    (exported_copy / "1").rename(exported_copy / "3")
    # The outer one is of version 1, so that inside counts.
    found = verify_model(exported_copy, probes={})
    assert found.contract == version_contract_path(exported_copy / "3") and not found.failed
    contract_path(exported_copy).unlink()
    assert verify_model(exported_copy, version=3, probes={}).contract == found.contract
    with raises_argument("version"):
        verify_model(exported_copy, version=2)
    found.contract.unlink()
    with pytest.raises(DataError, match="No contract at"):
        verify_model(exported_copy)
    with pytest.raises(DataError, match="No versions of a model"):
        verify_model(tmp_path)
    with raises_argument("timeout"):
        vsemb.verify(exported_copy, timeout=float("nan"))


@pytest.mark.parametrize(
    ("code", "timeout", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 60, "crashed with SIGSEGV"),
        ("import signal; signal.pause()", 0.5, "took more than 0.5 seconds"),
        ("raise OSError('no library')", 60, "failed: OSError: no library"),
        ("print('hello')", 60, "wrote no result"),
        ("", 60, "wrote no result"),
    ],
)
def test_a_process_that_ends_badly_or_never(code, timeout, said, exported, tmp_path):
    script = tmp_path / "probe.py"
    script.write_text(code)
    assert problems(exported, probes={"probe": script}, timeout=timeout) == [("probe", "", said)]


def test_a_process_that_imports_too_much(exported, tmp_path):
    script = tmp_path / "probe.py"
    script.write_text("import json, sys; print(json.dumps({'signatures': {}, 'results': [], 'modules': ['keras']}))")
    found = problems(exported, probes={"TensorFlow's C library": script})
    assert found == [("TensorFlow's C library", "", "imported keras")]

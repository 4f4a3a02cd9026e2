"""`vsemb verify`."""

from __future__ import annotations

import json

import pytest

from vsemb.cli.__main__ import main
from vsemb.exporting.servable import PROBES
from vsemb.exporting.verify import verify_model


@pytest.mark.slow
def test_a_model_is_held_to_its_contract(exported, tmp_path, capsys, monkeypatch):
    # One process of the two, the one that starts sooner.
    probes = {"TensorFlow's C library": PROBES["TensorFlow's C library"]}
    monkeypatch.setitem(verify_model.__kwdefaults__, "probes", probes)
    report, contract = tmp_path / "report.json", exported.parent / "contracts" / "scenes.json"
    assert main(["verify", str(exported), "--json", str(report)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"{exported / '1'}, by {contract}\n") and "NO" not in said.out
    assert "TensorFlow's C library  encode_text" in said.out
    written = json.loads(report.read_text())
    names = {"describe", "label", "encode_image", "encode_text", "search_image", "search_text", "serving_default"}
    assert written["ok"] and {check["signature"] for check in written["checks"]} == {"", *names}
    # Another run's contract, in effect.
    content = json.loads(contract.read_text())
    for name in ("encode_text", "serving_default"):
        content["golden"][name]["outputs"]["embedding"][0][0] += 0.1
    (tmp_path / "other.json").write_text(json.dumps(content))
    arguments = ["verify", str(exported), "--contract", str(tmp_path / "other.json"), "--json", str(report)]
    assert main(arguments) == 1
    said = capsys.readouterr()
    assert "NO" in said.out and said.err.count("\n") == 1
    assert "TensorFlow's C library: encode_text all rows: differs by" in said.err
    assert "1 more" in said.err and not json.loads(report.read_text())["ok"]


def test_mistakes_are_one_line(tmp_path, capsys):
    (tmp_path / "scenes" / "1").mkdir(parents=True)
    for arguments, said in (
        ([str(tmp_path / "nothing")], "No versions of a model"),
        ([str(tmp_path / "scenes")], "No contract at"),
        ([str(tmp_path / "scenes"), "--version", "7"], "`version` must be one of 1; got 7"),
        ([str(tmp_path / "scenes"), "--timeout", "0"], "timeout"),
    ):
        assert main(["verify", *arguments]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1

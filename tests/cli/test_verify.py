"""`vsemb verify`."""

from __future__ import annotations

import json

from vsemb.cli.__main__ import main


def test_a_model_is_held_to_its_contract(tiny_run, tmp_path, capsys):
    out, report = tmp_path / "savedmodels" / "scenes", tmp_path / "report.json"
    assert main(["export", str(tiny_run.path), str(out)]) == 0
    capsys.readouterr()
    assert main(["verify", str(out), "--json", str(report)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"{out / '1'}, by {out.parent / 'contracts' / 'scenes.json'}\n")
    assert "TensorFlow without Keras  encode_text" in said.out and "C library" in said.out
    assert "NO" not in said.out
    written = json.loads(report.read_text())
    assert written["ok"] and {check["signature"] for check in written["checks"]} == {
        *("", "encode_text", "serving_default")
    }
    # Another run's contract, in effect.
    contract = out.parent / "contracts" / "scenes.json"
    content = json.loads(contract.read_text())
    content["golden"]["encode_text"]["outputs"]["embedding"][0][0] += 0.1
    (tmp_path / "other.json").write_text(json.dumps(content))
    arguments = ["verify", str(out), "--contract", str(tmp_path / "other.json"), "--json", str(report)]
    assert main(arguments) == 1
    said = capsys.readouterr()
    assert "NO" in said.out and said.err.count("\n") == 1
    assert "TensorFlow without Keras: encode_text all rows: differs by" in said.err
    assert "1 more" in said.err and not json.loads(report.read_text())["ok"]


def test_mistakes_are_one_line(tmp_path, capsys):
    (tmp_path / "scenes" / "1").mkdir(parents=True)
    for arguments, said in (
        ([str(tmp_path / "nothing")], "No versions of a model"),
        ([str(tmp_path / "scenes")], "No contract at"),
        ([str(tmp_path / "scenes"), "--version", "7"], "version=7"),
        ([str(tmp_path / "scenes"), "--timeout", "0"], "timeout"),
    ):
        assert main(["verify", *arguments]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1

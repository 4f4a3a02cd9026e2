"""`vsemb export`."""

from __future__ import annotations

import json

from vsemb.cli.__main__ import main


def test_says_where_and_how_to_serve_it(tiny_pixel_run, tmp_path, capsys):
    out, report = tmp_path / "savedmodels" / "scenes", tmp_path / "report.json"
    assert main(["export", str(tiny_pixel_run.path), str(out), "--json", str(report)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{out / '1'}\n") and "tensorflow_model_server" in said and "curl" in said
    assert "encode_image" in said and "[B, 16]" in said
    assert json.loads(report.read_text())["path"] == str(out / "1")
    assert (out / "1" / "saved_model.pb").is_file()


def test_a_run_without_an_image_network_says_what_is_left_out(tiny_run, tmp_path, capsys):
    out = tmp_path / "scenes"
    assert main(["export", str(tiny_run.path), str(out), "--version", "5"]) == 0
    assert "no encode_image: " in capsys.readouterr().out
    assert main(["export", str(tiny_run.path), str(out), "--version", "5"]) == 1
    error = capsys.readouterr().err
    assert "already exists" in error and error.count("\n") == 1


def test_mistakes_are_one_line(tmp_path, capsys):
    assert main(["export", str(tmp_path / "nothing"), str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert "is no run" in error and error.count("\n") == 1 and not (tmp_path / "out").exists()

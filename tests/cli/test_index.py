"""`vsemb index`."""

from __future__ import annotations

import json
import shutil

from vsemb.cli.__main__ import main


def test_embeds_a_split(tiny_run, scenes, tmp_path, capsys):
    run = shutil.copytree(tiny_run.path, tmp_path / "run")
    report = tmp_path / "report.json"
    arguments = ["index", str(run), "--data", str(scenes.path), "--split", "val"]
    assert main([*arguments, "--json", str(report)]) == 0
    assert "12 images of val" in capsys.readouterr().out
    assert json.loads(report.read_text())["where"] == str(run / "index" / "scenes-val-images")
    assert main([*arguments, "--captions"]) == 0
    assert "60 texts of val" in capsys.readouterr().out
    assert sorted(path.name for path in (run / "index").iterdir()) == [
        "scenes-val-images",
        "scenes-val-texts",
    ]


def test_mistakes_are_one_line(tiny_run, tmp_path, capsys):
    for arguments, said in (
        (["--split", "vall"], "Did you mean 'val'"),
        (["--data", str(tmp_path)], str(tmp_path)),
    ):
        assert main(["index", str(tiny_run.path), *arguments]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1

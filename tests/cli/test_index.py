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


def test_measures_approximate_search(tiny_order_run, tiny_run, scenes, tmp_path, capsys):
    run = shutil.copytree(tiny_order_run.path, tmp_path / "run")
    report = tmp_path / "report.json"
    arguments = ["index", str(run), "--split", "val", "--candidates", "10", "60", "--json", str(report)]
    assert main([*arguments, "--captions"]) == 0
    out, recall = capsys.readouterr().out, json.loads(report.read_text())["recall"]
    assert list(recall) == ["10", "60"] and 0 < recall["10"] < recall["60"] == 1
    assert f"recall  {100 * recall['10']:.1f} % of the exact 10 best among 10 candidates" in out
    # All of 12 images are candidates.
    assert main([*arguments]) == 0
    assert json.loads(report.read_text())["recall"]["60"] == 1
    for path, count, said in ((tiny_run.path, "50", "inner products"), (run, "9", "integer >= 10")):
        assert main(["index", str(path), "--split", "val", "--candidates", count]) == 1
        captured = capsys.readouterr()
        assert said in captured.err and captured.err.count("\n") == 1
    assert not (tiny_run.path / "index" / "scenes-val-images").exists()

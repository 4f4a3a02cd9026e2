"""`vsemb analyze norms`."""

from __future__ import annotations

import json
import shutil

from PIL import Image

from vsemb.cli.__main__ import main


def test_two_tables_a_sheet_and_json(region_run, tmp_path, capsys):
    out, report = tmp_path / "salient.jpg", tmp_path / "found.json"
    arguments = ["analyze", "norms", str(region_run.path), "-k", "4", "--min-count", "3", "--parts"]
    assert main([*arguments, "--out", str(out), "--json", str(report)]) == 0
    words, regions = capsys.readouterr().out.removesuffix(f"\n{out}\n").split("\n\n")
    assert words.split()[:6] == ["smallest", "word", "places", "largest", "word", "places"]
    content = json.loads(report.read_text())
    assert content["split"] == "val" and all(each["count"] >= 3 for each in content["smallest"])
    for line, low, high in zip(words.splitlines()[1:], content["smallest"], content["largest"], strict=True):
        assert line.split()[1] == low["word"] and line.split()[4] == high["word"]
        assert low["norm"] <= high["norm"]
    assert len(regions.splitlines()) == 5 and all(each["region"] for each in content["regions"])
    with Image.open(out) as sheet:
        assert sheet.format == "JPEG"


def test_mistakes_are_one_line(region_run, tiny_run, tmp_path, capsys):
    ignored = shutil.ignore_patterns("regions")
    copy = shutil.copytree(region_run.data_path, tmp_path / "data", ignore=ignored)
    for run, arguments, said in (
        (region_run, ["-k", "0"], "`k`"),
        (region_run, ["--min-count", "0"], "`min_count`"),
        (region_run, ["--min-count", "100000"], "The most frequent word"),
        (region_run, ["--split", "vall"], "Did you mean 'val'"),
        (region_run, ["--data", str(copy)], "vsemb regions"),
        (region_run, ["--data", "nowhere"], "nowhere"),
        (region_run, ["--out", "a.svg"], ".png, .jpg"),
        (region_run, ["--out", "a.png", "--json", "a.png"], "`json`"),
        (region_run, ["--pairs", "3"], "`pairs`"),
        (region_run, [str(tiny_run.path)], "one run for norms"),
        (tiny_run, [], "vsemb train dvsa"),
    ):
        assert main(["analyze", "norms", str(run.path), *arguments]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1, arguments

"""`vsemb report`."""

from __future__ import annotations

import json
import shutil

import pytest

from vsemb.cli.__main__ import main


@pytest.mark.slow
def test_writes_a_page_and_prints_the_table_of_evaluate(tiny_order_run, scenes, tmp_path, capsys):
    run, found = shutil.copytree(tiny_order_run.path, tmp_path / "run"), tmp_path / "metrics.json"
    arguments = [str(run), "--data", str(scenes.path), "--split", "test"]
    assert main(["evaluate", *arguments, "--bootstrap", "1000"]) == 0
    table = capsys.readouterr().out
    assert main(["report", *arguments, "--shown", "2", "--json", str(found)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(table.strip()) and shown.splitlines()[-1].startswith(f"{run}/report.html ")
    page = (run / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") and page.rstrip().endswith("</html>")
    metrics = json.loads(found.read_text())
    assert f"<td>{metrics['text_to_image']['R@5']:.1f}<" in page
    assert "order" in page and 'data-shown="2"' in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--shown", "0"], "`shown`"),
        (["--seed", "-2"], "`seed`"),
        (["--split", "vall"], "Did you mean 'val'"),
        (["--arithmetic", "none.png", "red", "blue"], "none.png"),
        (["--out", "."], "not a directory"),
    ],
)
def test_mistakes_are_one_line(tiny_run, tmp_path, capsys, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    options = arguments if "--out" in arguments else [*arguments, "--out", "report.html"]
    assert main(["report", str(tiny_run.path), *options]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())

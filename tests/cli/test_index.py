"""`vsemb index`."""

from __future__ import annotations

import json
import shutil

import pytest

from vsemb.cli.__main__ import main
from vsemb.errors import missing_extra

pytestmark = pytest.mark.usefixtures("opened_once")


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


def test_an_index_elsewhere_with_a_backend(tiny_run, scenes, tmp_path, capsys):
    out, report = tmp_path / "indexes" / "val", tmp_path / "report.json"
    arguments = ["index", str(tiny_run.path), "--data", str(scenes.path), "--split", "val", "--out", str(out)]
    assert main([*arguments, "--dtype", "int8", "--candidates", "10", "12", "--json", str(report)]) == 0
    assert f"where   {out}" in capsys.readouterr().out
    written = json.loads(report.read_text())
    assert written["dtype"] == "int8" and written["recall"]["12"] == 1
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["recorded"] == {"run": str(tiny_run.path), "data": str(scenes.path)}
    assert not (tiny_run.path / "index" / "scenes-val-images").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("do not lose")
    for more, said in (
        (["--backend", "fais"], "Did you mean 'faiss"),
        (["--nprobe", "3"], "`nprobe` must be omitted for exact; it is for faiss-ivf"),
        (["--uri", "http://localhost:1"], "it is for milvus"),
        (["--backend", "faiss-ivf", "--nprobe", "0"], "`nprobe`"),
        (["--backend", "faiss-ivf", "--candidates", "9"], "integer >= 10"),
        (["--out", str(tmp_path / "mine")], "must be an index or not exist"),
    ):
        assert main([*arguments, *more]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
    assert json.loads((out / "manifest.json").read_text()) == manifest


def test_compares_on_an_index_and_on_a_run(tiny_run, scenes, tmp_path, capsys, monkeypatch):

    from vsemb.runs import indexing
    from vsemb.searching.backends.exact import Exact
    from vsemb.searching.backends.faiss import FaissFlat

    def missing(self):
        raise missing_extra("faiss-cpu", "index")

    monkeypatch.setattr(indexing, "all_backends", lambda: [Exact("float16"), Exact("binary"), FaissFlat()])
    monkeypatch.setattr(FaissFlat, "require_library", missing)
    run, out, path = tmp_path / "run", tmp_path / "val", tmp_path / "compared.json"
    shutil.copytree(tiny_run.path, run)
    data = ["--data", str(scenes.path), "--split", "val"]
    assert main(["index", str(run), *data, "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["compare-backends", str(out), "--json", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "12 images of val, 60 captions as queries"
    assert lines[5].split()[:2] == ["faiss-flat", "float32"]
    # The reason stands below the table.
    assert lines[6].startswith("faiss-flat float32: ") and "vsemb[index]" in lines[6]
    # Every column of the header is explained below.
    for name in ("bytes", "MB", "build s", "ms, 128", "re-ranked", "R@10", "change"):
        assert name in lines[1] and any(name in line for line in lines[6:-1]), name
    recommended = json.loads(path.read_text())["recommended"].split()
    assert lines[-1].startswith(f"Recommended: backend {recommended[0]}, dtype {recommended[1]}. It takes")
    rows = {row["name"]: row for row in json.loads(path.read_text())["rows"]}
    assert rows["exact float32"]["recall"] == [1, 1] and rows["exact float32"]["change"] == [0, 0]
    assert rows["exact float16"]["bytes_a_vector"] < rows["exact float32"]["bytes_a_vector"]
    # All 12 images are candidates.
    assert rows["exact binary"]["reranked"] == [1, 1] and rows["exact binary"]["recall"][1] < 1
    assert main(["compare-backends", str(run), *data, "--captions"]) == 0
    assert "60 texts of val" in capsys.readouterr().out


def test_sets_have_no_index(region_run, capsys):
    for command, *options in (["index"], ["index", "--captions"], ["compare-backends"], ["index", "--candidates", "5"]):
        assert main([command, str(region_run.path), *options]) == 1
        error = capsys.readouterr().err
        assert "embeds them as sets" in error and "vsemb search" in error and error.count("\n") == 1

"""`vsemb search`."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vsemb.cli.__main__ import main

pytestmark = pytest.mark.usefixtures("opened_once")


@pytest.fixture(scope="module")
def run(tiny_pixel_run, tmp_path_factory):
    return str(shutil.copytree(tiny_pixel_run.path, tmp_path_factory.mktemp("cli") / "run"))


def test_prints_a_table_and_writes_json(run, scenes, tmp_path, capsys):
    path = tmp_path / "found.json"
    arguments = ["search", run, "two shapes", "--data", str(scenes.path), "--split", "val", "-k", "3"]
    assert main([*arguments, "--json", str(path)]) == 0
    captured = capsys.readouterr()
    assert "No index" in captured.err
    lines = captured.out.splitlines()
    assert lines[0].split() == ["rank", "score", "key", "caption"] and len(lines) == 4
    found = json.loads(path.read_text())
    assert found["query"]["text"] == "two shapes"
    assert [result["key"] for result in found["results"]] == [line.split()[2] for line in lines[1:]]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.err == "" and captured.out.splitlines() == lines


def test_arithmetic_from_an_image_of_the_dataset(run, scenes, capsys):
    key = scenes.split("val").keys[0]
    words = ["--minus", "two", "--plus", "circle", "--plus", "red", "--resort", "5", "--split", "val"]
    assert main(["search", run, "--image", key, *words]) == 0
    out = capsys.readouterr().out
    assert key not in out and len(out.splitlines()) == 11


def test_mistakes_are_one_line(run, capsys):
    for arguments, said in (
        (["zyzzyva"], "zyzzyva"),
        ([""], "`text`"),
        (["--image", "missing.png"], "missing.png"),
        (["--image", os.fsdecode(b"caf\xe9.png")], "caf"),
        (["two", "-k", "0"], "`k`"),
        (["two", "--data", "nowhere"], "nowhere"),
    ):
        assert main(["search", run, *arguments]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1


def test_mistakes_are_found_before_tensorflow_is_loaded(run, scenes, tmp_path):
    code = (
        "import json, sys, vsemb.cli.__main__ as cli\n"
        "for arguments in json.loads(sys.argv[1]):\n"
        "    assert cli.main(['search', *arguments]) == 1\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules), 'loaded'\n"
    )
    data = ["--data", str(scenes.path)]
    mistakes = (
        ([str(tmp_path), "two"], "a run directory or an index; got another directory"),
        ([str(tmp_path / "nope"), "two"], "a run directory or an index; got a missing directory"),
        ([f"{run}/recipe.json", "two"], "got a file"),
        (["http://localhost:1/v1/models/x", "two"], "http://localhost:1/v1/models/x must"),
        ([str(scenes.path), "two"], "got a dataset"),
        ([run, "two", *data, "--split", "vall"], "Did you mean 'val'"),
        ([run, "two", *data, "--out", "sheet.gif"], "sheet.gif"),
        ([run, "--compose", "two"], "two or more"),
        ([run], "a line of standard input"),
    )
    command = [sys.executable, "-c", code, json.dumps([arguments for arguments, _ in mistakes])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    lines = done.stderr.splitlines()
    assert done.returncode == 0 and len(lines) == len(mistakes), done.stderr
    for line, (_, said) in zip(lines, mistakes, strict=True):
        assert said in line


def test_queries_are_read_line_by_line(run, scenes, tmp_path, capsys, monkeypatch):
    path, options = tmp_path / "found.json", ["--data", str(scenes.path), "--split", "val", "-k", "2"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("two shapes\n\nzyzzyva\na circle\n"))
    assert main(["search", run, *options, "--json", str(path)]) == 1
    captured = capsys.readouterr()
    found = json.loads(path.read_text())
    assert [each["query"]["text"] for each in found] == ["two shapes", "zyzzyva", "a circle"]
    assert ["error" in each for each in found] == [False, True, False]
    assert captured.out.count("rank") == 2 and "query: a circle" in captured.out
    assert captured.err.count("zyzzyva") and "Traceback" not in captured.err
    assert main(["search", run, "a circle", *options, "--json", str(path)]) == 0
    assert json.loads(path.read_text()) == found[2]
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    answers = iter(["two shapes"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(answers, None) or (_ for _ in ()).throw(EOFError))
    capsys.readouterr()
    assert main(["search", run, *options]) == 0
    assert capsys.readouterr().out.count("rank") == 1


def test_queries_end_at_line_feeds(run, scenes, tmp_path, capsys, monkeypatch):
    content = "\ufefftwo shapes\r\na\u2028circle\na\rcircle\n".encode() + b"a circle\xff\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
    report = tmp_path / "found.json"
    data = ["--data", str(scenes.path), "--split", "val", "-k", "1"]
    assert main(["search", run, *data, "--json", str(report)]) == 1
    texts = [each["query"]["text"] for each in json.loads(report.read_text())]
    assert texts == ["two shapes", "a\u2028circle", "a\rcircle", "a circle?"]
    assert "surrogate" in capsys.readouterr().err
    for half in ("\ud83d", "\udcff"):
        assert main(["search", run, f"a {half} circle", *data]) == 1
        error = capsys.readouterr().err
        assert "surrogate" in error and error.count("\n") == 1


def test_a_contact_sheet_shows_the_results(run, scenes, tmp_path, capsys):
    sheet = tmp_path / "sheet.png"
    data = ["--data", str(scenes.path), "--split", "val"]
    assert main(["search", run, "two shapes", *data, "-k", "4", "--out", str(sheet)]) == 0
    with Image.open(sheet) as image:
        colours = np.asarray(image.convert("RGB")).reshape(-1, 3)
    assert image.width > 3 * 200 and len(np.unique(colours, axis=0)) > 10


def test_orders_compose_and_take_candidates(tiny_order_run, scenes, tmp_path, capsys):
    run = str(shutil.copytree(tiny_order_run.path, tmp_path / "run"))
    path, key = tmp_path / "found.json", scenes.split("val").keys[0]
    arguments = ["search", run, "--split", "val", "-k", "4", "--json", str(path)]
    assert main([*arguments, "--compose", "a circle", key]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 5 and key not in out
    assert json.loads(path.read_text())["query"]["compose"] == ["a circle", key]
    assert main([*arguments, "--candidates", "11", "--compose", "a circle", key]) == 0
    assert capsys.readouterr().out == out
    # Longer than any file name may be.
    assert main([*arguments, "--compose", "a circle " * 60, "a square"]) == 0
    assert main([*arguments, "--abstract", "a circle", "a square", "a star", "--captions"]) == 0
    assert json.loads(path.read_text())["query"]["abstract"] == ["a circle", "a square", "a star"]


def test_what_only_orders_have_is_one_line(run, capsys):
    for arguments, said in (
        (["--compose", "a circle", "a square"], "the recipe order-embedding has one"),
        (["--compose", "a circle"], "two or more"),
        (["a circle", "--compose", "a circle", "a square"], "one of text, image, compose and abstract"),
        (["two", "--candidates", "50"], "inner products"),
    ):
        assert main(["search", run, *arguments]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1


@pytest.mark.slow
def test_an_index_by_itself(run, scenes_copy, tmp_path, capsys):
    """Neither the run's place nor the dataset is needed."""
    index, moved, key = str(tmp_path / "val"), str(tmp_path / "moved"), scenes_copy.split("val").keys[3]
    first = str(shutil.copytree(run, tmp_path / "first"))
    data = ["--data", str(scenes_copy.path), "--split", "val"]
    assert main(["index", first, *data, "--out", index, "--dtype", "binary"]) == 0
    capsys.readouterr()
    queries = (["two shapes"], ["--image", key, "--plus", "red", "--resort", "4"])
    wanted = []
    for query in queries:
        assert main(["search", index, *query, "--candidates", "12"]) == 0
        wanted.append(capsys.readouterr().out)
        assert main(["search", first, *query, *data]) == 0
        assert capsys.readouterr().out == wanted[-1]
    assert key not in wanted[1] and len(wanted[0].splitlines()) == 11
    shutil.move(first, moved)
    shutil.rmtree(scenes_copy.path)
    assert main(["search", index, *queries[1], "--run", moved, "--candidates", "12"]) == 0
    assert capsys.readouterr().out == wanted[1]
    for arguments, said in (
        (["two"], "is no longer at"),
        (["two", "--run", moved, "--split", "val"], "images of val"),
        (["two", "--run", moved, "--captions"], "images of val"),
        (["two", "--run", moved, "--candidates", "3"], "integer >= 10"),
        (["--image", "missing.png", "--run", moved], "missing.png"),
        (["two", "--run", moved, "--data", "nowhere"], "nowhere"),
    ):
        assert main(["search", index, *arguments]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
    assert main(["search", run, "two", "--run", run]) == 1
    assert "`run` must be omitted unless" in capsys.readouterr().err


def test_an_index_of_another_run_is_refused(pixel_index, tiny_run, capsys):
    assert main(["search", str(pixel_index), "two", "--run", str(tiny_run.path)]) == 1
    error = capsys.readouterr().err
    assert "made with another run" in error and "vsemb index" in error and error.count("\n") == 1


@pytest.mark.slow
def test_sets_are_searched_without_an_index(region_run, region_scenes, tmp_path, capsys):
    path, key = tmp_path / "found.json", region_scenes.split("val").keys[3]
    run = [str(region_run.path), "--split", "val", "-k", "60", "--json", str(path)]
    for arguments, wanted in (
        (["two shapes"], 12),
        (["two shapes", "--captions"], 60),
        (["--image", key], 11),
        (["--image", key, "--keep-query"], 12),
        (["--image", key, "--captions"], 60),
    ):
        assert main(["search", *run, *arguments]) == 0
        captured = capsys.readouterr()
        assert len(captured.out.splitlines()) == 1 + wanted and captured.err == ""
        results = json.loads(path.read_text())["results"]
        scores = [result["score"] for result in results]
        assert scores == sorted(scores, reverse=True) and len(results) == wanted
        assert ("--captions" in arguments) == all("#" in result["key"] for result in results)
        assert (key in {result["key"] for result in results}) == (wanted == 12)
    assert not (region_run.path / "index").exists()


def test_what_sets_cannot_do_is_one_line(region_run, scenes, capsys):
    for arguments, said in (
        (["two", "--plus", "red"], "Sets of vectors cannot be added"),
        (["two", "--minus", "red"], "Sets of vectors cannot be subtracted"),
        (["--compose", "a circle", "a square"], "Only an order composes"),
        (["--abstract", "a circle", "a square"], "Only an order abstracts"),
        (["two", "--resort", "5"], "Leave it out"),
        (["two", "--candidates", "50"], "All items are scored exactly"),
        (["two", "--data", str(scenes.path)], "vsemb regions"),
        (["zyzzyva"], "zyzzyva"),
    ):
        assert main(["search", str(region_run.path), *arguments]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1


@pytest.fixture
def photos(scenes, tmp_path, monkeypatch):
    """A folder of 12 pictures without captions below the current directory, and one that cannot be read."""
    monkeypatch.chdir(tmp_path)
    split = scenes.split("val")
    for row in range(12):
        folder = tmp_path / "photos" / f"day{row % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        with Image.open(io.BytesIO(split.read_image(row))) as image:
            image.save(folder / f"{row:02}.{'webp' if row == 3 else 'png'}", lossless=True)
    (tmp_path / "photos" / "torn.jpg").write_bytes(b"\xff\xd8\xff torn")
    return tmp_path / "photos"


def test_pictures_without_captions_are_searched(run, scenes, photos, tmp_path, capsys, monkeypatch):
    report, found = tmp_path / "report.json", tmp_path / "found.json"
    index = ["index", run, "--images", "photos", "--out", "indexes/photos", "--json", str(report)]
    assert main(index) == 0
    captured = capsys.readouterr()
    assert captured.err.count("photos/torn.jpg") == 1
    assert "12 images" in captured.out and "next    vsemb search" in captured.out
    assert list(json.loads(report.read_text())["skipped"]) == ["photos/torn.jpg"]
    assert not list(tmp_path.glob("indexes/.*")) and "kept" not in captured.out
    search = ["search", "indexes/photos", "two shapes", "--json", str(found), "-k", "12"]
    assert main([*search, "--out", "sheet.jpg"]) == 0
    *lines, _, sheet = capsys.readouterr().out.splitlines()
    assert sheet == "sheet.jpg" and Image.open(sheet).format == "JPEG"
    assert lines[0].split() == ["rank", "score", "file"] and len(lines) == 13
    assert main(["search", run, "two shapes", "--data", str(scenes.path), "--split", "val", "-k", "12"]) == 0
    wanted = [float(line.split()[1]) for line in capsys.readouterr().out.splitlines()[1:]]
    # Of WebP, a JPEG is made.
    np.testing.assert_allclose([float(line.split()[1]) for line in lines[1:]], wanted, atol=0.01)
    (tmp_path / "photos" / "day0" / "02.png").unlink()
    shutil.copy(tmp_path / "photos" / "day0" / "04.png", tmp_path / "photos" / "copy.png")
    assert main(index) == 0
    assert "items   12 images\nkept    11 unchanged images; 1 embedded\n" in capsys.readouterr().out
    assert json.loads(report.read_text())["kept"] == 11
    # An image of the index does not find itself, from wherever it is named.
    other = tmp_path / "elsewhere"
    other.mkdir()
    monkeypatch.chdir(other)
    capsys.readouterr()
    assert main(["search", "../indexes/photos", "--image", "../photos/day0/04.png"]) == 0
    out = capsys.readouterr().out
    assert "04.png" not in out and str(photos / "day1" / "03.webp") in out
    assert main(["search", "../indexes/photos", "two", "--split", "val"]) == 1
    assert "images of files" in capsys.readouterr().err
    assert main(["compare-backends", "../indexes/photos"]) == 0
    assert "12 pictures as queries" in capsys.readouterr().out


def test_files_that_changed_since_they_were_indexed_are_named_and_not_shown(run, photos, tmp_path, capsys):
    assert main(["index", run, "--images", "photos", "--out", "indexes/photos"]) == 0
    changed, gone = photos / "day0" / "02.png", photos / "day1" / "05.png"
    shutil.copyfile(photos / "day0" / "04.png", changed)
    gone.unlink()
    capsys.readouterr()
    search = ["search", "indexes/photos", "two shapes", "-k", "12", "--out", "sheet.png"]
    assert main([*search, "--json", "found.json"]) == 0
    written = json.loads(Path("found.json").read_text())["results"]
    problems = {Path(each["key"]).name: each["problem"] for each in written if "problem" in each}
    assert problems == {"02.png": "changed", "05.png": "gone"}
    said = capsys.readouterr().err
    assert "02.png (changed)" in said and "05.png (gone)" in said and "04.png" not in said
    with Image.open("sheet.png") as sheet:
        shown = sheet.size
    # As many rows as ten pictures need, as in a search for ten.
    for path in (changed, gone):
        shutil.copyfile(photos / "day0" / "04.png", path)
    assert main(["index", run, "--images", "photos", "--out", "indexes/photos"]) == 0
    assert main([*search[:3], "-k", "10", "--out", "sheet.png"]) == 0
    assert Image.open("sheet.png").size == shown
    # A changed file is embedded anew where it is the query.
    shutil.copyfile(photos / "day0" / "06.png", changed)
    capsys.readouterr()
    assert main(["search", "indexes/photos", "--image", str(changed), "-k", "1"]) == 0
    assert "06.png" in capsys.readouterr().out
    for path in (*photos.glob("*/*"), photos / "torn.jpg"):
        path.unlink()
    assert main(["search", "indexes/photos", "two shapes"]) == 0
    capsys.readouterr()
    assert main(search) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("vsemb search: ")

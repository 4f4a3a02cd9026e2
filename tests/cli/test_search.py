"""`vsemb search`."""

from __future__ import annotations

import json
import shutil

import pytest

from vsemb.cli.__main__ import main


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
        ([], "a text or an image"),
        (["zyzzyva"], "zyzzyva"),
        (["--image", "missing.png"], "missing.png"),
        (["two", "-k", "0"], "`k`"),
        (["two", "--data", "nowhere"], "nowhere"),
    ):
        assert main(["search", run, *arguments]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1


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
        (["a circle", "--compose", "a circle", "a square"], "one of a text or an image"),
        (["two", "--candidates", "50"], "inner products"),
    ):
        assert main(["search", run, *arguments]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1

"""`vsemb caption`, and what the other commands say to a run that writes captions."""

from __future__ import annotations

import json
import shutil

import pytest

from vsemb import recipes
from vsemb.cli.__main__ import commands, main

# Commands that search with embeddings, which captioners have none of.
OTHERS = {
    "search": ["RUN", "a dog"],
    "index": ["RUN"],
    "classify": ["RUN", "dog.jpg", "--classes", "dog", "cat"],
    "classify-split": ["RUN", "--classes", "dog", "cat"],
    "compare-backends": ["RUN"],
    "embed": ["RUN", "--texts", "a dog", "--out", "vectors.npy"],
    "align": ["RUN", "dog.jpg", "a dog"],
    "search-regions": ["RUN", "a dog"],
    "analyze norms": ["RUN", "--out", "OUT"],
    "projector": ["RUN", "--out", "OUT"],
    "analyze lengths": ["RUN", "RUN"],
}


@pytest.mark.slow
def test_images_and_what_is_wrong_with_some(region_caption_run, region_scenes, tmp_path, capsys):
    split = region_scenes.split("val")
    good, bad, report = tmp_path / "good.png", tmp_path / "bad.png", tmp_path / "captions.json"
    good.write_bytes(split.read_image(0))
    bad.write_bytes(b"nothing")
    run = shutil.copytree(region_caption_run.path, tmp_path / "run")
    arguments = [
        "caption",
        str(run),
        str(bad),
        str(good),
        split.keys[0],
        "--beam",
        "3",
        "--json",
        str(report),
    ]
    assert main(arguments) == 1
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and str(bad) in said.err and "unreadable" in said.err
    lines = said.out.splitlines()
    # Of a narrow beam all that it holds.
    assert lines[0].split() == ["image", "caption", "log-prob"] and len(lines) == 7
    assert lines[1].startswith(str(good)) and lines[4].startswith(split.keys[0])
    written = json.loads(report.read_text())["images"]
    assert "error" in written[0] and [each["image"] for each in written[1:]] == [str(good), split.keys[0]]
    assert written[1]["captions"][0]["text"] in lines[1]
    assert lines[1].endswith(f"{written[1]['captions'][0]['log_prob']:.2f}")
    # Files need no dataset; keys do, and one that was named must be there.
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(info | {"data": str(tmp_path / "gone")}))
    assert main(["caption", str(run), str(good), "--n-best", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["caption", str(run), split.keys[0]]) == 1
    error = capsys.readouterr().err
    assert "gone" in error and error.count("\n") == 1
    # Captions never take the place of an image.
    assert main(["caption", str(run), str(bad), str(good), "--json", str(good)]) == 1
    assert str(good) in capsys.readouterr().err
    assert main(["caption", str(run), str(good), "--data", "/nowhere"]) == 1
    assert "/nowhere" in capsys.readouterr().err


def test_mistakes_are_one_line(caption_run, scenes, opened, capsys):
    opened(caption_run)
    for options, said in (
        (["--n-best", "0"], "`n_best`"),
        (["--beam", "2", "--n-best", "3"], "`n_best`"),
        (["--sample", "loud"], "`sample`"),
        (["--sample", "random", "--beam", "3"], "`beam`"),
        (["--temperature", "2"], "`temperature`"),
        (["--candidates", "10"], "`candidates`"),
        (["--max-words", "0"], "`max_words`"),
        (["--length-penalty", "nan"], "`length_penalty`"),
        (["--sample", "top-k=inf"], "`sample`"),
    ):
        assert main(["caption", str(caption_run.path), scenes.split("val").keys[0], *options]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1, options


@pytest.fixture
def untrained(tmp_path):
    """The directory of a run of which there is no more than its recipe."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.json").write_text(json.dumps(recipes.get("multimodal-rnn").to_json()))
    return run


@pytest.mark.parametrize("command", [command for command in OTHERS if command.split()[0] in commands()])
def test_other_commands_refuse_runs_that_write_captions(command, untrained, tmp_path, capsys):
    places = {"RUN": str(untrained), "OUT": str(tmp_path / "out.png")}
    assert main([*command.split(), *(places.get(each, each) for each in OTHERS[command])]) == 1
    error = capsys.readouterr().err
    assert str(untrained) in error and "'multimodal-rnn'" in error and error.count("\n") == 1


def test_a_run_for_retrieval_is_refused(tiny_run, capsys):
    run = str(tiny_run.path)
    for command in (["caption", run, "dog.jpg"], ["demo", run, "--captions", run]):
        assert main(command) == 1
        error = capsys.readouterr().err
        assert run in error and "'vsepp'" in error
    assert main(["report", str(tiny_run.path), "--limit", "3"]) == 1
    assert "`limit`" in capsys.readouterr().err

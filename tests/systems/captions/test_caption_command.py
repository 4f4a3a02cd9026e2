"""`vsemb caption`, and what the other commands say to a run that writes captions."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.tiny import tiny
from vsemb import recipes
from vsemb.cli.__main__ import main
from vsemb.runs.train import train

# Commands that search with embeddings, which captioners have none of.
OTHERS = {
    "search": ["RUN", "a dog"],
    "index": ["RUN"],
    "classify": ["RUN", "--classes", "dog", "cat"],
    "align": ["RUN", "dog.jpg", "a dog"],
    "search --regions": ["RUN", "a dog"],
    "analyze norms": ["RUN", "--out", "OUT"],
    "projector": ["RUN", "--out", "OUT"],
    "analyze lengths": ["RUN", "RUN"],
}


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
    assert "no dataset whose key it may be" in error and "gone" in error and error.count("\n") == 1
    # Captions never take the place of an image.
    assert main(["caption", str(run), str(bad), str(good), "--json", str(good)]) == 1
    assert "which it would replace" in capsys.readouterr().err
    assert main(["caption", str(run), str(good), "--data", "/nowhere"]) == 1
    assert "/nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--n-best", "0"], "`n_best`"),
        (["--beam", "2", "--n-best", "3"], "`n_best`"),
        (["--sample", "loud"], "sample='loud'"),
        (["--sample", "random", "--beam", "3"], "beam=3"),
        (["--temperature", "2"], "--sample"),
        (["--candidates", "10"], "candidates=10"),
        (["--max-words", "0"], "`max_words`"),
        (["--length-penalty", "nan"], "`length_penalty`"),
        (["--sample", "top-k=inf"], "`sample`"),
    ],
)
def test_mistakes_are_one_line(caption_run, scenes, options, said, capsys):
    assert main(["caption", str(caption_run.path), scenes.split("val").keys[0], *options]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


@pytest.fixture(params=["multimodal-rnn", "sc-nlm", "log-bilinear"])
def untrained(request, tmp_path):
    """The directory of a run of which there is no more than its recipe."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.json").write_text(json.dumps(recipes.get(request.param).to_json()))
    return run


@pytest.mark.parametrize("command", OTHERS)
def test_other_commands_refuse_runs_that_write_captions(command, untrained, tmp_path, capsys):
    places = {"RUN": str(untrained), "OUT": str(tmp_path / "out.png")}
    assert main([*command.split(), *(places.get(each, each) for each in OTHERS[command])]) == 1
    error = capsys.readouterr().err
    task = recipes.get(json.loads((untrained / "recipe.json").read_text())["name"]).kind
    assert "must be a run for retrieval" in error and f"which is for {task}." in error and error.count("\n") == 1


@pytest.fixture(scope="module")
def blind_run(scenes, tmp_path_factory):
    """A language model that sees no image."""
    recipe = tiny(recipes.get("log-bilinear"), "training.epochs=1")
    return train(recipe, scenes, tmp_path_factory.mktemp("runs") / "blind")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["caption", "dog.jpg"], "must be a run that writes captions"),
        (["report"], "its model sees no image"),
        (["demo", "--port", "0"], "its model sees no image"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_language_models_that_see_no_image_are_refused(command, said, blind_run, capsys):
    assert main([command[0], str(blind_run.path), *command[1:]]) == 1
    error = capsys.readouterr().err
    assert said in error and "sees no image" in error and error.count("\n") == 1


def test_a_run_for_retrieval_is_refused(tiny_run, capsys):
    assert main(["caption", str(tiny_run.path), "dog.jpg"]) == 1
    error = capsys.readouterr().err
    assert "must be a run that writes captions" in error and "which is for retrieval" in error
    assert main(["demo", str(tiny_run.path), "--captions", str(tiny_run.path)]) == 1
    error = capsys.readouterr().err
    assert "must be a run that writes captions" in error and "which is for retrieval" in error
    assert main(["report", str(tiny_run.path), "--limit", "3"]) == 1
    assert "limit=3" in capsys.readouterr().err

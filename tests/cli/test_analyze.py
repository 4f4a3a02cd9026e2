"""`vsemb analyze lengths`."""

from __future__ import annotations

import json

import numpy as np
import pytest

from vsemb.cli.__main__ import main
from vsemb.evaluation import Embedder

pytestmark = pytest.mark.usefixtures("opened_once")


@pytest.mark.slow
def test_runs_stand_side_by_side(tiny_order_run, tiny_run, scenes, tmp_path, capsys):
    path = tmp_path / "lengths.json"
    runs = [str(tiny_order_run.path), str(tiny_run.path)]
    arguments = ["analyze", "lengths", *runs, "--data", str(scenes.path), "--pairs", "9", "--examples", "2"]
    assert main([*arguments, "--json", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    report = json.loads(path.read_text())
    low, high = report["words_apart"]
    assert lines[0] == f"9 pairs of captions of val, {low} to {high} words apart; 12 images, 60 captions"
    assert lines[1].split()[-2:] == ["tiny-order", "tiny"] and len(lines) == 7 + 2 * 5
    names = ["image_all", "image_pairs", "image_shorter", "image_longer", "longer_by_shorter"]
    for line, name in zip(lines[2:7], names, strict=True):
        assert line.split()[-2:] == [f"{entry[name]:.1f}" for entry in report["runs"]]
    assert [entry["run"] for entry in report["runs"]] == runs
    for example in report["examples"]:
        assert example["key"] in lines
        words = [len(example[side].split()) for side in ("shorter", "longer")]
        assert low <= words[1] - words[0] <= high
    assert len({example["key"] for example in report["examples"]}) == 2


def test_numbers_are_those_of_the_run(tiny_order_run, scenes, tmp_path, capsys):
    path = tmp_path / "lengths.json"
    command = ["analyze", "lengths", str(tiny_order_run.path), "--pairs", "1", "--images", "5", "--json", str(path)]
    assert main(command) == 0
    report = json.loads(path.read_text())
    split, run = scenes.split("val"), tiny_order_run
    captions = split.captions[:25]
    words = [len(caption.split()) for caption in captions]
    pairs = [(i, j) for i in range(25) for j in range(25) if i // 5 == j // 5 and words[j] > words[i]]
    most = max(words[j] - words[i] for i, j in pairs)
    shorter, longer = min((pair for pair in pairs if words[pair[1]] - words[pair[0]] == most), key=sorted)
    embedder = Embedder(run.model)
    images = embedder.images(run.images_of(scenes, split), 5)
    texts = embedder.texts(*run.tokenizer.encode(captions))
    for key, candidates, query, own in (
        ("image_shorter", images, shorter, shorter // 5),
        ("image_longer", images, longer, longer // 5),
        ("longer_by_shorter", texts, shorter, longer),
    ):
        errors = (np.maximum(texts[query] - candidates, 0) ** 2).sum(axis=1)
        if candidates is texts:
            errors[query] = np.inf
        assert report["runs"][0][key] == np.sum(errors <= errors[own] + 1e-7)
    assert report["examples"][0]["shorter"] == captions[shorter]
    assert report["examples"][0]["longer"] == captions[longer]
    assert report["examples"][0]["shorter_ranks"] == [report["runs"][0]["image_shorter"]]
    assert "5 images, 25 captions" in capsys.readouterr().out


def test_no_examples_and_runs_of_one_name(tiny_run, capsys):
    path = str(tiny_run.path)
    assert main(["analyze", "lengths", path, path, "--examples", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7 and lines[1].split()[-2:] == [path, path]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pairs", "0"], "`pairs`"),
        (["--images", "13"], "from 1 to 12"),
        (["--images", "0"], "`images`"),
        (["--examples", "-1"], "`examples`"),
        (["--split", "vall"], "Did you mean 'val'"),
        (["nowhere"], "nowhere"),
        (["--min-count", "3"], "`min_count`"),
    ],
)
def test_mistakes_are_one_line(tiny_run, capsys, arguments, said):
    assert main(["analyze", "lengths", str(tiny_run.path), *arguments]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_sets_are_ranked_by_their_scores(region_run, region_scenes, tmp_path, capsys):
    path = tmp_path / "lengths.json"
    command = ["analyze", "lengths", str(region_run.path), "--pairs", "1", "--images", "5", "--json", str(path)]
    assert main(command) == 0
    capsys.readouterr()
    report, split = json.loads(path.read_text()), region_scenes.split("val")
    (example,) = report["examples"]
    embedder = Embedder(region_run.model)
    images = embedder.images(region_run.images_of(region_scenes, split), 5)
    texts = embedder.texts(*region_run.tokenizer.encode(split.captions[:25]))
    shorter, longer = (split.captions.index(example[side]) for side in ("shorter", "longer"))
    for key, candidates, query, own in (
        ("image_shorter", images, shorter, shorter // 5),
        ("image_longer", images, longer, longer // 5),
        ("longer_by_shorter", texts, shorter, longer),
    ):
        scores = np.array(region_run.model.similarity.scores(candidates, texts[[query]]))[:, 0]
        if candidates is texts:
            scores[query] = -np.inf
        assert report["runs"][0][key] == np.sum(scores >= scores[own])

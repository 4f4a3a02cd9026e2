"""The hypernymy pipeline as a whole on a miniature WordNet, and on the real one where it is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from pipelines import wordnet_hypernymy as pipeline
from pipelines.hypernymy.wordnet import PairSet, read_wordnet, transitive_closure
from tests.data.wordnet_files import write_wordnet

REAL = os.environ.get("VSEMB_WORDNET")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tree of 127 concepts, some with a second hypernym, which makes more paths than pairs."""
    above = {"c0": []}
    for low in range(1, 127):
        parents = [f"c{(low - 1) // 2}"] + (["c1"] if low % 10 == 9 else [])
        above[f"c{low}"] = list(dict.fromkeys(parents))
    return write_wordnet(tmp_path_factory.mktemp("wordnet"), above)


def run(folder, *more: str) -> int:
    return pipeline.main(["--wordnet", str(folder), "--held-out", "60", *more])


def test_whole_table(folder, tmp_path, capsys):
    result, out = tmp_path / "table.json", tmp_path / "vectors"
    assert run(folder, "--epochs", "3", "--json", str(result), "--out", str(out)) == 0
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines()]
    table = {line[0]: line for line in lines if line and line[0] in pipeline.SETTINGS}
    assert list(table) == ["closure", "gaussian", "symmetric", "bilinear", "order"]
    assert [line[2] for line in table.values()] == ["88.2", "86.6", "84.2", "86.3", "90.6"]
    stored = json.loads(result.read_text())
    assert (stored["concepts"], stored["edges"], stored["negatives"]) == (127, "unique", "filtered")
    assert stored["true_among_corrupted"] == 0
    assert "127 concepts" in printed and "are true" not in printed
    for row in stored["rows"]:
        assert table[row["model"]][1] == f"{100 * row['accuracy']:.1f}"
        assert 0 <= row["mean_average_precision"] <= 1 <= row["mean_rank"] <= 127
        assert row["epochs"] == (0 if row["model"] == "closure" else 3)
        assert row["edges"] == stored["direct_edges"]
    with np.load(out / "vectors.npz", allow_pickle=False) as kept:
        assert kept["names"][0] == "c0.n.00000100"
        assert kept["vectors"].shape == (127, 50) and (kept["vectors"] >= 0).all()
        rows = np.loadtxt(out / "vectors.tsv", delimiter="\t")
        np.testing.assert_allclose(rows[0], kept["vectors"][0], atol=1e-4)
    metadata = (out / "metadata.tsv").read_text().splitlines()
    assert metadata[:2] == ["concept\tconcepts below", "c0.n.00000100\t126"]
    assert len(metadata) == 128


def test_the_papers_setting(folder, tmp_path, capsys):
    result = tmp_path / "table.json"
    options = ["--edges", "paths", "--negatives", "any", "--adam", "dense", "--epochs", "2"]
    assert run(folder, *options, "--models", "closure", "order", "--json", str(result)) == 0
    stored = json.loads(result.read_text())
    # Below c1, half of the tree, much that comes of replacing the first end is true.
    assert 0.01 < stored["true_among_corrupted"] < 0.5
    ceiling = f"{100 - 50 * stored['true_among_corrupted']:.1f}"
    assert f"would have an accuracy of {ceiling}" in capsys.readouterr().out
    assert [row["model"] for row in stored["rows"]] == ["closure", "order"]


def test_order_learns_and_runs_repeat(folder, tmp_path, monkeypatch):
    # So few pairs make two steps an epoch.
    monkeypatch.setattr(pipeline, "PATIENCE", 300)
    stored = []
    for number, epochs in enumerate(("20", "20", "300")):
        result = tmp_path / f"{number}.json"
        assert run(folder, "--epochs", epochs, "--models", "order", "--json", str(result)) == 0
        row = json.loads(result.read_text())["rows"][0]
        stored.append({key: value for key, value in row.items() if "seconds" not in key})
    assert stored[0] == stored[1]
    assert stored[2]["accuracy"] > 0.8


def test_mean_of_seeds(folder, tmp_path, capsys):
    result = tmp_path / "table.json"
    options = ["--models", "closure", "order", "--epochs", "2", "--seeds", "2", "--json", str(result)]
    assert run(folder, *options, "--out", str(tmp_path / "vectors")) == 0
    stored = json.loads(result.read_text())
    each = [stored["runs"][name]["rows"][1] for name in ("seed-0", "seed-1")]
    assert each[0]["mean_rank"] != each[1]["mean_rank"]
    assert stored["mean"]["order mean rank"] == pytest.approx((each[0]["mean_rank"] + each[1]["mean_rank"]) / 2)
    assert stored["mean"]["order accuracy, %"] == pytest.approx(50 * (each[0]["accuracy"] + each[1]["accuracy"]))
    assert "seeds: 2" in capsys.readouterr().out
    # One seed gives what it gives as the first of several.
    assert run(folder, "--models", "order", "--epochs", "2", "--out", str(tmp_path / "one")) == 0
    assert (tmp_path / "one/vectors.tsv").read_text() == (tmp_path / "vectors/vectors.tsv").read_text()


@pytest.mark.parametrize("negatives", ["filtered", "any"])
@pytest.mark.parametrize("edges", ["unique", "paths"])
def test_task(folder, edges, negatives):
    wordnet = read_wordnet(folder)
    task = pipeline.make_task(wordnet, edges, negatives, 60, 0)
    closure, paths = (transitive_closure(wordnet.edges, paths=flag) for flag in (False, True))
    rows = closure if edges == "unique" else paths
    assert len(paths) > len(closure)
    split = [task.split.train, task.split.dev, task.split.test]
    assert [len(part) for part in split] == [len(rows) - 120, 60, 60]
    assert sorted(np.concatenate(split).tolist()) == rows.tolist()
    known = PairSet(closure, len(wordnet.names))
    for pairs, labels in (task.dev, task.test):
        assert labels.tolist() == [1] * 60 + [0] * 60
        assert known.contains(pairs[:60]).all()
        assert known.contains(pairs[60:]).any() == (negatives == "any")
    assert not np.array_equal(task.dev[0][60:], task.test[0][60:])
    if negatives == "any":
        assert task.known is None
    else:
        # What training may not draw as corrupted follows from its own pairs: nothing of dev and test leaks.
        own = transitive_closure(np.unique(task.split.train, axis=0))
        assert task.known is not None and len(task.known) == len(own)
        assert task.known.contains(own).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epochs", "0"], "--epochs"),
        (["--held-out", "100000"], "held_out"),
        (["--models", "closure", "--out", "somewhere"], "--out"),
        (["--wordnet", "/nowhere"], "holds no data.noun"),
        (["--seeds", "0"], "--seeds"),
        # Found before anything is trained.
        (["--out", "taken"], "new or empty"),
    ],
)
def test_errors_are_one_line(folder, tmp_path, monkeypatch, capsys, options, message):
    monkeypatch.chdir(tmp_path)
    Path("taken").mkdir()
    Path("taken", "file").touch()
    assert run(folder, *options) == 1
    error = capsys.readouterr().err
    assert error.startswith("wordnet_hypernymy: ") and error.count("\n") == 1
    assert message in error


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.skipif(not REAL, reason="VSEMB_WORDNET does not name a folder")
@pytest.mark.parametrize(("edges", "negatives", "least"), [("unique", "filtered", 0.965), ("paths", "any", 0.900)])
def test_wordnet_3_0(tmp_path, edges, negatives, least):
    result = tmp_path / "table.json"
    options = ["--wordnet", str(REAL), "--edges", edges, "--negatives", negatives, "--json", str(result)]
    assert pipeline.main([*options, "--models", "closure", "order"]) == 0
    closure, order = json.loads(result.read_text())["rows"]
    assert order["accuracy"] > max(least, closure["accuracy"])

"""`vsemb evaluate`: recalls, pairs, and which protocols measure a run."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from vsemb import registry
from vsemb.cli.__main__ import main
from vsemb.evaluation import Embedder
from vsemb.files import write_json
from vsemb.recipes.retrieval import Retrieval as RetrievalTask
from vsemb.runs.measure import evaluate_run
from vsemb.runs.protocols import Retrieval
from vsemb.runs.run import BEST, STATUS, Run
from vsemb.training.callbacks import kept_weights
from vsemb.weights import save_weights


@pytest.mark.slow
def test_pairs_stand_below_the_standard_table_and_in_the_json(tiny_run, scenes, tmp_path, capsys):
    out = tmp_path / "metrics.json"
    arguments = [
        "evaluate",
        str(tiny_run.path),
        "--pairs",
        "8",
        "--recalls",
        "1",
        "5",
        "20",
        "--json",
        str(out),
    ]
    assert main(arguments) == 0
    metrics = evaluate_run(tiny_run, scenes, "val", recalls=(1, 5, 20), pairs=8)
    printed = capsys.readouterr().out
    assert printed == f"{metrics}\n"
    standard, _, paired = (block.splitlines() for block in printed.partition("\n\n"))
    columns = ["R@1", "R@5", "R@10", "R@20", "median", "mean"]
    assert standard[0].split() == ["12", "images,", "60", "texts", *columns]
    assert paired[0].split() == ["8", "pairs,", "one", "text", "per", "image", *columns]
    written = json.loads(out.read_text())
    assert written == json.loads(json.dumps(metrics.to_json()))
    assert (written["pairs"]["images"], written["pairs"]["texts"]) == (8, 8)
    names = ["image_to_text", "text_to_image", "images", "texts", "recall_sum", "pairs", "unknown"]
    assert list(written)[: len(names)] == names


@pytest.mark.slow
def test_kept_epochs_are_averaged(tiny_run, scenes, tmp_path, capsys):
    assert main(["evaluate", str(tiny_run.path), "--kept"]) == 1
    assert "kept one epoch" in capsys.readouterr().err
    folder, out = tmp_path / "run", tmp_path / "metrics.json"
    shutil.copytree(tiny_run.path, folder)
    shutil.copy(folder / BEST, kept_weights(folder / BEST, 1))
    model = Run.open(folder).model
    model.set_weights([np.zeros_like(each) for each in model.get_weights()])
    save_weights(model, kept_weights(folder / BEST, 0))
    write_json(folder / STATUS, tiny_run.info | {"kept_epochs": [1, 0]})
    assert main(["evaluate", str(folder), "--kept", "--json", str(out)]) == 0
    best, found = evaluate_run(tiny_run, scenes).to_json(), json.loads(out.read_text())["mean"]
    # Ties count against the model, so zeros find nothing, at the last rank of 12 images or of 56 captions.
    for side, last in (("image_to_text", 56), ("text_to_image", 12)):
        assert found[f"{side} R@10"] == pytest.approx(best[side]["R@10"] / 2)
        assert found[f"{side} mean_rank"] == pytest.approx((best[side]["mean_rank"] + last) / 2)
    assert capsys.readouterr().out.split()[:6] == ["epochs:", "2", "mean", "sd", "run", "epoch-1"]


def test_pairs_without_a_number_are_all_images(tiny_run, capsys):
    assert main(["evaluate", str(tiny_run.path), "--folds", "2", "--pairs"]) == 0
    printed = capsys.readouterr().out
    assert "\n\n12 pairs, one text per image" in printed and "\n\nmean over folds of 6 images" in printed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--pairs", "13"], "`pairs`"),
        (["--pairs", "0"], "`pairs`"),
        (["--pairs", "--split", "vall"], "Did you mean 'val'"),
        (["--recalls", "0"], "`recalls`"),
        (["--recalls", "20", "20"], "`recalls`"),
    ],
)
def test_protocols_that_cannot_be_are_refused_before_anything_is_embedded(tiny_run, options, said, monkeypatch, capsys):
    def refuse(*args, **kwargs):
        raise AssertionError("embedded")

    monkeypatch.setattr(Embedder, "images", refuse)
    monkeypatch.setattr(Embedder, "texts", refuse)
    assert main(["evaluate", str(tiny_run.path), *options]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_protocols_refuse_runs_that_they_do_not_measure(tiny_run, capsys):
    others = {"captions", "region-captions", "perplexity", "likelihood", "entailment"}
    for name in others & set(registry.kinds("protocol")):
        assert main(["evaluate", str(tiny_run.path), "--protocol", name]) == 1
        error = capsys.readouterr().err
        assert f"got {name!r}" in error and error.count("\n") == 1
        assert "'vsepp', which is for retrieval. Its own protocol is 'retrieval'." in error


def test_a_protocol_measures_recipes_below_its_task():
    own = type("Own", (RetrievalTask,), {})()
    assert Retrieval().measures(own)

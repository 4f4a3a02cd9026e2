"""Runs of several seeds: ordinary runs, resumed and measured together."""

from __future__ import annotations

import json

import numpy as np
import pytest

import vsemb
from tests.tiny import settings
from vsemb.cli.__main__ import main
from vsemb.errors import DataError
from vsemb.runs.run import Run
from vsemb.runs.seeds import open_seeds, seeded_recipes


def test_recipes_differ_in_the_seed_alone(tmp_path):
    recipe = vsemb.recipes.get("vsepp").with_overrides(["training.seed=4"])
    found = seeded_recipes(recipe, tmp_path, 2)
    assert [path.name for path in found] == ["seed-4", "seed-5"]
    assert found[tmp_path / "seed-4"] == recipe
    assert found[tmp_path / "seed-5"] == recipe.with_overrides(["training.seed=5"])
    (tmp_path / "recipe.json").touch()
    with pytest.raises(DataError, match="must be a directory of runs"):
        seeded_recipes(recipe, tmp_path, 2)


@pytest.mark.slow
def test_runs_of_seeds_are_ordinary_runs_and_measured_together(tiny_run, scenes, tmp_path, capsys):
    out = tmp_path / "runs"
    fields = (*settings(vsemb.recipes.get("vsepp", "paper")), "optimizer.learning_rate=0.01", "loss.negatives=all")
    overrides = [word for each in (*fields, "text.encoder.pooling=mean") for word in ("--set", each)]
    command = [
        "train",
        "vsepp",
        "--variant",
        "paper",
        "--data",
        str(scenes.path),
        "--out",
        str(out),
        *overrides,
        "--seeds",
    ]
    assert main([*command, "1"]) == 0
    # The first of them is what the same command trains without the option.
    both = (Run.open(out / "seed-3").model.weights, tiny_run.model.weights)
    assert all(np.array_equal(*pair) for pair in zip(*both, strict=True))
    trained = (out / "seed-3" / "run.json").stat().st_mtime_ns
    written = tmp_path / "seeds.json"
    assert main([*command, "2", "--json", str(written)]) == 0
    assert (out / "seed-3" / "run.json").stat().st_mtime_ns == trained
    values = json.loads(written.read_text())
    sums = [Run.open(out / f"seed-{seed}").info["best_recall_sum"] for seed in (3, 4)]
    assert sums[0] != sums[1] and values["mean"]["best_recall_sum"] == pytest.approx(sum(sums) / 2)
    printed = capsys.readouterr().out
    assert f"vsemb evaluate {out} " in printed and f"{sum(sums) / 2:.4g}" in printed
    assert [run.path.name for run in open_seeds(out)] == ["seed-3", "seed-4"]
    measured = vsemb.evaluate(out)
    assert measured.to_json()["mean"]["recall_sum"] == pytest.approx(sum(sums) / 2)
    # Of two numbers, the standard deviation is their distance by the root of 2.
    assert measured.to_json()["sd"]["recall_sum"] == pytest.approx(abs(sums[0] - sums[1]) / 2**0.5)
    assert "images" not in measured.to_json()["mean"]
    assert main(["evaluate", str(out)]) == 0
    assert capsys.readouterr().out == f"{measured}\n"

"""Measuring entailment and zero-shot recognition after every epoch."""

from __future__ import annotations

import json

import numpy as np
import pytest

from vsemb.runs.train import train
from vsemb.systems.zero_shot.recognition import ZeroShotTask


@pytest.mark.slow
def test_recognition_is_measured_on_the_classes_of_validation(flowers, sje_recipe, tmp_path) -> None:
    recipe = sje_recipe("ds-sje-bow", "training.epochs=3", "optimizer.learning_rate=0.02")
    run = train(recipe, flowers, tmp_path / "run")
    logged = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    for row in logged:
        mean = (row["val_top1"] + row["val_average_precision"]) / 2
        np.testing.assert_allclose(row["val_zero_shot"], mean, atol=1e-9)
    best = max(logged, key=lambda row: row["val_zero_shot"])
    assert run.info["best_zero_shot"] == best["val_zero_shot"]
    # The weights that were kept measure the same again.
    metrics = ZeroShotTask(run, flowers, "val").measure()
    np.testing.assert_allclose(metrics.top1, best["val_top1"], atol=1e-4)
    np.testing.assert_allclose(metrics.average_precision, best["val_average_precision"], atol=1e-4)
    assert len({row["val_zero_shot"] for row in logged}) > 1

"""Batches with a loss that is not finite can be left out of training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from tests.models.test_dual_encoder import make_batch, make_model
from vsemb.errors import DataError
from vsemb.losses import InfoNCE, PairwiseRanking
from vsemb.runs.train import train
from vsemb.training.callbacks import RefuseNaN
from vsemb.training.nonfinite import skip_nonfinite
from vsemb.training.optimizers import Adam, RMSprop

GOOD, BAD = make_batch(range(4)), make_batch(range(4), seed=1)
BAD["image"][2, 3] = np.nan


def trained(model: keras.Model, *batches: dict[str, np.ndarray]) -> dict[str, Any]:
    """Train on batches in their order; return the logs."""
    rows = {name: np.concatenate([each[name] for each in batches]) for name in GOOD}
    history = model.fit(rows, batch_size=4, shuffle=False, verbose=0).history
    return {name: values[-1] for name, values in history.items()}


HINGE = PairwiseRanking(0.2)


@pytest.mark.parametrize(
    ("optimizer", "loss"),
    [
        (Adam(), HINGE),
        (Adam(sparse_embedding_updates=True), InfoNCE()),
        (Adam(global_clipnorm=1.0), InfoNCE()),
        (RMSprop(clipvalue=0.1), HINGE),
    ],
)
def test_a_skipped_batch_changes_no_weight(optimizer, loss) -> None:
    if keras.backend.backend() != "tensorflow" and getattr(optimizer, "sparse_embedding_updates", False):
        return
    model, other = make_model(), make_model()
    for each in (model, other):
        each.compile(optimizer.build(1, 1), loss)
    skip_nonfinite(model)
    expected, weights = trained(other, GOOD), trained(model, GOOD, BAD)
    assert weights["skipped"] == 1 and np.isclose(weights["loss"], expected["loss"], rtol=1e-6)
    for here, there in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-6)
    before = [ops.convert_to_numpy(each).copy() for each in model.optimizer.variables]
    assert trained(model, BAD)["skipped"] == 1
    for here, there in zip(model.optimizer.variables[1:], before[1:], strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(here), there)
    assert trained(model, GOOD)["skipped"] == 0
    assert any((here != there).any() for here, there in zip(model.get_weights(), other.get_weights(), strict=True))


def test_skipped_batches_are_named(capsys) -> None:
    refuse = RefuseNaN(lambda epoch, step: f"the batch {epoch}.{step}")
    for step in range(50):
        refuse.on_train_batch_end(step, {"loss": 1.0, "skipped": float(step >= 7) + float(step >= 9)})
    told = capsys.readouterr().err
    assert "not finite: 2, the first" in told and "epoch 1, step 8, of the batch 0.7." in told
    refuse.on_epoch_end(0, {"loss": 1.0, "skipped": 2.0})
    assert capsys.readouterr().err == ""
    refuse.on_epoch_begin(1)
    for step in range(3):
        refuse.on_train_batch_end(step, {"loss": 0.0, "skipped": step + 1.0})
    with pytest.raises(DataError, match=r"2.*1.*1\.0"):
        refuse.on_epoch_end(1, {"loss": 0.0, "skipped": 3.0})


def test_a_recipe_skips_on_request(tiny_recipe, scenes, tmp_path, monkeypatch, capsys) -> None:
    finite = PairwiseRanking.call
    step = keras.Variable(0, dtype="int32", trainable=False)

    def call(self, labels, scores, mask=None):
        # Once per direction, of the batches one and on.
        step.assign_add(1)
        return finite(self, labels, scores, mask) + ops.where(step.value == 5, np.nan, 0.0)

    monkeypatch.setattr(PairwiseRanking, "call", call)
    with pytest.raises(DataError, match="1.*3.*training.nonfinite=skip"):
        train(tiny_recipe.with_overrides(["training.epochs=1"]), scenes, tmp_path / "stopped")
    step.assign(0)
    run = train(tiny_recipe.with_overrides(["training.epochs=1", "training.nonfinite=skip"]), scenes, tmp_path / "run")
    assert "skipped batches whose loss is not finite: 1, the first in epoch 1, step 3, of " in capsys.readouterr().err
    (row,) = map(json.loads, (run.path / "metrics.jsonl").read_text().splitlines())
    assert row["skipped"] == 1 and np.isfinite(row["loss"])


@pytest.mark.slow
def test_with_jax() -> None:
    given = [sys.executable, "-m", "pytest", "-q", "-m", "", "-k", "changes_no_weight", __file__]
    subprocess.run(given, env={**os.environ, "KERAS_BACKEND": "jax"}, check=True)

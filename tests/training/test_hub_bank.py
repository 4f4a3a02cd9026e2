"""A training whose embeddings are corrected for hubs: what is stored is what was measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from tests.tiny import tiny
from tests.training.test_resume import check_same_training
from tests.training.test_resume import metrics as metrics_of
from vsemb import recipes
from vsemb.cli.__main__ import main
from vsemb.runs.measure import evaluate_run
from vsemb.runs.run import Run
from vsemb.runs.train import train

SETTINGS = ("optimizer.learning_rate=0.01", "loss.negatives=all", "text.encoder.pooling=mean", "hub_bank=1000")


@pytest.fixture(scope="module")
def run(scenes, trained) -> Run:
    return trained("tiny-hubs", tiny(recipes.get("vsepp", "paper"), *SETTINGS), scenes)


def test_what_is_stored_was_measured(run: Run, tiny_run: Run, scenes) -> None:
    hubs = run.model.hubs
    train_split = scenes.split("train")
    # The bank has no more items than the training split has images.
    assert hubs.size == len(train_split) and hubs.neighbours == max(1, hubs.size // 100)
    assert np.abs(hubs.banks["image"]).max() > 0.1
    metrics = evaluate_run(run, scenes, "val")
    assert metrics.recall_sum == pytest.approx(run.info["best_recall_sum"])
    # The training itself is that without a correction.
    assert run.embedding_dim == tiny_run.embedding_dim + 2
    losses = [[row["loss"] for row in metrics_of(each.path)] for each in (run, tiny_run)]
    np.testing.assert_allclose(*losses, rtol=1e-6)


def test_searched_and_exported(run: Run, scenes, tmp_path: Path, capsys) -> None:
    out = str(tmp_path / "served")
    assert main(["search", str(run.path), "a red circle", "--data", str(scenes.path), "--split", "val"]) == 0
    assert main(["export", str(run.path), out]) == 0
    outputs = tf.saved_model.load(f"{out}/1").signatures["encode_text"](text=tf.constant(["a red circle", ""]))
    text = run.model.encode_texts(run.tokenizer(tf.constant(["a red circle"])))
    assert text.shape == (1, run.embedding_dim) and np.linalg.norm(text) == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(outputs["embedding"][:1], text, atol=1e-5)
    # The second text has no words.
    assert outputs["valid"].numpy().tolist() == [True, False] and not np.any(outputs["embedding"][1])


def test_an_order_takes_no_correction() -> None:
    with raises_argument("hub_bank"):
        recipes.get("order-embedding").with_overrides(["hub_bank=5"])


@pytest.mark.slow
def test_resumed_equals_uninterrupted(scenes, run: Run, tmp_path: Path) -> None:
    recipe = tiny(recipes.get("vsepp", "paper"), *SETTINGS, "training.epochs=1")
    train(recipe, scenes, tmp_path / "run")
    train(recipe.with_overrides(["training.epochs=2"]), scenes, tmp_path / "run")
    check_same_training(tmp_path / "run", run.path)

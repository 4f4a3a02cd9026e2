"""Measuring entailment and zero-shot recognition after every epoch."""

from __future__ import annotations

import json

import keras
import numpy as np

from tests.data.test_sentence_pairs import make_split
from vsemb import recipes
from vsemb.data import SentencePairBatches
from vsemb.data.store import Dataset
from vsemb.encoders import LinearSentenceEncoder, WordEmbedding
from vsemb.evaluation import EnergyMeasure, evaluate_entailment
from vsemb.losses import MaxMargin
from vsemb.models import EntailmentModel
from vsemb.recipes.train import train
from vsemb.recipes.zero_shot import evaluate_zero_shot_run
from vsemb.training import EntailmentValidation, averaged_weights


def make_model(**options) -> EntailmentModel:
    keras.utils.set_random_seed(0)
    model = EntailmentModel(LinearSentenceEncoder(WordEmbedding(10_100, 4, init_scale=1.0)))
    model.build()
    model.compile(keras.optimizers.Adam(0.1, **options), loss=MaxMargin(0.3), jit_compile=False)
    return model


def test_the_logs_are_those_of_the_split() -> None:
    split = make_split(60)
    model = make_model()
    batches = SentencePairBatches(split, batch_size=20)
    history = model.fit(
        batches.dataset(), epochs=2, callbacks=[EntailmentValidation(split)], verbose=0, shuffle=False
    )
    metrics = evaluate_entailment(EnergyMeasure(model)(split), split.classes)
    for name in ("accuracy", "average_precision", "roc_auc"):
        assert len(history.history[f"val_{name}"]) == 2
        np.testing.assert_allclose(history.history[f"val_{name}"][-1], getattr(metrics, name), atol=1e-6)
    # It learns its training pairs, which validation would show.
    assert metrics.roc_auc > 0.9


def test_the_moving_average_is_what_is_measured() -> None:
    split = make_split(60)
    model = make_model(use_ema=True, ema_momentum=0.9)
    validation = EntailmentValidation(split)
    model.fit(SentencePairBatches(split, batch_size=20).dataset(), verbose=0, shuffle=False)
    model.text_encoder.words.table.assign(np.zeros((10_100, 4)))
    validation.set_model(model)
    with averaged_weights(model):
        expected = evaluate_entailment(EnergyMeasure(model)(split), split.classes)
    logs: dict[str, float] = {}
    validation.on_epoch_end(0, logs)
    assert logs["val_roc_auc"] == expected.roc_auc != 0.5


def test_recognition_is_measured_on_the_classes_of_validation(flowers_path, tmp_path) -> None:
    recipe = recipes.get("ds-sje-bow").with_overrides(["training.epochs=6", "optimizer.learning_rate=0.02"])
    dataset = Dataset.open(flowers_path)
    run = train(recipe, dataset, tmp_path / "run")
    logged = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    for row in logged:
        mean = (row["val_top1"] + row["val_average_precision"]) / 2
        np.testing.assert_allclose(row["val_zero_shot"], mean, atol=1e-9)
    best = max(logged, key=lambda row: row["val_zero_shot"])
    assert run.info["best_zero_shot"] == best["val_zero_shot"]
    # The weights that were kept measure the same again.
    found = evaluate_zero_shot_run(run, dataset, "val")
    np.testing.assert_allclose(found.top1, best["val_top1"], atol=1e-4)
    np.testing.assert_allclose(found.average_precision, best["val_average_precision"], atol=1e-4)
    assert len({row["val_zero_shot"] for row in logged}) > 1

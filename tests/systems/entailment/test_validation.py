"""Measuring entailment and zero-shot recognition after every epoch."""

from __future__ import annotations

import keras
import numpy as np

from tests.systems.entailment.test_batches import make_split
from vsemb.encoders import LinearSentenceEncoder, WordEmbedding
from vsemb.losses.max_margin import MaxMargin
from vsemb.systems.entailment.batches import SentencePairBatches
from vsemb.systems.entailment.metrics import EnergyMeasure, evaluate_entailment
from vsemb.systems.entailment.model import EntailmentModel
from vsemb.systems.entailment.validation import EntailmentValidation
from vsemb.training import averaged_weights


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
    history = model.fit(batches.dataset(), epochs=2, callbacks=[EntailmentValidation(split)], verbose=0, shuffle=False)
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

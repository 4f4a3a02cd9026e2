"""Two-class entailment: metrics by hand, energies of many pairs."""

from __future__ import annotations

import json

import keras
import numpy as np
import pytest

from tests.contract import SAME
from tests.systems.entailment.test_data import make_split
from vsemb.encoders import LinearSentenceEncoder, RecurrentSentenceEncoder, WordEmbedding
from vsemb.errors import DataError
from vsemb.losses.max_margin import MaxMargin
from vsemb.systems.entailment.data import SentencePairBatches
from vsemb.systems.entailment.metrics import PairMeasure, PairValidation, evaluate_classes, evaluate_entailment
from vsemb.systems.entailment.model import EntailmentModel
from vsemb.training import averaged_weights

# Six pairs in order of energy, with the classes entailment 0, neutral 1, contradiction 2.
ENERGIES = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], np.float32)
CLASSES = np.array([0, 1, 0, 2, 1, 2], np.int8)


def test_by_hand() -> None:
    metrics = evaluate_entailment(ENERGIES, CLASSES, threshold=0.25)
    # Called entailed: the first, rightly, and the second, wrongly; the third is missed.
    assert (metrics.pairs, metrics.entailed, metrics.threshold) == (6, 2, 0.25)
    assert metrics.accuracy == pytest.approx(4 / 6)
    # Four of six are not entailed.
    assert metrics.majority == pytest.approx(4 / 6)
    # Precision at the two entailed pairs: 1 / 1 and 2 / 3.
    assert metrics.average_precision == pytest.approx((1 + 2 / 3) / 2)
    # Of the 2 x 4 pairs of pairs only (0.3, 0.2) is the wrong way round.
    assert metrics.roc_auc == pytest.approx(7 / 8)
    assert metrics.class_accuracy == {"entailment": 0.5, "neutral": 0.5, "contradiction": 1.0}


def test_the_best_threshold_where_none_is_given() -> None:
    # 0.1 makes one mistake (the third), 0.3 one too (the second); the smaller is taken.
    metrics = evaluate_entailment(ENERGIES, CLASSES)
    assert metrics.threshold == pytest.approx(0.1) and metrics.accuracy == pytest.approx(5 / 6)


def test_json_is_finite() -> None:
    # The best is to call nothing entailed: minus infinity, which JSON does not have.
    metrics = evaluate_entailment(np.array([0.5, 0.1, 0.2]), np.array([0, 1, 2]))
    assert metrics.threshold == -np.inf
    written = json.loads(json.dumps(metrics.to_json(), allow_nan=False))
    assert written["threshold"] is None and written["accuracy"] == pytest.approx(2 / 3)
    assert evaluate_entailment(ENERGIES, CLASSES, 0.25).to_json()["threshold"] == 0.25


def test_classes_that_are_not_there() -> None:
    metrics = evaluate_entailment(np.array([0.5, 0.1]), np.array([0, 2]))
    assert set(metrics.class_accuracy) == {"entailment", "contradiction"}
    with pytest.raises(DataError):
        evaluate_entailment(np.array([0.5, 0.1]), np.array([1, 2]))
    with pytest.raises(DataError, match="NaN"):
        evaluate_entailment(np.array([0.5, np.nan]), np.array([0, 2]))


def test_energies_are_those_of_each_pair_alone() -> None:
    split = make_split(50)
    model = EntailmentModel(RecurrentSentenceEncoder(WordEmbedding(10_100, 4, init_scale=1.0), 4, units=6))
    measure = PairMeasure(model)
    found = measure(split, 7)
    for batch_size in (50, 256):
        np.testing.assert_allclose(measure(split, batch_size), found, **SAME)
    assert found.shape == (50,) and found.dtype == np.float32 and found.std() > 1e-3
    for row in (0, 13, 49):
        rows = np.array([row])
        inputs = {"premise": split.premises.padded(rows), "hypothesis": split.hypotheses.padded(rows)}
        np.testing.assert_allclose(found[row], model(inputs)[0], **SAME)
    # Weights that change later are seen.
    model.set_weights([weight + 1 for weight in model.get_weights()])
    assert not np.array_equal(measure(split, 7), found)


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
        batches.dataset(), epochs=2, callbacks=[PairValidation(split, evaluate_entailment)], verbose=0, shuffle=False
    )
    metrics = evaluate_entailment(PairMeasure(model)(split), split.classes)
    for name in ("accuracy", "average_precision", "roc_auc"):
        assert len(history.history[f"val_{name}"]) == 2
        np.testing.assert_allclose(history.history[f"val_{name}"][-1], getattr(metrics, name), atol=1e-6)
    # It learns its training pairs, which validation would show.
    assert metrics.roc_auc > 0.9


def test_the_moving_average_is_what_is_measured() -> None:
    split = make_split(60)
    model = make_model(use_ema=True, ema_momentum=0.9)
    validation = PairValidation(split, evaluate_entailment)
    model.fit(SentencePairBatches(split, batch_size=20).dataset(), verbose=0, shuffle=False)
    model.text_encoder.words.table.assign(np.zeros((10_100, 4)))
    validation.set_model(model)
    with averaged_weights(model):
        expected = evaluate_entailment(PairMeasure(model)(split), split.classes)
    logs: dict[str, float] = {}
    validation.on_epoch_end(0, logs)
    assert logs["val_roc_auc"] == expected.roc_auc != 0.5


LOGS = {"val_accuracy": 0.875, "val_average_precision": 0.5}


def test_metrics_as_text() -> None:
    shown = PairValidation.__new__(PairValidation).shown({"loss": 1.0, **LOGS})
    assert shown == "val accuracy 87.5 %  val average precision 50.0 %"


def test_three_classes_by_hand() -> None:
    # Predicted: 0, 1, 2, 1, 0, 2. Right: the first, the second, the last; the fourth is right in two classes.
    logits = np.array([[3, 1, 2], [0, 1, 0], [0, 0, 9], [-3, -1, -2], [5, 4, 4], [0, 0, 0.1]], np.float32)
    metrics = evaluate_classes(logits, CLASSES)
    assert (metrics.pairs, metrics.accuracy, metrics.majority) == (6, 0.5, pytest.approx(1 / 3))
    assert metrics.two_class_accuracy == pytest.approx(4 / 6)
    assert metrics.class_accuracy == {"entailment": 0.5, "neutral": 0.5, "contradiction": 0.5}
    assert json.loads(json.dumps(metrics.to_json())) == metrics.to_json()
    with pytest.raises(DataError, match="NaN"):
        evaluate_classes(np.full((6, 3), np.nan), CLASSES)

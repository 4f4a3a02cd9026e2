"""Two-class entailment: metrics by hand, energies of many pairs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.contract import SAME
from tests.systems.entailment.test_batches import make_split
from vsemb.encoders import RecurrentSentenceEncoder, WordEmbedding
from vsemb.errors import DataError
from vsemb.systems.entailment.metrics import EnergyMeasure, evaluate_entailment
from vsemb.systems.entailment.model import EntailmentModel

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
    with pytest.raises(DataError, match="true"):
        evaluate_entailment(np.array([0.5, 0.1]), np.array([1, 2]))
    with pytest.raises(DataError, match="NaN"):
        evaluate_entailment(np.array([0.5, np.nan]), np.array([0, 2]))


@pytest.mark.parametrize("batch_size", [7, 50, 256])
def test_energies_are_those_of_each_pair_alone(batch_size: int) -> None:
    split = make_split(50)
    model = EntailmentModel(RecurrentSentenceEncoder(WordEmbedding(10_100, 4, init_scale=1.0), 4, units=6))
    measure = EnergyMeasure(model)
    found = measure(split, batch_size)
    assert found.shape == (50,) and found.dtype == np.float32 and found.std() > 1e-3
    for row in (0, 13, 49):
        rows = np.array([row])
        inputs = {"premise": split.premises.padded(rows), "hypothesis": split.hypotheses.padded(rows)}
        np.testing.assert_allclose(found[row], model(inputs)[0], **SAME)
    # Weights that change later are seen.
    model.set_weights([weight + 1 for weight in model.get_weights()])
    assert not np.array_equal(measure(split, batch_size), found)

"""`vsemb evaluate` of a run on sentence pairs."""

from __future__ import annotations

from vsemb.systems.entailment.metrics import EntailmentMetrics
from vsemb.systems.entailment.protocol import entailment_table


def test_entailment_table_is_in_percent():
    classes = {"entailment": 0.5, "neutral": 0.75, "contradiction": 1.0}
    metrics = EntailmentMetrics(12, 4, 0.75, 2 / 3, 0.8125, 0.9, 0.0625, classes)
    lines = entailment_table(metrics, "test").splitlines()
    assert lines[0] == "test: 12 pairs"
    values = {line[:27].strip(): line[27:].strip() for line in lines[1:]}
    assert values == {
        "entailed pairs": "4",
        "accuracy": "75.0 %",
        "majority class": "66.7 %",
        "average precision": "81.2 %",
        "area under ROC": "90.0 %",
        "accuracy on entailment": "50.0 %",
        "accuracy on neutral": "75.0 %",
        "accuracy on contradiction": "100.0 %",
        "threshold, from val": "0.0625",
    }

"""`vsemb evaluate --entailment`: two-class accuracy, average precision, area under ROC."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from vsemb.commands import Measured, Mode, table

if TYPE_CHECKING:
    from vsemb.runs.run import Run
    from vsemb.systems.entailment.metrics import EntailmentMetrics


def _evaluate(arguments: argparse.Namespace, opened: Run) -> Measured:
    """Measure entailment at the best threshold of the validation split."""
    from vsemb.systems.entailment.recipe import evaluate_entailment_run

    data = opened.open_data(arguments.data)
    metrics = evaluate_entailment_run(opened, data, arguments.split)
    return Measured(f"{entailment_table(metrics, arguments.split)}\n\n{data.protocol}", metrics.to_json())


def entailment_table(metrics: EntailmentMetrics, split: str) -> str:
    """Format entailment metrics as a table, in percent."""
    measured = {
        "accuracy": metrics.accuracy,
        "majority class": metrics.majority,
        "average precision": metrics.average_precision,
        "area under ROC": metrics.roc_auc,
        **{f"accuracy on {name}": share for name, share in metrics.class_accuracy.items()},
    }
    rows = [[name, f"{100 * value:.1f} %"] for name, value in measured.items()]
    rows.append(["threshold, from val", f"{metrics.threshold:.3g}  "])
    return table([f"{split}: {metrics.pairs} pairs, {metrics.entailed} entailed", ""], rows)


ENTAILMENT = Mode(_evaluate, recipes=("vsemb.systems.entailment.recipe:Entailment",))

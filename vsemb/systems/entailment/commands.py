"""`vsemb evaluate --entailment`: accuracy in two or three classes, average precision, area under ROC."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from vsemb.commands import Measured, Mode
from vsemb.printing import table

if TYPE_CHECKING:
    from vsemb.runs.run import Run
    from vsemb.systems.entailment.metrics import PairMetrics


def _evaluate(arguments: argparse.Namespace, opened: Run) -> Measured:
    """Measure entailment: two classes at the best threshold of the validation split, or three."""
    data = opened.open_data(arguments.data)
    metrics = opened.recipe.measure(opened, data, arguments.split)
    return Measured(f"{entailment_table(metrics, arguments.split)}\n\n{data.protocol}", metrics.to_json())


def entailment_table(metrics: PairMetrics, split: str) -> str:
    """Format metrics of pairs as a table, in percent."""
    rows = [[name, value] for name, value in metrics.rows().items()]
    return table([f"{split}: {metrics.pairs} pairs", ""], rows)


ENTAILMENT = Mode(_evaluate, recipes=("vsemb.systems.entailment.recipe:SentencePairs",))

"""Protocol `entailment` of `vsemb.evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vsemb.printing import table
from vsemb.results import Table
from vsemb.runs.protocols import Protocol

if TYPE_CHECKING:
    from vsemb.runs.run import Run
    from vsemb.systems.entailment.data import EntailmentData
    from vsemb.systems.entailment.metrics import PairMetrics


@dataclass(frozen=True)
class Entailment(Protocol, kind="entailment"):
    """Entailment in two classes, at the best threshold of the validation split, or in three."""

    tasks: ClassVar[Sequence[str]] = ("vsemb.systems.entailment.recipe:SentencePairs",)

    def measure(self, run: Run, data: EntailmentData, split: str) -> Table:
        metrics = run.recipe.measure(run, data, split)
        return Table(f"{entailment_table(metrics, split)}\n\n{data.protocol}", metrics.to_json())


def entailment_table(metrics: PairMetrics, split: str) -> str:
    """Format metrics of pairs as a table, in percent."""
    rows = [[name, value] for name, value in metrics.rows().items()]
    return table([f"{split}: {metrics.pairs} pairs", ""], rows)

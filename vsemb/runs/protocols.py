"""Protocols of `vsemb.evaluate`: standard ways to measure runs, as parts with their options as fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from vsemb import registry
from vsemb.errors import InvalidArgumentError
from vsemb.parts import Count, Part, Whole
from vsemb.results import Result

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.evaluation import RetrievalMetrics
    from vsemb.recipes.schema import Recipe
    from vsemb.runs.run import Run

#: Reference to the task of most protocols.
RETRIEVAL = "vsemb.recipes.retrieval:Retrieval"


@dataclass(frozen=True)
class Protocol(Part, family="protocol"):
    """A standard way to measure runs.

    Its module imports nothing heavy outside functions, because `--help` shows its fields.

    Class attributes:
        tasks: references to the tasks, classes of recipes, whose runs it measures.
    """

    tasks: ClassVar[Sequence[str]] = ()

    def measures(self, recipe: Recipe) -> bool:
        """Whether it measures runs of a recipe."""
        return any(isinstance(recipe, registry.load(reference)) for reference in self.tasks)

    def require(self, run: Run) -> None:
        """Refuse a run that the protocol does not measure.

        Raises:
            InvalidArgumentError: naming the run's own protocol.
        """
        if not self.measures(run.recipe):
            raise InvalidArgumentError(
                f"`protocol` must measure the run; got {self.kind!r} and {run.path}, a run of the recipe "
                f"{run.recipe.name!r}, which is for {run.recipe.kind}. Its own protocol is {run.recipe.evaluation!r}.",
                argument="protocol",
            )

    def measure(self, run: Run, data: Any, split: str) -> Result:
        """Measure a run.

        Args:
            run: the run.
            data: opened data of the run's task, such as a `vsemb.Dataset`.
            split: name of the split.

        Raises:
            VsembError: if run, data and options do not match.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Retrieval(Protocol, kind="retrieval"):
    """Recall at 1, 5 and 10, their sum, median and mean rank, in both directions.

    Attributes:
        folds: also average over this number of contiguous folds of images.
        bootstrap: bootstrap samples for 95 % intervals; 0 for none.
        recalls: also measure recall at these numbers of results.
        pairs: also rank this number of images, each with its first text; true for all images.
        csls: also rank with scores corrected for hubs by this number of neighbours, which reads all queries at once;
            true for 10.
    """

    folds: Count = 1
    bootstrap: Whole = 0
    recalls: tuple[Count, ...] = ()
    pairs: Count | Literal[True] | None = None
    csls: Count | Literal[True] | None = None

    tasks: ClassVar[Sequence[str]] = (RETRIEVAL,)

    def measure(self, run: Run, data: StoredDataset, split: str) -> RetrievalMetrics:
        from vsemb.runs.measure import evaluate_run

        return evaluate_run(
            run,
            data,
            split,
            folds=self.folds,
            bootstrap=self.bootstrap,
            recalls=self.recalls,
            pairs=len(data.split(split)) if self.pairs is True else self.pairs,
            csls=10 if self.csls is True else self.csls,
        )

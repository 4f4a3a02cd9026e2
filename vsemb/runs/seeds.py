"""Runs of one recipe with several seeds: `OUT/seed-0`, `OUT/seed-1` and so on, each an ordinary run directory."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vsemb.errors import DataError
from vsemb.printing import table
from vsemb.recipes.info import untyped
from vsemb.recipes.schema import Recipe
from vsemb.results import Result, Table
from vsemb.runs.run import RECIPE, Run


@dataclass(frozen=True, repr=False)
class SeededRuns(Result):
    """Runs that differ in their seed only.

    Attributes:
        path: directory of the run directories.
        runs: the runs, by ascending seed.
    """

    path: Path
    runs: tuple[Run, ...]

    @property
    def measured(self) -> Table:
        """Mean and standard deviation of the best validation metrics."""
        values = {
            run.path.name: {name: untyped(run.info)[name] for name in run.info if name.startswith("best_")}
            for run in self.runs
        }
        return over_seeds(values)

    def to_json(self) -> dict[str, Any]:
        """Return the mean, the standard deviation, and the metrics of each run."""
        return self.measured.to_json()

    def __str__(self) -> str:
        first = self.runs[0]
        return "\n".join(
            [f"runs         {self.path}", self.measured.text, first.recipe.summary(first.info, str(self.path))[-1]]
        )

    def __repr__(self) -> str:
        return f"SeededRuns({str(self.path)!r}, {len(self.runs)} runs)"


def seeded_recipes(recipe: Recipe, out: str | os.PathLike[str], count: int) -> dict[Path, Recipe]:
    """Return run directories and the recipe of each, which differ in `training.seed` only.

    Args:
        recipe: the recipe; its seed is the first.
        out: directory of the run directories.
        count: number of seeds, >= 1.

    Raises:
        DataError: if `out` is a run directory itself.
    """
    if (Path(out) / RECIPE).exists():
        raise DataError(f"{out} must be a directory of runs with `seeds`; it is one run. Choose another directory.")
    training = recipe.training
    return {
        Path(out) / f"seed-{seed}": replace(recipe, training=replace(training, seed=seed))
        for seed in range(training.seed, training.seed + count)
    }


def open_seeds(path: Run | str | os.PathLike[str]) -> list[Run]:
    """Open a run, or the runs of a directory that `vsemb train --seeds` wrote, by ascending seed.

    Args:
        path: the directory, or an opened run.

    Raises:
        DataError: as `Run.open`.
    """
    if isinstance(path, Run):
        return [path]
    folders = [] if (Path(path) / RECIPE).exists() else list(Path(path).glob("seed-*"))
    return [Run.open(each) for each in sorted(folders, key=lambda each: (len(each.name), each.name)) or [Path(path)]]


def over_seeds(each: Mapping[str, Mapping[str, Any]], what: str = "seeds") -> Table:
    """Return mean and standard deviation of metrics over runs that differ in their seed.

    Args:
        each: name of the run -> its metrics, as their `to_json` returns them. Floating-point numbers are metrics;
            whole numbers count things and are left out.
        what: the difference between the runs.

    Example:

    >>> print(over_seeds({"seed-0": {"images": 10, "R@1": 20.0}, "seed-1": {"images": 10, "R@1": 21.0}}))
    seeds: 2  mean      sd  seed-0  seed-1
    R@1       20.5  0.7071      20      21
    """
    runs = {name: _numbers(values) for name, values in each.items()}
    columns = {metric: [metrics[metric] for metrics in runs.values()] for metric in next(iter(runs.values()))}
    mean = {metric: statistics.fmean(values) for metric, values in columns.items()}
    spread = {metric: statistics.stdev(values) if len(runs) > 1 else 0.0 for metric, values in columns.items()}
    rows = [
        [metric, *(f"{value:.4g}" for value in (mean[metric], spread[metric], *values))]
        for metric, values in columns.items()
    ]
    text = table([f"{what}: {len(runs)}", "mean", "sd", *runs], rows)
    return Table(text, {"mean": mean, "sd": spread, "runs": dict(each)})


def _numbers(values: Any, path: str = "") -> dict[str, float]:
    """Return the floating-point numbers in JSON values by their path."""
    if isinstance(values, float):
        return {path: values}
    numbers: dict[str, float] = {}
    for name, value in values.items() if isinstance(values, Mapping) else ():
        if name == "measured":
            numbers |= _numbers(value[0], path)
        else:
            numbers |= _numbers(value, f"{path} {name}".strip())
    return numbers

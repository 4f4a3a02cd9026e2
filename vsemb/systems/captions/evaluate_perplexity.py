"""`vsemb evaluate --perplexity`: how well language models and captioners predict the words of captions."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vsemb.commands import table

if TYPE_CHECKING:
    from vsemb.recipes.schema import Recipe
    from vsemb.runs.run import Run
    from vsemb.systems.captions.perplexity import PerplexityRow

SUMMARY = "perplexity of the captions of a split"
USES = ("beside",)


def measures(recipe: Recipe) -> bool:
    """Whether it measures runs of a recipe: those of models of the next word."""
    from vsemb.systems.captions.task import NextWordTask

    return isinstance(recipe, NextWordTask)


def configure(parser: argparse._ActionsContainer) -> None:
    """Adds the protocol's options: none of its own."""
    del parser


def run(arguments: argparse.Namespace, opened: Run) -> dict[str, Any]:
    """Measures and prints; returns what is written as JSON."""
    from vsemb.errors import DataError
    from vsemb.runs.run import Run
    from vsemb.systems.captions.perplexity import difference_of, measure_perplexities

    runs = [opened, *map(Run.open, arguments.beside)]
    for run in runs:
        if not measures(run.recipe):
            raise DataError(
                f"{run.path} must be a run that writes words, such as one of multimodal-rnn or sc-nlm; it was trained "
                f"with the recipe {run.recipe.name!r}, which is for {run.recipe.kind}."
            )
    rows = measure_perplexities(runs, opened.open_data(arguments.data), arguments.split)
    difference = difference_of(rows[: len(runs)])
    print(perplexity_table(rows, arguments.split, difference))
    return {"split": arguments.split, "difference": difference, "measured": [row.to_json() for row in rows]}


def perplexity_table(rows: Sequence[PerplexityRow], split: str, difference: str | None) -> str:
    """Lays out perplexities, a row per run or baseline.

    Args:
        rows: see `vsemb.systems.captions.perplexity.measure_perplexities`.
        split: its name.
        difference: why the rows do not compare, if they do not.
    """
    cells = [
        [
            row.name,
            row.decoder,
            f"{row.perplexity:.2f}",
            f"{row.bits:.3f}",
            f"{row.words:,}",
            f"{100 * row.unknown:.1f} %",
        ]
        for row in rows
    ]
    header = [split, "model", "perplexity", "bits per word", "words", "unknown"]
    return "\n".join([table(header, cells, text=(0, 1)), *([difference] if difference else [])])

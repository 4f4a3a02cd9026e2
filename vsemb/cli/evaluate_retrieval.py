"""`vsemb evaluate --retrieval`: recall and rank, from images to texts and back."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vsemb.recipes.schema import Recipe
    from vsemb.runs.run import Run

SUMMARY = "recall at 1, 5, 10, median and mean rank"


def measures(recipe: Recipe) -> bool:
    """Whether it measures runs of a recipe: those for retrieval."""
    from vsemb.recipes.retrieval import Retrieval

    return isinstance(recipe, Retrieval)


def configure(parser: argparse._ActionsContainer) -> None:
    """Adds the protocol's options."""
    parser.add_argument(
        "--folds", type=int, default=1, help="average over contiguous parts of the images (%(default)s)"
    )
    parser.add_argument(
        "--bootstrap", type=int, default=0, metavar="N", help="resamplings for 95 %% intervals (0: none)"
    )
    parser.add_argument("--recalls", type=int, nargs="+", metavar="K", help="recall at these K (1 5 10)")
    parser.add_argument(
        "--pairs",
        type=int,
        nargs="?",
        const=True,
        metavar="N",
        help="also rank the first N images, each with its first text",
    )


def run(arguments: argparse.Namespace, opened: Run) -> dict[str, Any]:
    """Measures and prints; returns what is written as JSON."""
    from vsemb.report.tables import retrieval_table
    from vsemb.runs.measure import evaluate_run

    dataset = opened.open_data(arguments.data)
    # Without a number, all of them.
    every = arguments.pairs is True
    metrics = evaluate_run(
        opened,
        dataset,
        arguments.split,
        folds=arguments.folds,
        bootstrap=arguments.bootstrap,
        recalls=arguments.recalls or (),
        pairs=len(dataset.split(arguments.split)) if every else arguments.pairs,
    )
    print(retrieval_table(metrics))
    return metrics.to_json()

"""`vsemb evaluate` and the protocol of retrieval."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from vsemb.commands import Mode, Modes, add_json, add_options, apply_options, picked, save_json

if TYPE_CHECKING:
    from vsemb.runs.run import Run


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", help="the run directory")
    parser.add_argument("--data", help="dataset (the training dataset)")
    parser.add_argument("--split", default="val", help="split to evaluate (%(default)s)")
    add_json(parser)
    add_options(parser, "run")
    Modes(parser, "evaluate")


def run(arguments: argparse.Namespace) -> None:
    """Measure a run with a standard protocol, such as recall at K; each protocol has its own flag.

    Without a flag, the default protocol of the run's recipe is used, such as --retrieval for image-text models. In
    every protocol, ties count against the model.

    Examples:
      vsemb evaluate runs/vsepp --data data/flickr8k --split test --json metrics.json
      vsemb evaluate runs/coco --data data/coco --split test --folds 5
      vsemb evaluate runs/vsepp --split test --pairs 1000 --recalls 1 5 10 20 50
    """
    from vsemb.errors import InvalidArgumentError, unknown_name
    from vsemb.runs.run import Run

    modes: Modes = arguments.modes
    chosen = modes.chosen(arguments)
    if chosen:
        modes.check(arguments, chosen)
    opened = Run.open(arguments.run)
    recipe = opened.recipe
    name = chosen or recipe.evaluation
    if name not in modes.modes:
        raise unknown_name("evaluation", name, modes.modes)
    modes.check(arguments, name)
    protocol = modes.modes[name]
    if name != recipe.evaluation and not protocol.measures(recipe):
        raise InvalidArgumentError(
            f"--{name} must be given with a run that it measures; got {opened.path}, a run of the recipe "
            f"{recipe.name!r}, which is for {recipe.kind}. Its own protocol is --{recipe.evaluation}."
        )
    apply_options(arguments, opened, "run")
    # A protocol measures, prints, and returns the values for JSON.
    save_json(arguments, protocol.run(arguments, opened))


def _configure_retrieval(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--folds", type=int, default=1, help="average over contiguous folds of images (%(default)s)")
    parser.add_argument(
        "--bootstrap", type=int, default=0, metavar="N", help="bootstrap samples for 95 %% intervals (none)"
    )
    parser.add_argument("--recalls", type=int, nargs="+", default=(), metavar="K", help="recall at these K (1 5 10)")
    parser.add_argument(
        "--pairs", type=int, nargs="?", const=True, metavar="N", help="also rank N images, each with its first text"
    )


def _evaluate_retrieval(arguments: argparse.Namespace, opened: Run) -> dict[str, Any]:
    """Measure recall at 1, 5 and 10, median and mean rank, in both directions."""
    from vsemb.report.retrieval import retrieval_table
    from vsemb.runs.measure import evaluate_run

    dataset = opened.open_data(arguments.data)
    # `--pairs` without a number ranks all images.
    pairs = len(dataset.split(arguments.split)) if arguments.pairs is True else arguments.pairs
    options = picked(arguments, "folds", "bootstrap", "recalls")
    metrics = evaluate_run(opened, dataset, arguments.split, **options, pairs=pairs)
    print(retrieval_table(metrics))
    return metrics.to_json()


RETRIEVAL = Mode(_evaluate_retrieval, _configure_retrieval, recipes=("vsemb.recipes.retrieval:Retrieval",))

"""`vsemb evaluate` and the protocol of retrieval."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vsemb.commands import Measured, Mode, Modes, add_options, apply_options, over_seeds, picked
from vsemb.printing import add_json, save_json

if TYPE_CHECKING:
    from vsemb.runs.run import Run


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", help="the run directory, or a directory of runs by train --seeds")
    parser.add_argument("--data", help="dataset (the training dataset)")
    parser.add_argument("--split", default="val", help="split to evaluate (%(default)s)")
    add_json(parser)
    add_options(parser, "run")
    Modes(parser, "evaluate")


def run(arguments: argparse.Namespace) -> None:
    """Measure a run with a standard protocol, such as recall at K; each protocol has its own flag.

    Without a flag, the default protocol of the run's recipe is used, such as --retrieval for image-text models. In
    every protocol, ties count against the model. For a directory of runs that `vsemb train --seeds` wrote, the mean and
    the standard deviation over its runs are printed.

    Examples:
      vsemb evaluate runs/vsepp --data data/flickr8k --split test --json metrics.json
      vsemb evaluate runs/coco --data data/coco --split test --folds 5
      vsemb evaluate runs/vsepp --split test --pairs 1000 --recalls 1 5 10 20 50
    """
    from vsemb.runs.seeds import open_seeds

    modes: Modes = arguments.modes
    chosen = modes.chosen(arguments)
    if chosen:
        modes.check(arguments, chosen)
    found = _measured(arguments, open_seeds(arguments.run), chosen)
    print(found.text)
    save_json(arguments, found.values)
    found.finish()


def measure(runs: Sequence[Run], data: Any, split: str, protocol: str | None, options: Mapping[str, Any]) -> Any:
    """Measure a run, or runs that differ in their seed, as the command does, see `vsemb.evaluate`.

    Args:
        runs: one or more runs.
        data: the data or its path; None for the training data.
        split: name of the split.
        protocol: name of the protocol; None for the default of the run's recipe.
        options: option of the protocol -> value.

    Returns:
        `Measured.result`, or the `Measured` itself.

    Raises:
        VsembError: as `vsemb.evaluate`.
    """
    from vsemb.errors import unknown_name

    parser = argparse.ArgumentParser()
    configure(parser)
    arguments = parser.parse_args([""])
    for name in options.keys() - set(arguments.modes.options):
        raise unknown_name("option", name, arguments.modes.options)
    vars(arguments).update(data=data, split=split, **options)
    found = _measured(arguments, runs, protocol)
    found.finish()
    return found if found.result is None else found.result


def _measured(arguments: argparse.Namespace, runs: Sequence[Run], chosen: str | None) -> Measured:
    if arguments.kept:
        runs = [kept for opened in runs for kept in opened.kept]
    each = {}
    for opened in runs:
        # Some protocols open the run from this path.
        arguments.run = str(opened.path)
        each[opened.label] = _measured_run(arguments, opened, chosen)
    first = next(iter(each.values()))
    if len(each) == 1:
        return first
    what = "epochs" if arguments.kept else "seeds"
    return replace(over_seeds({name: found.values for name, found in each.items()}, what), finish=first.finish)


def _measured_run(arguments: argparse.Namespace, opened: Run, chosen: str | None) -> Measured:
    from vsemb.errors import InvalidArgumentError, unknown_name

    modes: Modes = arguments.modes
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
    return protocol.run(arguments, opened)


def _configure_retrieval(parser: argparse._ActionsContainer) -> None:
    folds = "also average over N contiguous folds of images (none)"
    parser.add_argument("--folds", type=int, default=1, metavar="N", help=folds)
    parser.add_argument(
        "--bootstrap", type=int, default=0, metavar="N", help="bootstrap samples for 95 %% intervals (none)"
    )
    parser.add_argument("--recalls", type=int, nargs="+", default=(), metavar="K", help="recall at these K (1 5 10)")
    parser.add_argument(
        "--pairs", type=int, nargs="?", const=True, metavar="N", help="also rank N images, each with its first text"
    )
    csls = "also rank with scores corrected for hubs by K neighbours (10), which reads all queries at once"
    parser.add_argument("--csls", type=int, nargs="?", const=10, metavar="K", help=csls)
    parser.add_argument("--kept", action="store_true", help="average over the epochs that training.keep kept")


def _evaluate_retrieval(arguments: argparse.Namespace, opened: Run) -> Measured:
    """Measure recall at 1, 5 and 10, their sum, median and mean rank, in both directions."""
    from vsemb.report.retrieval import retrieval_table
    from vsemb.runs.measure import evaluate_run

    dataset = opened.open_data(arguments.data)
    # `--pairs` without a number ranks all images.
    pairs = len(dataset.split(arguments.split)) if arguments.pairs is True else arguments.pairs
    options = picked(arguments, "folds", "bootstrap", "recalls", "csls")
    metrics = evaluate_run(opened, dataset, arguments.split, **options, pairs=pairs)
    return Measured(retrieval_table(metrics), metrics.to_json(), metrics)


RETRIEVAL = Mode(_evaluate_retrieval, _configure_retrieval, recipes=("vsemb.recipes.retrieval:Retrieval",))

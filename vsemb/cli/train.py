"""Train a recipe on a dataset, or resume a training that was stopped.

The run directory gets the recipe, the vocabulary, TensorBoard logs, checkpoints and metrics.jsonl. After Ctrl-C or a
kill, the same command resumes exactly where training stopped. RECIPE is a name, or a Python file that defines
RECIPE.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsemb import registry

if TYPE_CHECKING:
    from vsemb.recipes.schema import Recipe

EXAMPLE = """  vsemb train vsepp --data data/flickr8k --out runs/vsepp
  vsemb train kiros2014 --variant released --data data/flickr8k --out runs/kiros --set training.epochs=5
  vsemb train contrastive --data data/scenes --out runs/scenes --fine-tune SmallConvNet
  vsemb train ds-sje-word-cnn-rnn --data data/birds --out runs/birds
  vsemb train tree-twin --variant tuned --data data/flickr8k --out runs/trees
  vsemb train entailment --data snli_1.0 --out runs/snli
  vsemb train multimodal-rnn --data data/flickr8k --out runs/captions
  vsemb train multimodal-rnn-regions --alignment runs/dvsa --data data/flickr8k --out runs/snippets
  vsemb train sc-nlm --encoder runs/kiros --data data/flickr8k --out runs/sc-nlm
  vsemb train my_recipe.py --data data/flickr8k --out runs/mine
  vsemb train vsepp --strategy mirrored --devices 2 --data data/flickr8k --out runs/two-devices
  vsemb train vsepp --workers 2 --data data/flickr8k --out runs/two-workers"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("recipe", metavar="RECIPE", help="a name that `vsemb recipes` lists, or a Python file")
    parser.add_argument("--data", required=True, help="the dataset, or the files of sentence pairs for entailment")
    parser.add_argument("--out", required=True, help="the run directory to write")
    parser.add_argument("--variant", help="variant of the recipe (its first)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="replace a field of the recipe, e.g. text.encoder.units=512; repeatable",
    )
    parser.add_argument(
        "--fine-tune",
        nargs="?",
        const="",
        metavar="BACKBONE",
        help="train from pixels: a network, a run's, or the features' own",
    )
    for name, summary in registry.entries("train_inputs").items():
        parser.add_argument(f"--{name}", metavar="RUN", help=summary)
    parser.add_argument(
        "--data-service",
        metavar="ADDRESS",
        help="grpc://HOST:PORT of a tf.data service that decodes images",
    )
    parser.add_argument(
        "--strategy",
        choices=("none", "mirrored", "multiworker"),
        default="none",
        help="devices that share each batch: one, this machine's, several workers' (%(default)s)",
    )
    parser.add_argument(
        "--devices",
        type=int,
        metavar="N",
        help="with --strategy mirrored: number of GPUs or logical CPU devices (all)",
    )
    parser.add_argument("--workers", type=int, metavar="N", help="start N workers on this machine (none)")
    parser.add_argument(
        "--checkpoint-seconds",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds between checkpoints (%(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb import recipes
    from vsemb.errors import invalid_argument

    recipe = recipes.get(arguments.recipe, arguments.variant)
    if arguments.workers is not None:
        if arguments.strategy == "mirrored":
            raise invalid_argument("workers", arguments.workers, "none with --strategy mirrored")
        return launch_workers(arguments)
    from vsemb.runs.run import STATE, Run
    from vsemb.runs.train import train
    from vsemb.training.strategies import open_distribution

    # Before anything else of TensorFlow runs.
    devices = open_distribution(arguments.strategy, arguments.devices)
    recipe, data = _configured(recipe, arguments)
    # A system of the recipe's own file came after the options were made.
    given = {name: getattr(arguments, name.replace("-", "_"), None) for name in registry.entries("train_inputs")}
    inputs = {name: Run.open(path) for name, path in given.items() if path is not None}
    try:
        trained = train(
            recipe,
            data,
            arguments.out,
            inputs=inputs,
            checkpoint_seconds=arguments.checkpoint_seconds,
            data_service=arguments.data_service,
            strategy=devices,
        )
    except KeyboardInterrupt:
        if (Path(arguments.out) / STATE).exists():
            print("The state is stored; the same command resumes from there.")
        raise
    if devices.writes:
        lines = recipe.summary(trained.info, arguments.out, arguments.data)
        print(f"run          {arguments.out}", *lines, sep="\n")
    return 0


def _configured(recipe: Recipe, arguments: argparse.Namespace) -> tuple[Recipe, Any]:
    """Applies --set and --fine-tune, and opens the data."""
    if arguments.fine_tune is None:
        recipe = recipe.with_overrides(arguments.set)
        return recipe, recipe.open_data(arguments.data)
    from vsemb.runs.fine_tune import with_backbone

    # Overrides name fields of the tower that is trained; only the features that it starts from are of the other one.
    starts = [each for each in arguments.set if each.startswith("image.fingerprint")]
    recipe = recipe.with_overrides(starts)
    data = recipe.open_data(arguments.data)
    recipe = with_backbone(recipe, data, arguments.fine_tune or None)
    return recipe.with_overrides([each for each in arguments.set if each not in starts]), data


def launch_workers(arguments: argparse.Namespace) -> int:
    """Runs `vsemb train` as so many workers as `arguments.workers` says.

    Returns:
        The status, see `vsemb.training.cluster.launch`.

    Raises:
        InvalidArgumentError: for fewer than two workers.
    """
    from vsemb.training.cluster import launch

    parser = argparse.ArgumentParser()
    configure(parser)
    of_worker = argparse.Namespace(**{**vars(arguments), "workers": None, "strategy": "multiworker"})
    command = [sys.executable, "-m", "vsemb.cli", "train", *command_line(parser, of_worker)]
    return launch(command, arguments.workers)


def command_line(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> list[str]:
    """Returns a command line that is parsed to the given arguments.

    Args:
        parser: what parses it; of arguments that take one value, or a value or none, or may be repeated.
        arguments: what is to come out.

    Example:

    >>> parser = argparse.ArgumentParser()
    >>> for name in ("recipe", "--out"):
    ...     _ = parser.add_argument(name)
    >>> command_line(parser, parser.parse_args(["--out", "runs/one", "vsepp"]))
    ['vsepp', '--out=runs/one']
    """
    positional, options = [], []
    for action in parser._actions:
        value: Any = getattr(arguments, action.dest, action.default)
        if not action.option_strings:
            positional.append(str(value))
            continue
        option = action.option_strings[-1]
        for each in value if isinstance(value, list) else [value]:
            if each == action.default:
                continue
            # An option whose value may be left out stands alone.
            options.append(option if action.nargs == "?" and each == action.const else f"{option}={each}")
    return [*positional, *options]

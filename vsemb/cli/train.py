"""`vsemb train`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsemb import registry
from vsemb.commands import add_json, picked, save_json

if TYPE_CHECKING:
    from vsemb.recipes.schema import Recipe


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("recipe", metavar="RECIPE", help="a name that `vsemb recipes` lists, or a Python file")
    parser.add_argument("--data", required=True, help="the dataset, or other training data of the recipe")
    parser.add_argument("--out", required=True, help="the run directory to write")
    parser.add_argument("--variant", help="variant of the recipe (the first)")
    field = "set a field (text.encoder.units=512) or a part with its defaults (text.encoder=linear)"
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help=field)
    epochs = "total number of epochs; a larger one continues a finished run (the recipe's)"
    parser.add_argument("--epochs", type=int, metavar="N", help=epochs)
    parser.add_argument(
        "--backbone", metavar="NAME", help="network of the image features; missing features are computed"
    )
    weights = "imagenet, preset, random, a file, or a run (imagenet, or preset)"
    parser.add_argument("--weights", metavar="W", help=f"backbone weights: {weights}")
    tuned = "train from pixels: NAME (ImageNet weights), hub:PRESET, a run, or the features' network"
    parser.add_argument("--fine-tune", nargs="?", const="", metavar="BACKBONE", help=tuned)
    for name, summary in registry.entries("train_inputs").items():
        parser.add_argument(f"--{name}", metavar="RUN", help=summary)
    service = "grpc://HOST:PORT of a tf.data service that decodes images"
    parser.add_argument("--data-service", metavar="ADDRESS", help=service)
    devices = "one device, all devices of this machine, or several workers (%(default)s)"
    parser.add_argument("--strategy", choices=("none", "mirrored", "multiworker"), default="none", help=devices)
    parser.add_argument("--devices", type=int, metavar="N", help="GPUs or logical CPU devices for mirrored (all)")
    parser.add_argument("--workers", type=int, metavar="N", help="start N workers on this machine (none)")
    seconds = "seconds between checkpoints (%(default)s)"
    parser.add_argument("--checkpoint-seconds", type=float, default=60.0, metavar="S", help=seconds)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Train a recipe on a dataset, or resume an interrupted training.

    With --backbone, missing image features are computed first, as `vsemb features` does. The run directory contains
    the recipe, the vocabulary, TensorBoard logs, checkpoints and metrics.jsonl. After an interruption, the same command
    resumes exactly where training stopped. To continue a finished run, repeat its command with a larger --epochs; the
    learning rate schedule then spans all epochs.

    RECIPE is a name from `vsemb recipes`, or a Python file that defines the variable RECIPE. --fine-tune NAME
    downloads the network's ImageNet weights; --set image.weights=null starts from random weights.

    Examples:
      vsemb train vsepp --data data/flickr8k --out runs/vsepp --backbone MobileNetV2
      vsemb train vsepp --data data/flickr8k --out runs/vsepp --backbone MobileNetV2 --epochs 40
      vsemb train kiros2014 --variant released --data data/flickr8k --out runs/kiros --epochs 5
      vsemb train contrastive --data data/scenes --out runs/scenes --fine-tune SmallConvNet
      vsemb train my_recipe.py --data data/flickr8k --out runs/mine
      vsemb train vsepp --strategy mirrored --devices 2 --data data/flickr8k --out runs/two-devices
      vsemb train vsepp --workers 2 --data data/flickr8k --out runs/two-workers
    """
    from vsemb import recipes
    from vsemb.errors import invalid_argument

    recipe = recipes.get(arguments.recipe, arguments.variant)
    if arguments.workers is not None:
        if arguments.strategy == "mirrored":
            raise invalid_argument("workers", arguments.workers, "none with --strategy mirrored")
        return _launch_workers(arguments)
    from vsemb.runs.run import STATE, Run
    from vsemb.runs.train import train
    from vsemb.training.strategies import open_distribution

    # Before other code of TensorFlow runs.
    devices = open_distribution(arguments.strategy, arguments.devices)
    recipe, data = _configured(recipe, arguments)
    # A system in the recipe's own file is registered after the options were made, so options may be missing.
    given = {name: getattr(arguments, name.replace("-", "_"), None) for name in registry.entries("train_inputs")}
    inputs = {name: Run.open(path) for name, path in given.items() if path is not None}
    try:
        trained = train(
            recipe,
            data,
            arguments.out,
            inputs=inputs,
            strategy=devices,
            **picked(arguments, "backbone", "weights", "checkpoint_seconds", "data_service"),
        )
    except KeyboardInterrupt:
        if (Path(arguments.out) / STATE).exists():
            print("The state is stored; the same command resumes from there.")
        raise
    if devices.writes:
        lines = recipe.summary(trained.info, arguments.out, arguments.data)
        print(f"run          {arguments.out}", *lines, sep="\n")
        save_json(arguments, {"run": str(trained.path), **trained.info})
    return 0


def _configured(recipe: Recipe, arguments: argparse.Namespace) -> tuple[Recipe, Any]:
    """Apply --set and --fine-tune, and open the data."""
    from vsemb.errors import invalid_argument

    for name, value in picked(arguments, "backbone", "weights").items():
        if value is not None and arguments.fine_tune is not None:
            raise invalid_argument(name, value, "none with --fine-tune BACKBONE, which reads no cached features")
    if arguments.epochs is not None:
        arguments.set.append(f"training.epochs={arguments.epochs}")
    if arguments.fine_tune is None:
        recipe = recipe.with_overrides(arguments.set)
        return recipe, recipe.open_data(arguments.data)
    from vsemb.runs.fine_tune import with_backbone

    # Overrides name fields of the trained tower. Only `image.fingerprint` names a field of the tower on features.
    starts = [each for each in arguments.set if each.startswith("image.fingerprint")]
    recipe = recipe.with_overrides(starts)
    data = recipe.open_data(arguments.data)
    recipe = with_backbone(recipe, data, arguments.fine_tune or None)
    return recipe.with_overrides([each for each in arguments.set if each not in starts]), data


def _launch_workers(arguments: argparse.Namespace) -> int:
    """Run the same command as several workers and return the exit status, see `vsemb.training.cluster.launch`."""
    from vsemb.training.cluster import launch

    launcher = argparse.ArgumentParser(add_help=False)
    launcher.add_argument("--workers")
    launcher.add_argument("--strategy")
    _, others = launcher.parse_known_args(arguments.argv)
    return launch([sys.executable, "-m", "vsemb.cli", "train", "--strategy=multiworker", *others], arguments.workers)

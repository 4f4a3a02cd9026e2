"""`vsemb train`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from vsemb import registry
from vsemb.commands import picked
from vsemb.printing import add_json, save_json

#: Backends of Keras that the command runs on.
BACKENDS = ("tensorflow", "jax")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("recipe", metavar="RECIPE", help="a name that `vsemb recipes` lists, or a Python file")
    parser.add_argument("--data", required=True, help="the dataset, or other training data of the recipe")
    parser.add_argument("--out", required=True, help="the run directory to write")
    seeds = "train N runs, OUT/seed-0, OUT/seed-1 and so on (one run, OUT)"
    parser.add_argument("--seeds", type=int, metavar="N", help=seeds)
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
    parser.add_argument("--fine-tune", nargs="?", const=True, metavar="BACKBONE", help=tuned)
    for name, summary in registry.entries("train_inputs").items():
        parser.add_argument(f"--{name}", metavar="RUN", help=summary)
    service = "grpc://HOST:PORT of a tf.data service that decodes images"
    parser.add_argument("--data-service", metavar="ADDRESS", help=service)
    backend = "backend of Keras; jax needs no TensorFlow ($KERAS_BACKEND, or tensorflow)"
    parser.add_argument("--backend", choices=BACKENDS, help=backend)
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

    With --seeds N, one run per seed is trained, and the mean and the standard deviation of the validation metrics are
    printed; `vsemb evaluate OUT` measures all of them. A larger N adds runs.

    RECIPE is a name from `vsemb recipes`, or a Python file that defines the variable RECIPE. --fine-tune NAME
    downloads the network's ImageNet weights; --weights names others: random, or a file.

    With --backend jax, recipes on image features train without TensorFlow, also on several devices (--strategy
    mirrored). Other commands read the run on any machine with TensorFlow.

    Examples:
      vsemb train best --data data/flickr8k --out runs/best --backbone MobileNetV2
      vsemb train best --data data/flickr8k --out runs/best --backbone MobileNetV2 --epochs 12
      vsemb train vsepp --data data/flickr8k --out runs/vsepp-seeds --seeds 3
      vsemb train kiros2014 --variant released --data data/flickr8k --out runs/kiros --epochs 5
      vsemb train contrastive --data data/scenes --out runs/scenes --fine-tune SmallConvNet
      vsemb train my_recipe.py --data data/flickr8k --out runs/mine
      vsemb train vsepp --strategy mirrored --devices 2 --data data/flickr8k --out runs/two-devices
      vsemb train vsepp --backend jax --data data/flickr8k --out runs/jax
      vsemb train vsepp --workers 2 --data data/flickr8k --out runs/two-workers
    """
    import keras

    from vsemb import recipes
    from vsemb.errors import invalid_argument

    if keras.backend.backend() != os.environ["KERAS_BACKEND"]:
        allowed = f"{keras.backend.backend()}, which Keras uses in this process already"
        raise invalid_argument("backend", arguments.backend, allowed)
    recipe = recipes.get(arguments.recipe, arguments.variant)
    if arguments.workers is not None:
        if os.environ["KERAS_BACKEND"] == "jax":
            raise invalid_argument("workers", arguments.workers, "omitted with --backend jax")
        if arguments.strategy == "mirrored":
            raise invalid_argument("workers", arguments.workers, "omitted with --strategy mirrored")
        return _launch_workers(arguments)
    from vsemb.runs.fine_tune import configured
    from vsemb.runs.run import STATE, Run
    from vsemb.runs.seeds import over_seeds, seeded_recipes
    from vsemb.runs.train import train
    from vsemb.training.strategies import open_distribution

    # Open devices before other code of TensorFlow runs.
    devices = open_distribution(arguments.strategy, arguments.devices)
    if arguments.epochs is not None:
        arguments.set.append(f"training.epochs={arguments.epochs}")
    recipe, data = configured(
        recipe,
        arguments.data,
        {assignment.partition("=")[0].strip(): assignment for assignment in arguments.set},
        lambda recipe, values: recipe.with_overrides([*values.values()]),
        arguments.fine_tune,
        picked(arguments, "backbone", "weights"),
    )
    if arguments.fine_tune is not None:
        # The recipe already contains the weights.
        arguments.weights = None
    # A system in the recipe's file is registered after the parser was built, so its options may be missing.
    given = {name: getattr(arguments, name.replace("-", "_"), None) for name in registry.entries("train_inputs")}
    inputs = {name: Run.open(path) for name, path in given.items() if path is not None}
    recipes_of = {Path(arguments.out): recipe}
    if arguments.seeds is not None:
        recipes_of = seeded_recipes(recipe, arguments.out, arguments.seeds)
    runs = []
    for out, each in recipes_of.items():
        try:
            options = picked(arguments, "backbone", "weights", "checkpoint_seconds", "data_service")
            runs.append(train(each, data, out, inputs=inputs, strategy=devices, **options))
        except KeyboardInterrupt:
            if (out / STATE).exists():
                print("The state is stored; the same command resumes from there.")
            raise
    if not devices.writes:
        return 0
    lines = recipe.summary(runs[0].info, arguments.out, arguments.data)
    if arguments.seeds is None:
        print(f"run          {arguments.out}", *lines, sep="\n")
        save_json(arguments, {"run": str(runs[0].path), **runs[0].info})
        return 0
    found = over_seeds(
        {run.path.name: {name: run.info[name] for name in run.info if name.startswith("best_")} for run in runs}
    )
    print(f"runs         {arguments.out}", found.text, lines[-1], sep="\n")
    save_json(arguments, found.to_json())
    return 0


def _launch_workers(arguments: argparse.Namespace) -> int:
    """Run the same command as several workers and return the exit status, see `vsemb.training.cluster.launch`."""
    from vsemb.training.cluster import launch

    launcher = argparse.ArgumentParser(add_help=False)
    launcher.add_argument("--workers")
    launcher.add_argument("--strategy")
    _, others = launcher.parse_known_args(arguments.argv)
    return launch([sys.executable, "-m", "vsemb.cli", "train", "--strategy=multiworker", *others], arguments.workers)

"""Train a recipe on a dataset, or go on with a training that was stopped.

The run directory gets the recipe, the vocabulary, TensorBoard logs, checkpoints and metrics.jsonl.
After Ctrl-C or a kill the same command goes on exactly where it stopped.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vsemb.data.store import Dataset
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
  vsemb train vsepp --strategy mirrored --devices 2 --data data/flickr8k --out runs/two-devices
  vsemb train vsepp --workers 2 --data data/flickr8k --out runs/two-workers"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("recipe", help="name of the recipe; `vsemb recipes` lists them")
    parser.add_argument(
        "--data",
        required=True,
        help="the dataset, from `vsemb prepare` or `vsemb scenes`; for entailment SNLI's folder, SICK.txt, "
        "or a .jsonl or tab-separated file of premise, hypothesis and label",
    )
    parser.add_argument("--out", required=True, help="the run directory to write")
    parser.add_argument("--variant", help="variant of the recipe (its first)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="replace a field of the recipe, e.g. text.units=512; may be repeated",
    )
    parser.add_argument(
        "--fine-tune",
        nargs="?",
        const="",
        metavar="BACKBONE",
        help="train the image backbone too, from pixels: by default the one that made the dataset's "
        "features, with its weights; SmallConvNet starts from nothing, and the directory of a run that was "
        "trained from pixels stands for its network and weights",
    )
    parser.add_argument(
        "--alignment",
        metavar="RUN",
        help="for multimodal-rnn-regions: the run of dvsa that cuts captions into snippets of regions",
    )
    parser.add_argument(
        "--encoder",
        metavar="RUN",
        help="for multiplicative and sc-nlm: the run of kiros2014 whose sentence vectors they start from",
    )
    parser.add_argument(
        "--data-service",
        metavar="ADDRESS",
        help="grpc://HOST:PORT of a tf.data service whose workers decode and augment images; with "
        "--fine-tune, for recipes of retrieval; the run is the same without",
    )
    parser.add_argument(
        "--strategy",
        choices=("none", "mirrored", "multiworker"),
        default="none",
        help="none: one device; mirrored: all GPUs of this machine, or --devices N; multiworker: one of "
        "several processes, as TF_CONFIG says, or --workers N; a recipe's batch is shared out (%(default)s)",
    )
    parser.add_argument(
        "--devices",
        type=int,
        metavar="N",
        help="with --strategy mirrored: so many GPUs, or logical CPU devices where there is none",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="start N workers on this machine (--strategy multiworker)",
    )
    parser.add_argument(
        "--checkpoint-seconds",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds between stored states (%(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb import recipes
    from vsemb.errors import invalid_argument
    from vsemb.runs.stored_run import STATE

    recipe = recipes.get(arguments.recipe, arguments.variant)
    train_task = {
        "retrieval": _train_retrieval,
        "entailment": _train_entailment,
        "captions": _train_captions,
        "language": _train_language,
    }[recipe.task]
    for name, reader in (("alignment", "multimodal-rnn-regions"), ("encoder", "multiplicative and sc-nlm")):
        if getattr(arguments, name) is not None and recipe.name not in reader.split(" and "):
            raise invalid_argument(name, getattr(arguments, name), f"none: it is for {reader}")
    if arguments.data_service is not None and recipe.task != "retrieval":
        raise invalid_argument("data-service", arguments.data_service, "none: it is for recipes of retrieval")
    if arguments.workers is not None:
        from vsemb.cli.workers import launch_workers

        if arguments.strategy == "mirrored":
            raise invalid_argument("workers", arguments.workers, "none with --strategy mirrored")
        parser = argparse.ArgumentParser()
        configure(parser)
        return launch_workers("train", parser, arguments)
    from vsemb.training.strategies import open_distribution

    # Before anything else of TensorFlow runs.
    arguments.devices = open_distribution(arguments.strategy, arguments.devices)
    try:
        lines = train_task(recipe, arguments)
    except KeyboardInterrupt:
        if (Path(arguments.out) / STATE).exists():
            print("The state is stored; the same command goes on from there.")
        raise
    if arguments.devices.writes:
        print(f"run          {arguments.out}", *lines, sep="\n")
    return 0


def _train_retrieval(recipe: Recipe, arguments: argparse.Namespace) -> list[str]:
    from vsemb.data.store import Dataset
    from vsemb.runs.train import train

    dataset = Dataset.open(arguments.data)
    recipe = _changed(recipe, dataset, arguments)
    info = train(
        recipe,
        dataset,
        arguments.out,
        checkpoint_seconds=arguments.checkpoint_seconds,
        data_service=arguments.data_service,
        strategy=arguments.devices,
    ).info
    if recipe.training.select == "zero-shot":
        best, option = f"mean of top-1 and AP@50 {info['best_zero_shot']:.1f}", " --zero-shot"
        # The epoch is the best one for the classes of val.
        split = "test" if "test" in dataset.splits else "val"
    else:
        best, option, split = f"recall sum {info['best_recall_sum']:.1f}", "", "val"
    return [
        f"best epoch   {info['best_epoch'] + 1}, validation {best}",
        f"next         vsemb evaluate {arguments.out} --data {arguments.data} --split {split}{option}",
    ]


def _train_entailment(recipe: Recipe, arguments: argparse.Namespace) -> list[str]:
    from vsemb.errors import invalid_argument
    from vsemb.systems.entailment.data import EntailmentData
    from vsemb.systems.entailment.run import train_entailment

    if arguments.fine_tune is not None:
        raise invalid_argument("fine-tune", arguments.fine_tune, "nothing: entailment has no images")
    data = EntailmentData.open(arguments.data)
    recipe = recipe.with_overrides(arguments.set)
    run = train_entailment(
        recipe,
        data,
        arguments.out,
        checkpoint_seconds=arguments.checkpoint_seconds,
        strategy=arguments.devices,
    )
    info = run.info
    return [
        f"splits       {info['protocol']}",
        f"best epoch   {info['best_epoch'] + 1}, validation accuracy {100 * info['best_accuracy']:.1f} %",
        f"next         vsemb evaluate {arguments.out} --split test",
    ]


def _train_captions(recipe: Recipe, arguments: argparse.Namespace) -> list[str]:
    from vsemb.data.store import Dataset
    from vsemb.runs.run import Run
    from vsemb.systems.captions.caption_run import train_captions

    dataset = Dataset.open(arguments.data)
    recipe = _changed(recipe, dataset, arguments)
    alignment = None if arguments.alignment is None else Run.open(arguments.alignment)
    run = train_captions(
        recipe,
        dataset,
        arguments.out,
        alignment=alignment,
        checkpoint_seconds=arguments.checkpoint_seconds,
        strategy=arguments.devices,
    )
    return [*_selected(run.info), f"next         vsemb evaluate {arguments.out} --captions"]


def _train_language(recipe: Recipe, arguments: argparse.Namespace) -> list[str]:
    from vsemb.data.store import Dataset
    from vsemb.errors import invalid_argument
    from vsemb.runs.run import Run
    from vsemb.systems.language.language_run import train_language

    if arguments.fine_tune is not None:
        raise invalid_argument("fine-tune", arguments.fine_tune, "nothing: language models see no images")
    dataset = Dataset.open(arguments.data)
    recipe = recipe.with_overrides(arguments.set)
    encoder = None if arguments.encoder is None else Run.open(arguments.encoder)
    run = train_language(
        recipe,
        dataset,
        arguments.out,
        encoder=encoder,
        checkpoint_seconds=arguments.checkpoint_seconds,
        strategy=arguments.devices,
    )
    return [*_selected(run.info), f"next         vsemb evaluate {arguments.out} --perplexity"]


def _changed(recipe: Recipe, dataset: Dataset, arguments: argparse.Namespace) -> Recipe:
    """Applies --set, and --fine-tune."""
    from vsemb.runs.fine_tune import with_backbone

    recipe = recipe.with_overrides(arguments.set)
    if arguments.fine_tune is None:
        return recipe
    # Which features to start from is among the overrides, and so may be what the backbone resets.
    recipe = with_backbone(recipe, dataset, arguments.fine_tune or None)
    return recipe.with_overrides([one for one in arguments.set if not one.startswith("image.features")])


def _selected(info: dict[str, Any]) -> list[str]:
    """What was selected on validation: the best CIDEr, or the lowest perplexity."""
    from vsemb.systems.captions.perplexity import perplexity

    if "best_cider" in info:
        best = f"CIDEr {info['best_cider']:.1f}"
    else:
        best = f"perplexity {perplexity(info['best_log2_likelihood'] * math.log(2), 1):.2f}"
    return [f"best epoch   {info['best_epoch'] + 1}, validation {best}"]

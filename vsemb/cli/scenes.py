"""`vsemb scenes`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from vsemb.commands import Mode, Modes, picked
from vsemb.printing import add_json, command_line, facts, save_json

_IMAGES = {"train": 4000, "val": 500, "test": 500}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--out", required=True, type=Path, metavar="DATA", help="dataset directory to write")
    for split, count in _IMAGES.items():
        parser.add_argument(f"--{split}", type=int, metavar="N", help=f"images ({count}; fewer in other modes)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="random seed (%(default)s)")
    parser.add_argument(
        "--size", type=int, default=64, metavar="PIXELS", help="width and height of images (%(default)s)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the dataset at DATA")
    add_json(parser)
    Modes(parser, "scenes", Mode(_plan, _configure_shapes))


def _configure_shapes(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--compositional", type=int, metavar="N", help="images (500; none with --zero-shot)")
    parser.add_argument("--zero-shot", action="store_true", help="make splits that share no class")


def run(arguments: argparse.Namespace) -> None:
    """Generate a dataset of synthetic scenes: images of coloured shapes, five captions per image, and ground truth.

    Nothing is downloaded. The same seed always gives the same images. The split `compositional` has combinations of
    colour and shape that no other split has. With --zero-shot, train, val and test share no such combinations.

    Examples:
      vsemb scenes --out data/scenes --train 4000 --val 500 --test 500 --compositional 500
    """
    from vsemb.data.writing.writer import write_dataset

    given = {split: count for split, count in picked(arguments, *_IMAGES).items() if count is not None}
    # A mode takes the given numbers of images. It returns the numbers of all splits, keywords for `write_dataset`, and
    # a function that describes the dataset.
    images, keywords, described = arguments.modes.run(arguments, given)
    dataset = write_dataset(out=arguments.out, total=sum(images.values()), overwrite=arguments.overwrite, **keywords)
    listing = ", ".join(f"{count:,} {split}" for split, count in images.items())
    print(f"{dataset.path}: {listing} {described(dataset)}, such as")
    for caption in dataset.split(next(iter(images))).captions_of(0)[:5:2]:
        print(f"  {caption}")
    trained = command_line(
        "train", "contrastive", "--data", dataset.path, "--out", "RUN", "--fine-tune", "SmallConvNet"
    )
    print(facts({"next": trained}))
    save_json(arguments, {"path": str(dataset.path), "images": images, "next": trained})


def _plan(arguments: argparse.Namespace, given: dict[str, int]) -> tuple[dict[str, int], dict[str, Any], Any]:
    from vsemb.data import synthetic as scenes

    new = arguments.compositional
    images = {**_IMAGES, **given, "compositional": (0 if arguments.zero_shot else 500) if new is None else new}
    images = {split: count for split, count in images.items() if count}
    options = {
        "seed": arguments.seed,
        "image_size": arguments.size,
        "class_zero_shot_splits": arguments.zero_shot,
    }
    described = {**options, "images": images, "generator": scenes.VERSION}
    source = {"format": "scenes", "path_name": "vsemb.data.synthetic", "sha256": {}, "options": described}
    keywords = {"records": scenes.generate(images, **options), "name": "scenes", "source": source}
    return images, keywords, lambda dataset: "images, five captions each"

"""Generate the synthetic scenes dataset: images of coloured shapes, five captions each, and ground truth.

Nothing is downloaded, and the same seed always gives the same images. The split `compositional` shows combinations of
colour and shape that no other split shows; with --zero-shot, train, val and test share no such combination.

--fine-grained makes flowers of parts instead: 60 classes, of which train, val and test share none, ten descriptions
per image, and attributes of every class. They stand in for data sets of birds and flowers.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from vsemb.commands import add_modes

EXAMPLE = """  vsemb scenes --out data/scenes --train 4000 --val 500 --test 500 --compositional 500
  vsemb scenes --out data/flowers --fine-grained"""

_IMAGES = {"train": 4000, "val": 500, "test": 500}


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("--out", required=True, type=Path, metavar="DATA", help="directory to make")
    for split, count in _IMAGES.items():
        parser.add_argument(f"--{split}", type=int, metavar="N", help=f"images ({count}; fewer with --fine-grained)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of all images (%(default)s)")
    parser.add_argument("--size", type=int, default=64, metavar="PIXELS", help="side of an image (%(default)s)")
    parser.add_argument("--overwrite", action="store_true", help="replace another dataset at DATA")
    add_modes(parser, "scenes", own=_configure_shapes)


def _configure_shapes(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--compositional", type=int, metavar="N", help="images (500; none with --zero-shot)")
    parser.add_argument("--zero-shot", action="store_true", help="make splits that share no class")


def run(arguments: argparse.Namespace) -> None:
    """Runs the command.

    A mode has `NAME`, `IMAGES`, the default number of images per split, `plan(images, arguments)`, which returns
    keywords for `write_dataset`, the records among them, and `described(dataset)`, a phrase for the summary.
    """
    from vsemb.data import store

    name = arguments.modes.chosen(arguments)
    arguments.modes.check(arguments, name or "")
    mode = None if name is None else arguments.modes.modules[name]
    given = {split: getattr(arguments, split) for split in _IMAGES}
    defaults = _IMAGES if mode is None else mode.IMAGES
    images = {split: defaults[split] if count is None else count for split, count in given.items()}
    if mode is None:
        new = arguments.compositional
        images["compositional"] = (0 if arguments.zero_shot else 500) if new is None else new
    images = {split: count for split, count in images.items() if count != 0}
    keywords = _plan(images, arguments) if mode is None else mode.plan(images, arguments)
    dataset = store.write_dataset(
        keywords.pop("records"),
        arguments.out,
        **keywords,
        name="scenes" if mode is None else mode.NAME,
        total=sum(images.values()),
        overwrite=arguments.overwrite,
    )
    listing = ", ".join(f"{count:,} {split}" for split, count in images.items())
    said = "images, five captions each" if mode is None else mode.described(dataset)
    print(f"{dataset.path}: {listing} {said}, such as")
    for caption in dataset.split(next(iter(images))).entries[0]["captions"][:5:2]:
        print(f"  {caption}")


def _plan(images: dict[str, int], arguments: argparse.Namespace) -> dict[str, Any]:
    from vsemb.data import synthetic as scenes

    options = {
        "seed": arguments.seed,
        "image_size": arguments.size,
        "class_zero_shot_splits": arguments.zero_shot,
    }
    described = {**options, "images": images, "generator": scenes.VERSION}
    source = {"format": "scenes", "path_name": "vsemb.data.synthetic", "sha256": {}, "options": described}
    return {"records": scenes.generate(images, **options), "source": source}

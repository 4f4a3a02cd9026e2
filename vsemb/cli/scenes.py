"""Generates the synthetic scenes dataset: images of coloured shapes, five captions each, and ground truth.

Nothing is downloaded, and the same seed always gives the same images. The split `novel` shows combinations of
colour and shape that no other split shows; with --zero-shot, train, val and test share no such combination.

With --fine-grained there are flowers made of parts instead: 60 classes, of which train, val and test share
none, ten descriptions an image, and attributes of every class; a stand-in for data sets of birds and flowers.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vsemb.data.records import ImageRecord
    from vsemb.data.store import Dataset

EXAMPLE = """  vsemb scenes --out data/scenes --train 4000 --val 500 --test 500 --novel 500
  vsemb scenes --out data/flowers --fine-grained"""

# images a split by default: of shapes, of flowers
_DEFAULTS = {"train": (4000, 1600), "val": (500, 320), "test": (500, 480)}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--out", required=True, type=Path, metavar="DATA", help="directory to make")
    for split, (shapes, flowers) in _DEFAULTS.items():
        parser.add_argument(
            f"--{split}",
            type=int,
            metavar="N",
            help=f"images (default {shapes}; {flowers} with --fine-grained)",
        )
    parser.add_argument(
        "--novel",
        type=int,
        metavar="N",
        help="images (default 500; none with --zero-shot or --fine-grained)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="other seed, other images (default 0)")
    parser.add_argument("--size", type=int, default=64, metavar="PIXELS", help="side of an image (default 64)")
    parser.add_argument("--zero-shot", action="store_true", help="make splits that share no class")
    parser.add_argument(
        "--fine-grained",
        action="store_true",
        help="make flowers whose classes differ in details; the splits share no class",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace another dataset at DATA")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb.data import store

    records, source, images, before_publish = (_flowers if arguments.fine_grained else _shapes)(arguments)
    dataset = store.write_dataset(
        records,
        arguments.out,
        name="flowers" if arguments.fine_grained else "scenes",
        source=source,
        total=sum(images.values()),
        overwrite=arguments.overwrite,
        before_publish=before_publish,
    )
    listing = ", ".join(f"{count:,} {split}" for split, count in images.items())
    first = dataset.split(next(iter(images)))
    if arguments.fine_grained:
        shown = {split: len(set(dataset.split(split).class_names)) for split in images}
        classes = ", ".join(f"{count} {split}" for split, count in shown.items())
        print(f"{dataset.path}: {listing} images of {classes} classes, ten descriptions each, such as")
    else:
        print(f"{dataset.path}: {listing} images, five captions each, such as")
    for caption in first.entries[0]["captions"][:5:2]:
        print(f"  {caption}")
    return 0


_Plan = tuple["Iterable[ImageRecord]", dict[str, Any], dict[str, int], "Callable[[Dataset], None] | None"]
"""Records, source, images a split, what is to be written beside them."""


def _shapes(arguments: argparse.Namespace) -> _Plan:
    from vsemb.data import synthetic as scenes

    images = _images(arguments, 0)
    novel = arguments.novel
    if novel is None:
        novel = 0 if arguments.zero_shot else 500
    if novel != 0:
        images["novel"] = novel
    options = {
        "seed": arguments.seed,
        "image_size": arguments.size,
        "class_zero_shot_splits": arguments.zero_shot,
    }
    described = _source("vsemb.data.synthetic", {**options, "images": images, "generator": scenes.VERSION})
    return scenes.generate(images, **options), described, images, None


def _flowers(arguments: argparse.Namespace) -> _Plan:
    from vsemb.errors import invalid_argument
    from vsemb.systems.zero_shot import flowers
    from vsemb.systems.zero_shot.attributes import write_attributes

    for option in ("zero_shot", "novel"):
        if getattr(arguments, option):
            raise invalid_argument(
                option,
                getattr(arguments, option),
                "nothing with fine_grained, whose splits never share a class",
            )
    images = _images(arguments, 1)
    options = {"seed": arguments.seed, "image_size": arguments.size}
    described = _source(
        "vsemb.systems.zero_shot.flowers",
        {**options, "fine_grained": True, "images": images, "generator": flowers.VERSION},
    )
    return (
        flowers.generate(images, **options),
        described,
        images,
        lambda dataset: write_attributes(dataset.path, flowers.attributes(arguments.seed)),
    )


def _images(arguments: argparse.Namespace, kind: int) -> dict[str, int]:
    given = {split: getattr(arguments, split) for split in _DEFAULTS}
    counts = {split: _DEFAULTS[split][kind] if n is None else n for split, n in given.items()}
    return {split: count for split, count in counts.items() if count != 0}


def _source(path_name: str, options: dict[str, Any]) -> dict[str, Any]:
    return {"format": "scenes", "path_name": path_name, "sha256": {}, "options": options}

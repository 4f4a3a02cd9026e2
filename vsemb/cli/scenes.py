"""Generates the synthetic scenes dataset: images of coloured shapes, five captions each, and ground truth.

Nothing is downloaded, and the same seed always gives the same images. The split `novel` shows combinations of
colour and shape that no other split shows; with --zero-shot, train, val and test share no such combination.
"""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLE = "  vsemb scenes --out data/scenes --train 4000 --val 500 --test 500 --novel 500"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--out", required=True, type=Path, metavar="DATA", help="directory to make")
    for split, count in (("train", 4000), ("val", 500), ("test", 500)):
        parser.add_argument(
            f"--{split}", type=int, default=count, metavar="N", help=f"images (default {count})"
        )
    parser.add_argument("--novel", type=int, metavar="N", help="images (default 500; none with --zero-shot)")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="other seed, other images (default 0)"
    )
    parser.add_argument(
        "--size", type=int, default=64, metavar="PIXELS", help="side of an image (default 64)"
    )
    parser.add_argument("--zero-shot", action="store_true", help="make splits that share no class")
    parser.add_argument("--overwrite", action="store_true", help="replace another dataset at DATA")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb.data import scenes, store

    novel = arguments.novel
    if novel is None:
        novel = 0 if arguments.zero_shot else 500
    wanted = {"train": arguments.train, "val": arguments.val, "test": arguments.test, "novel": novel}
    images = {split: count for split, count in wanted.items() if count != 0}
    options = {
        "seed": arguments.seed,
        "image_size": arguments.size,
        "class_zero_shot_splits": arguments.zero_shot,
    }
    records = scenes.generate(images, **options)
    dataset = store.write_dataset(
        records,
        arguments.out,
        name="scenes",
        source={
            "format": "scenes",
            "path_name": "vsemb.data.scenes",
            "sha256": {},
            "options": {**options, "images": images, "generator": scenes.VERSION},
        },
        total=sum(images.values()),
        overwrite=arguments.overwrite,
    )
    listing = ", ".join(f"{count:,} {split}" for split, count in images.items())
    print(f"{dataset.path}: {listing} images, five captions each, such as")
    first = dataset.split(next(iter(images)))
    for caption in first.entries[0]["captions"][::2]:
        print(f"  {caption}")
    return 0

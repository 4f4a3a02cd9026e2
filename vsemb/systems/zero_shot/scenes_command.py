"""`vsemb scenes --fine-grained`: flowers whose classes differ in details."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vsemb.data.store import Dataset

SUMMARY = "make flowers whose classes differ in details"
NAME = "flowers"
#: Images per split by default.
IMAGES = {"train": 1600, "val": 320, "test": 480}


def configure(parser: argparse._ActionsContainer) -> None:
    """Adds the mode's options: none."""
    del parser


def plan(images: dict[str, int], arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns records, their source, and what is written beside them: the attributes of the classes."""
    from vsemb.systems.zero_shot import flowers
    from vsemb.systems.zero_shot.attributes import write_attributes

    options = {"seed": arguments.seed, "image_size": arguments.size}
    described = {**options, "fine_grained": True, "images": images, "generator": flowers.VERSION}
    return {
        "records": flowers.generate(images, **options),
        "source": {"format": "scenes", "path_name": flowers.__name__, "sha256": {}, "options": described},
        "before_publish": lambda dataset: write_attributes(dataset.path, flowers.attributes(arguments.seed)),
    }


def described(dataset: Dataset) -> str:
    """Returns what the dataset holds, as a phrase."""
    counts = {split: len(set(dataset.split(split).class_names)) for split in dataset.splits}
    classes = ", ".join(f"{count} {split}" for split, count in counts.items())
    return f"images of {classes} classes, ten descriptions each"

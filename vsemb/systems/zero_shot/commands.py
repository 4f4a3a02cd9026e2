"""Commands for classes: options of `export`, a mode of `scenes`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from vsemb.commands import Mode, Options
from vsemb.console import say

if TYPE_CHECKING:
    from vsemb.data.store import Dataset
    from vsemb.runs.run import Run

# Images per split of flowers.
_FLOWERS = {"train": 1600, "val": 320, "test": 480}


def _configure_classes(parser: argparse._ActionsContainer) -> None:
    group = parser.add_argument_group("classes")
    group.add_argument("--classes", nargs="+", metavar="NAME", help="names of the classes")
    group.add_argument("--classes-file", metavar="FILE", help="file with one class name per line")
    template = "prompt with {} for the name; repeatable (the name alone)"
    group.add_argument("--template", action="append", default=[], metavar="TEXT", help=template)


def _add_signature(arguments: argparse.Namespace, run: Run) -> dict[str, Any]:
    """Return the signature `classify` of the given classes, as `extras`.

    Raises:
        VsembError: for a run that cannot classify images, or invalid names.
    """
    from vsemb.errors import invalid_argument
    from vsemb.systems.zero_shot.classify import chosen_classes, embed_classes

    names = chosen_classes(arguments.classes, arguments.classes_file, arguments.template)
    if names is None:
        return {}
    if run.recipe.kind != "retrieval":
        fix = f"{run.path} is for {run.recipe.kind}."
        raise invalid_argument("classes", names, "None for a run without embeddings of images and texts", fix)
    return {"extras": (embed_classes(run, names, arguments.template, report=say).signature,)}


CLASSES = Options(_configure_classes, _add_signature)


def _plan_flowers(arguments: argparse.Namespace, given: dict[str, int]) -> tuple[dict[str, int], dict[str, Any], Any]:
    """Make images of flowers whose classes differ in details.

    The images show flowers of 60 classes, with ten descriptions per image and attributes of each class. Train, val and
    test share no class. The dataset stands in for CUB and Flowers-102.
    """
    from vsemb.systems.zero_shot import flowers
    from vsemb.systems.zero_shot.attributes import write_attributes

    images = {split: count for split, count in {**_FLOWERS, **given}.items() if count}
    options = {"seed": arguments.seed, "image_size": arguments.size}
    described = {**options, "fine_grained": True, "images": images, "generator": flowers.VERSION}
    keywords = {
        "records": flowers.generate(images, **options),
        "name": "flowers",
        "source": {"format": "scenes", "path_name": flowers.__name__, "sha256": {}, "options": described},
        "before_publish": lambda dataset: write_attributes(dataset.path, flowers.attributes(arguments.seed)),
    }
    return images, keywords, _described_flowers


def _described_flowers(dataset: Dataset) -> str:
    counts = {split: len(set(dataset.split(split).class_names)) for split in dataset.splits}
    classes = ", ".join(f"{count} {split}" for split, count in counts.items())
    return f"images of {classes} classes, ten descriptions each"


FINE_GRAINED = Mode(_plan_flowers)

"""Classify images by the names of classes, with any run: nothing is trained.

A class is the texts that its name makes with the templates, and scores an image by the mean of their scores.
Without images a whole split is classified; where its images have classes, these are compared.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from vsemb.systems.trees.parser_option import add_parser, use_parser

if TYPE_CHECKING:
    from vsemb.data.store import Dataset
    from vsemb.export import ClassPrompts
    from vsemb.runs.run import Run

EXAMPLE = """  vsemb classify runs/vsepp rex.jpg tom.jpg --classes dog cat --template "a photo of a {}"
  vsemb classify runs/vsepp --classes-file classes.txt --split test --json found.json"""

_TOP, _SPLIT = 5, "test"


def add_classes(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that name classes."""
    group = parser.add_argument_group("classes")
    group.add_argument("--classes", nargs="+", metavar="NAME", help="names of the classes")
    group.add_argument("--classes-file", metavar="FILE", help="a file with one name a line instead")
    group.add_argument(
        "--template",
        action="append",
        default=[],
        metavar="TEXT",
        help="a text with {} for the name; repeatable, scores are averaged (the name alone)",
    )


def chosen_classes(arguments: argparse.Namespace) -> list[str] | None:
    """Returns the names given, or None.

    Raises:
        VsembError: for names twice, templates without names, or a file that cannot be read.
    """
    from vsemb.errors import invalid_argument
    from vsemb.systems.zero_shot.classify import read_classes

    if arguments.classes is not None and arguments.classes_file is not None:
        raise invalid_argument("classes_file", arguments.classes_file, "nothing beside --classes")
    if arguments.classes_file is not None:
        return read_classes(arguments.classes_file)
    if arguments.classes is None and arguments.template:
        raise invalid_argument("template", arguments.template, "nothing without --classes or --classes-file")
    return arguments.classes


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", help="the run directory")
    parser.add_argument("images", nargs="*", metavar="IMAGE", help="image files, or keys of a dataset's images")
    add_classes(parser)
    parser.add_argument("--top", type=int, metavar="N", help=f"classes to show for each image ({_TOP})")
    parser.add_argument("--data", help="the dataset (the one the run was trained on)")
    parser.add_argument("--split", help=f"the split to classify where no image is given ({_SPLIT})")
    add_parser(parser)
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb.data.store import Dataset
    from vsemb.errors import DataError, invalid_argument
    from vsemb.files import write_json
    from vsemb.runs.run import Run
    from vsemb.systems.zero_shot.classify import embed_classes

    names = chosen_classes(arguments)
    if names is None:
        raise invalid_argument("classes", None, "names of classes, as --classes or --classes-file")
    if arguments.images and arguments.split is not None:
        raise invalid_argument("split", arguments.split, "nothing where images are given")
    if not arguments.images and arguments.top is not None:
        raise invalid_argument("top", arguments.top, "nothing where no image is given")
    opened = Run.open(arguments.run)
    use_parser(arguments, opened)
    prompts = embed_classes(opened, names, arguments.template, report=lambda line: print(line, file=sys.stderr))
    measured: dict[str, Any]
    failed = 0
    if arguments.images:
        dataset = None
        try:
            dataset = Dataset.open(arguments.data or opened.data_path)
        except DataError:
            # Image files need no dataset; only one that was asked for is missed.
            if arguments.data:
                raise
        measured, failed = _images(arguments, opened, prompts, dataset)
    else:
        measured = _split(arguments, opened, prompts, Dataset.open(arguments.data or opened.data_path))
    if arguments.json:
        templates = arguments.template or ["{}"]
        write_json(arguments.json, {"classes": list(prompts.names), "templates": templates, **measured})
    return 1 if failed else 0


def _images(
    arguments: argparse.Namespace, opened: Run, prompts: ClassPrompts, dataset: Dataset | None
) -> tuple[dict[str, Any], int]:
    from vsemb.cli.tables import table
    from vsemb.systems.zero_shot.classify import classify_images

    top = _TOP if arguments.top is None else arguments.top
    found = classify_images(opened, arguments.images, prompts, dataset, top=top)
    rows = []
    for result in found:
        for place, (name, score) in enumerate(result.scores.items()):
            rows.append(["" if place else result.image, name, f"{score:.3f}"])
    if rows:
        print(table(["image", "class", "score"], rows, text=(0, 1)))
    errors = [result.error for result in found if result.error is not None]
    for error in errors:
        print(f"vsemb classify: {error}", file=sys.stderr)
    return {"images": [result.to_json() for result in found]}, len(errors)


def _split(arguments: argparse.Namespace, opened: Run, prompts: ClassPrompts, dataset: Dataset) -> dict[str, Any]:
    from vsemb.cli.tables import split_classes_table
    from vsemb.systems.zero_shot.classify import classify_split

    found = classify_split(opened, dataset, arguments.split or _SPLIT, prompts)
    print(split_classes_table(found.counts))
    if found.accuracy is not None:
        print(
            f"\naccuracy {found.accuracy:.1f} % (mean over classes), {found.accuracy_images:.1f} % (plain), "
            f"of the {found.labelled} of {found.images} images whose class is among these"
        )
    return found.to_json()

"""Classify images by the names of classes, with any run: nothing is trained.

Each class is the set of texts that its name makes with the templates; its score is the mean of their scores. Without
images a whole split is classified, and compared with the classes of its images where they have any.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from vsemb.commands import add_options, apply_options, open_keys, say, table
from vsemb.systems.zero_shot import class_options

if TYPE_CHECKING:
    from vsemb.data.store import Dataset
    from vsemb.runs.run import Run
    from vsemb.systems.zero_shot.signature import ClassPrompts

EXAMPLE = """  vsemb classify runs/vsepp rex.jpg tom.jpg --classes dog cat --template "a photo of a {}"
  vsemb classify runs/vsepp --classes-file classes.txt --split test --json found.json"""

_TOP, _SPLIT = 5, "test"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", help="the run directory")
    parser.add_argument("images", nargs="*", metavar="IMAGE", help="image files, or keys of a dataset's images")
    class_options.configure(parser)
    parser.add_argument("--top", type=int, metavar="N", help=f"classes to show for each image ({_TOP})")
    parser.add_argument("--data", help="the dataset (the one the run was trained on)")
    parser.add_argument("--split", help=f"the split to classify where no image is given ({_SPLIT})")
    add_options(parser, "run")
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb.errors import invalid_argument
    from vsemb.files import write_json
    from vsemb.runs.run import Run
    from vsemb.systems.zero_shot.classify import embed_classes

    names = class_options.chosen_classes(arguments)
    if names is None:
        raise invalid_argument("classes", None, "names of classes, as --classes or --classes-file")
    if arguments.images and arguments.split is not None:
        raise invalid_argument("split", arguments.split, "nothing where images are given")
    if not arguments.images and arguments.top is not None:
        raise invalid_argument("top", arguments.top, "nothing where no image is given")
    opened = Run.open(arguments.run, "retrieval")
    apply_options(arguments, opened, "run")
    prompts = embed_classes(opened, names, arguments.template, report=say)
    measured: dict[str, Any]
    failed = 0
    if arguments.images:
        dataset = open_keys(opened, arguments.data, ())
        measured, failed = _images(arguments, opened, prompts, dataset)
    else:
        measured = _split(arguments, opened, prompts, opened.open_data(arguments.data))
    if arguments.json:
        templates = arguments.template or ["{}"]
        write_json(arguments.json, {"classes": list(prompts.names), "templates": templates, **measured})
    return 1 if failed else 0


def _images(
    arguments: argparse.Namespace, opened: Run, prompts: ClassPrompts, dataset: Dataset | None
) -> tuple[dict[str, Any], int]:
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
        say(f"vsemb classify: {error}")
    return {"images": [result.to_json() for result in found]}, len(errors)


def _split(arguments: argparse.Namespace, opened: Run, prompts: ClassPrompts, dataset: Dataset) -> dict[str, Any]:
    from vsemb.systems.zero_shot.classify import classify_split

    found = classify_split(opened, dataset, arguments.split or _SPLIT, prompts)
    rows = sorted(found.counts.items(), key=lambda item: -item[1])
    print(table(["class", "images"], [[name, str(count)] for name, count in rows]))
    if found.accuracy is not None:
        print(
            f"\naccuracy {found.accuracy:.1f} % (mean over classes), {found.accuracy_images:.1f} % (plain), "
            f"of the {found.labelled} of {found.images} images whose class is among these"
        )
    return found.to_json()

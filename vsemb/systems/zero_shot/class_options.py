"""Options that name classes: of `vsemb classify`, and of `vsemb export` for the signature `classify`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from vsemb.commands import say

if TYPE_CHECKING:
    from vsemb.runs.run import Run


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    group = parser.add_argument_group("classes")
    group.add_argument("--classes", nargs="+", metavar="NAME", help="names of the classes")
    group.add_argument("--classes-file", metavar="FILE", help="a file with one name per line instead")
    group.add_argument(
        "--template",
        action="append",
        default=[],
        metavar="TEXT",
        help="a text with {} for the name; repeatable (the name alone)",
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


def apply(arguments: argparse.Namespace, run: Run) -> dict[str, Any]:
    """Returns the signature `classify` of the classes that were named, in `extras`.

    Raises:
        VsembError: for a run that classifies no images, or names that cannot be.
    """
    from vsemb.errors import invalid_argument
    from vsemb.systems.zero_shot.classify import embed_classes

    names = chosen_classes(arguments)
    if names is None:
        return {}
    if run.recipe.kind != "retrieval":
        fix = f"{run.path} is for {run.recipe.kind}."
        raise invalid_argument("classes", names, "none but for a run that embeds images and texts", fix)
    return {"extras": (embed_classes(run, names, arguments.template, report=say).signature,)}

"""The option `--parser` of commands that read sentences with a run that wants dependency trees."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vsemb.runs.stored_run import StoredRun


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Adds the argument."""
    parser.add_argument(
        "--parser",
        metavar="NAME_OR_PATH",
        help="what parses sentences, for a run that reads dependency trees: an installed spaCy pipeline or a "
        "folder (the parser of the training captions)",
    )


def use_parser(arguments: argparse.Namespace, opened: StoredRun) -> None:
    """Gives the parser that was named to the run.

    Raises:
        VsembError: if the run reads no trees, or there is no such parser.
    """
    from vsemb.errors import invalid_argument
    from vsemb.runs.run import Run

    if arguments.parser is None:
        return
    if not isinstance(opened, Run):
        raise invalid_argument("parser", arguments.parser, "none for a run that reads no trees")
    opened.use_parser(arguments.parser)

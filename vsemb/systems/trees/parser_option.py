"""The option `--parser` of commands that read raw texts with a run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vsemb.runs.run import Run


def configure(parser: argparse._ActionsContainer) -> None:
    """Adds the option."""
    parser.add_argument(
        "--parser",
        metavar="NAME_OR_PATH",
        help="spaCy pipeline that parses texts for runs on trees (the training's)",
    )


def apply(arguments: argparse.Namespace, run: Run) -> None:
    """Gives the parser that was named to the run.

    Raises:
        VsembError: if the run reads no trees, or there is no such parser.
    """
    if arguments.parser is not None:
        from vsemb.systems.trees.parse_texts import use_parser

        use_parser(run, arguments.parser)

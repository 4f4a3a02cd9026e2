"""The option `--captions` of `vsemb demo`: a second run, which writes captions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vsemb.runs.run import Run


def configure(parser: argparse._ActionsContainer) -> None:
    """Adds the option."""
    parser.add_argument("--captions", metavar="RUN", help="a run that writes captions of the images asked about")


def apply(arguments: argparse.Namespace, run: Run) -> dict[str, Any]:
    """Returns the run as `captioning`."""
    del run
    if arguments.captions is None:
        return {}
    from vsemb.systems.captions.captioning import open_captioning_run

    return {"captioning": open_captioning_run(arguments.captions)}

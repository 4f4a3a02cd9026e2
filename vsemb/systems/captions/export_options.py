"""Options of `vsemb export` for runs that write captions: how the SavedModel looks for them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from vsemb.systems.captions.caption_command import add_search

if TYPE_CHECKING:
    from vsemb.runs.run import Run

_NAMES = ("beam", "n_best", "length_penalty", "max_words", "candidates")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_search(parser.add_argument_group("runs that write captions"))


def apply(arguments: argparse.Namespace, run: Run) -> dict[str, Any]:
    """Returns the options as `options`.

    Raises:
        InvalidArgumentError: for a run that writes no captions, or a precision for one that does.
    """
    from vsemb.errors import invalid_argument
    from vsemb.systems.captions.captioner import CaptionOptions
    from vsemb.systems.captions.task import NextWordTask

    given = {name: value for name in _NAMES if (value := getattr(arguments, name)) is not None}
    writes = isinstance(run.recipe, NextWordTask)
    if writes and arguments.precision is not None:
        raise invalid_argument("--precision", arguments.precision, "none for a run that writes captions")
    if not given:
        return {}
    if not writes:
        name = next(iter(given))
        raise invalid_argument(f"--{name.replace('_', '-')}", given[name], "none for a run that writes no captions")
    return {"options": CaptionOptions(**given)}

"""Options of `export` and `report` for captions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from vsemb.commands import Options, picked

if TYPE_CHECKING:
    from vsemb.runs.run import Run

_SEARCH = ("beam", "n_best", "length_penalty", "max_words", "candidates")


def _configure_search(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--beam", type=int, metavar="N", help="beam width (the recipe's)")
    parser.add_argument("--n-best", type=int, metavar="N", help="captions per image (5, at most the beam)")
    penalty = "divide log-probabilities by length to the power P (the recipe's)"
    parser.add_argument("--length-penalty", type=float, metavar="P", help=penalty)
    parser.add_argument("--max-words", type=int, metavar="N", help="maximum words per caption (the recipe's)")
    candidates = "candidate captions of sc-nlm (the recipe's)"
    parser.add_argument("--candidates", type=int, metavar="N", help=candidates)


def _configure_export(parser: argparse._ActionsContainer) -> None:
    _configure_search(parser.add_argument_group("runs that write captions"))


def _fix_search(arguments: argparse.Namespace, run: Run) -> dict[str, Any]:
    """Return the options of the search as argument `options`.

    Raises:
        InvalidArgumentError: if the run writes no captions and options are given, or writes captions and a precision
            is given.
    """
    from vsemb.errors import invalid_argument
    from vsemb.systems.captions.captioner import CaptionOptions
    from vsemb.systems.captions.task import NextWordTask

    given = {name: value for name, value in picked(arguments, *_SEARCH).items() if value is not None}
    writes = isinstance(run.recipe, NextWordTask)
    if writes and arguments.precision is not None:
        raise invalid_argument("--precision", arguments.precision, "omitted for a run that writes captions")
    if not given:
        return {}
    if not writes:
        name = next(iter(given))
        raise invalid_argument(f"--{name.replace('_', '-')}", given[name], "omitted for a run that writes no captions")
    return {"options": CaptionOptions(**given)}


EXPORT = Options(_configure_export, _fix_search)


def _configure_report(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--limit", type=int, metavar="N", help="images to caption (all; 100 for slow captioners)")


def _limit(arguments: argparse.Namespace, run: Run) -> dict[str, Any]:
    return {} if arguments.limit is None else picked(arguments, "limit")


REPORT = Options(_configure_report, _limit)

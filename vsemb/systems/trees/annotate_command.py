"""`vsemb annotate --dependencies`: the dependency tree of every caption of a dataset."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vsemb.data.store import Dataset

SUMMARY = "dependency trees, for recipes that read trees"


def configure(parser: argparse._ActionsContainer) -> None:
    """Adds the mode's options."""
    parser.add_argument("--model", metavar="NAME_OR_PATH", help="an installed pipeline of spaCy, or the folder of one")
    parser.add_argument("--conllu", nargs="+", metavar="FILE", help="trees of all captions, plain or .gz")
    parser.add_argument("--processes", type=int, metavar="N", help="processes that parse, each with its pipeline (1)")


def run(arguments: argparse.Namespace, dataset: Dataset) -> dict[str, Any]:
    """Parses or reads, and prints; returns what is written as JSON."""
    from vsemb.commands import say
    from vsemb.errors import invalid_argument
    from vsemb.systems.trees.parsers import open_parser
    from vsemb.systems.trees.parsing import describe, import_conllu, parse_dataset

    if arguments.model is None and arguments.conllu is None:
        raise invalid_argument("model", None, "--model NAME_OR_PATH, --conllu FILE, or both")
    if arguments.conllu and arguments.processes is not None:
        raise invalid_argument("processes", arguments.processes, "none with --conllu, which parses nothing")
    parser = None if arguments.model is None else open_parser(arguments.model, report=say)
    overwrite = arguments.overwrite
    if arguments.conllu:
        done = import_conllu(dataset, arguments.conllu, parser=parser, overwrite=overwrite, report=say)
    else:
        assert parser is not None
        processes = 1 if arguments.processes is None else arguments.processes
        done = parse_dataset(dataset, parser, processes=processes, overwrite=overwrite, report=say)
    values = describe(dataset, done)
    splits = ", ".join(f"{name} {count:,}" for name, count in values["splits"].items())
    print(f"trees   {values['trees']:,} ({splits})")
    print(f"words   {values['words_mean']:.1f} on average, {values['words_max']} at most")
    print(f"depth   {values['depth_mean']:.1f} on average, {values['depth_max']} at most")
    print(f"parser  {values['parser_name'] or 'not known; name one with --model to parse new sentences'}")
    if values["agreement"] is not None:
        print(f"        makes the same tree of {100 * values['agreement']:.1f} % of a sample of captions")
    if values["captions_per_second"] is not None:
        print(f"speed   {values['captions_per_second']:,.0f} captions/s")
    print(f"where   {values['directory']}")
    print(f"next    {values['next']}")
    return values

"""Commands of dependency trees: `vsemb annotate --dependencies` and the option `--parser`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from vsemb.commands import Mode, Options
from vsemb.console import say

if TYPE_CHECKING:
    from vsemb.runs.run import Run


def _configure_dependencies(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--model", metavar="NAME_OR_PATH", help="installed spaCy pipeline, or its folder")
    parser.add_argument(
        "--conllu", nargs="+", metavar="FILE", help="CoNLL-U files with trees of all captions, plain or .gz"
    )
    parser.add_argument("--processes", type=int, metavar="N", help="parsing processes, each with its own pipeline (1)")


def _annotate_dependencies(arguments: argparse.Namespace) -> dict[str, Any]:
    """Add dependency trees, for recipes that read trees.

    Writes the tree of every caption to DATA/parses. Trees come from a spaCy pipeline (--model), which is copied beside
    them for new sentences, or from CoNLL-U files (--conllu) of any parser, such as Stanza, UDPipe or CoreNLP. With
    both options, trees come from the files, and the pipeline parses new sentences. A sentence is matched to its caption
    by sent_id. Without ids, the sentences must be all captions, in order. The same command resumes an interrupted run.
    """
    from vsemb.data.store import Dataset
    from vsemb.errors import invalid_argument
    from vsemb.systems.trees.parsers import open_parser
    from vsemb.systems.trees.parsing import describe, import_conllu, parse_dataset

    if arguments.model is None and arguments.conllu is None:
        raise invalid_argument("model", None, "--model NAME_OR_PATH, --conllu FILE, or both")
    if arguments.conllu and arguments.processes is not None:
        raise invalid_argument("processes", arguments.processes, "omitted with --conllu, which does not parse")
    dataset = Dataset.open(arguments.data)
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
    print(f"parser  {values['parser_name'] or 'not recorded; pass --model to parse new sentences'}")
    if values["agreement"] is not None:
        print(f"        gives the same tree for {100 * values['agreement']:.1f} % of sampled captions")
    if values["captions_per_second"] is not None:
        print(f"speed   {values['captions_per_second']:,.0f} captions/s")
    print(f"where   {values['directory']}")
    print(f"next    {values['next']}")
    return values


DEPENDENCIES = Mode(_annotate_dependencies, _configure_dependencies)


def _configure_parser(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--parser", metavar="NAME_OR_PATH", help="spaCy pipeline for runs on trees (the training parser)"
    )


def _apply_parser(arguments: argparse.Namespace, run: Run) -> dict[str, Any]:
    """Set the parser of the run.

    Raises:
        VsembError: if the run does not read trees, or the parser does not exist.
    """
    if arguments.parser is not None:
        from vsemb.systems.trees.parse_texts import use_parser

        use_parser(run, arguments.parser)
    return {}


PARSER = Options(_configure_parser, _apply_parser)

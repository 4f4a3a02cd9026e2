"""Find the dependency tree of every caption of a dataset, for recipes that read trees.

The trees lie in DATA/parses. Either a pipeline of spaCy makes them (--model), which is kept beside them for
new sentences, or they come from CoNLL-U files that any parser has written (--conllu), such as Stanza, UDPipe
or CoreNLP. There a sentence belongs to the caption of its sent_id: the id that the caption has in the
dataset's source, or KEY#NUMBER with the image's key and the caption's number from 0; without ids the
sentences are all captions in order. With both, the files give the trees, and the pipeline is for new
sentences.

Nothing is downloaded. An interrupted run goes on where it was when the same command is given again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

EXAMPLE = """  vsemb parse data/flickr8k --model en_core_web_sm
  vsemb parse data/flickr8k --conllu captions.conllu.gz --model pipelines/en_ewt"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("data", type=Path, metavar="DATA", help="a prepared dataset")
    parser.add_argument("--model", metavar="NAME_OR_PATH", help="an installed pipeline of spaCy, or the folder of one")
    parser.add_argument("--conllu", nargs="+", metavar="FILE", help="trees of all captions, plain or .gz")
    parser.add_argument(
        "--processes", type=int, metavar="N", help="processes that parse, each with its own pipeline (1)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace parses that are there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what is printed to FILE")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb.data.store import Dataset
    from vsemb.errors import invalid_argument
    from vsemb.files import write_json
    from vsemb.systems.trees.parsers import open_parser
    from vsemb.systems.trees.parsing import describe, import_conllu, parse_dataset

    def say(line: str) -> None:
        print(line, file=sys.stderr)

    if arguments.model is None and arguments.conllu is None:
        raise invalid_argument("model", None, "--model NAME_OR_PATH, --conllu FILE, or both")
    if arguments.conllu and arguments.processes is not None:
        raise invalid_argument("processes", arguments.processes, "none with --conllu, which parses nothing")
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
    _show(values)
    if arguments.json:
        write_json(arguments.json, values)
    return 0


def _show(values: dict[str, Any]) -> None:
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

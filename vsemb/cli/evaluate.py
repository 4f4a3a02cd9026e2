"""Measure a run with one of the field's protocols, each with a flag of its own.

Without a flag, the protocol is the one of the run's recipe: retrieval for a dual encoder, entailment for a run on
sentence pairs, captions for a run that writes captions, perplexity for a language model. Ties count against the
model in every protocol.

Some protocols need data that not every dataset has. --zero-shot reads the classes of images. --pointing reads which
words of a caption name which objects, as in the data of `vsemb scenes`.
"""

from __future__ import annotations

import argparse

from vsemb.commands import add_modes, add_options, apply_options

EXAMPLE = """  vsemb evaluate runs/vsepp --data data/flickr8k --split test --json metrics.json
  vsemb evaluate runs/coco --data data/coco --split test --folds 5
  vsemb evaluate runs/tree --split test --pairs 1000 --recalls 1 5 10 20 50
  vsemb evaluate runs/snli --split test
  vsemb evaluate runs/ds-sje --zero-shot --split test --curve --typos 0 0.05 0.1
  vsemb evaluate runs/dvsa --data data/scenes --split test --pointing
  vsemb evaluate runs/captions --captions --beside runs/sc-nlm --examples 5
  vsemb evaluate runs/sc-nlm --perplexity --beside runs/multiplicative runs/log-bilinear"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", help="the run directory")
    parser.add_argument("--data", help="the dataset (that of the training)")
    parser.add_argument("--split", default="val", help="the split to measure on (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write the metrics to FILE as JSON")
    add_options(parser, "run")
    add_modes(parser, "evaluate")


def run(arguments: argparse.Namespace) -> None:
    """Runs the command: opens the run, and lets the protocol's module measure, print and return the metrics.

    A protocol is a mode (see `vsemb.commands`) with `measures(recipe)`, whether it measures runs of a recipe beside
    those whose `evaluation` names it, and `run(arguments, run)`, which returns what is written as JSON.
    """
    from vsemb.errors import InvalidArgumentError, unknown_name
    from vsemb.files import write_json
    from vsemb.runs.run import Run

    modes = arguments.modes
    chosen = modes.chosen(arguments)
    if chosen is not None:
        modes.check(arguments, chosen)
    opened = Run.open(arguments.run)
    recipe = opened.recipe
    name = chosen or recipe.evaluation
    if name not in modes.modules:
        raise unknown_name("evaluation", name, modes.modules)
    modes.check(arguments, name)
    protocol = modes.modules[name]
    if name != recipe.evaluation and not protocol.measures(recipe):
        raise InvalidArgumentError(
            f"--{name} must be given with a run that it measures; got {opened.path}, a run of the recipe "
            f"{recipe.name!r}, which is for {recipe.kind}. Its own protocol is --{recipe.evaluation}."
        )
    apply_options(arguments, opened, "run")
    measured = protocol.run(arguments, opened)
    if arguments.json:
        write_json(arguments.json, measured)

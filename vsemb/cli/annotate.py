"""Annotate the captions of a dataset: dependency trees, parts of speech.

--dependencies finds the tree of every caption, for recipes that read trees; they lie in DATA/parses. A pipeline of
spaCy (--model) makes them, and is kept beside them for new sentences, or they come from CoNLL-U files (--conllu) of
any parser, such as Stanza, UDPipe or CoreNLP. With both, the trees come from the files, and the pipeline is for new
sentences. A sentence belongs to the caption of its sent_id; without ids the sentences are all captions in order.

--pos-tags finds the part of speech of every word, for recipes that plan sentences; they lie in DATA/tags, one tag
of the Penn Treebank per word. NLTK's perceptron tagger makes them, from the model averaged_perceptron_tagger_eng
below NLTK_DATA, or they come from a file (--file) with one caption per line:

    ID<TAB>word/TAG word/TAG ...

The id of a caption is the one that it has in the dataset's source, or KEY#NUMBER with the image's key and the
caption's number from 0. Words and tokens are matched by their letters and digits. Nothing is downloaded. When
--dependencies was interrupted, the same command resumes it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from vsemb.commands import add_modes

EXAMPLE = """  vsemb annotate data/flickr8k --dependencies --model en_core_web_sm
  vsemb annotate data/flickr8k --dependencies --conllu captions.conllu.gz --model pipelines/en_ewt
  vsemb annotate data/flickr8k --pos-tags
  vsemb annotate data/flickr8k --pos-tags --file pos_tags.txt.gz"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("data", type=Path, metavar="DATA", help="a prepared dataset")
    parser.add_argument("--overwrite", action="store_true", help="replace annotations that are there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the summary to FILE as JSON")
    add_modes(parser, "annotate")


def run(arguments: argparse.Namespace) -> None:
    """Runs the command: a mode's `run(arguments, dataset)` annotates, prints, and returns what is written as JSON."""
    from vsemb.data.store import Dataset
    from vsemb.errors import InvalidArgumentError
    from vsemb.files import write_json

    modes = arguments.modes
    name = modes.chosen(arguments)
    if name is None:
        flags = " or ".join(f"--{each}" for each in modes.modules)
        raise InvalidArgumentError(f"vsemb annotate must be told what to find; got nothing. Add {flags}.")
    modes.check(arguments, name)
    values = modes.modules[name].run(arguments, Dataset.open(arguments.data))
    if arguments.json:
        write_json(arguments.json, values)

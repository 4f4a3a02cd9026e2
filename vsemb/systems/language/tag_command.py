"""Find the part of speech of every word of a dataset's captions, for models that plan sentences by them.

The tags lie in DATA/tags, one of the Penn Treebank's for each word. Either NLTK's perceptron tagger makes
them, or they come from a file (--file) that any tagger has written, with a caption a line:

    ID<TAB>word/TAG word/TAG ...

where ID is the id that the caption has in the dataset's source, or KEY#NUMBER with the image's key and the
caption's number from 0. Words and tokens are matched by their letters and digits; punctuation falls away.

Nothing is downloaded. NLTK looks for its model averaged_perceptron_tagger_eng where NLTK_DATA says.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

EXAMPLE = """  vsemb tag data/flickr8k
  vsemb tag data/flickr8k --file pos_tags.txt.gz"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("data", type=Path, metavar="DATA", help="a prepared dataset")
    parser.add_argument("--file", type=Path, metavar="TAGS", help="tags of all captions, plain or .gz")
    parser.add_argument("--overwrite", action="store_true", help="replace tags that are there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what is printed to FILE")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb.data.store import Dataset
    from vsemb.files import write_json
    from vsemb.systems.language.taggers import open_tagger
    from vsemb.systems.language.tagging import describe_tags, import_tags, tag_captions

    dataset = Dataset.open(arguments.data)
    began = time.monotonic()
    if arguments.file is None:
        tags = tag_captions(dataset, open_tagger(), overwrite=arguments.overwrite)
    else:
        tags = import_tags(
            dataset,
            arguments.file,
            overwrite=arguments.overwrite,
            report=lambda line: print(line, file=sys.stderr),
        )
    values = describe_tags(dataset, tags) | {"seconds": round(time.monotonic() - began, 2)}
    _show(values)
    if arguments.json:
        write_json(arguments.json, values)
    return 0


def _show(values: dict[str, Any]) -> None:
    splits = ", ".join(f"{name} {count:,}" for name, count in values["splits"].items())
    most = ", ".join(f"{tag} {100 * count / values['words']:.0f} %" for tag, count in list(values["tags"].items())[:5])
    print(f"captions  {values['captions']:,} ({splits}), {values['words']:,} words")
    print(f"tags      {len(values['tags'])} kinds: {most}{', ...' if len(values['tags']) > 5 else ''}")
    print(f"from      {values['source'].get('tagger') or values['source'].get('file')}")
    print(f"time      {values['seconds']:.1f} s")
    print(f"where     {values['directory']}")

"""`vsemb annotate --pos-tags`: part of speech of every word in a dataset's captions."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from vsemb.commands import Mode
from vsemb.console import say


def _configure_tags(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--file", type=Path, metavar="TAGS", help="tags of all captions, plain or .gz (NLTK's tagger)")


def _annotate_tags(arguments: argparse.Namespace) -> dict[str, Any]:
    """Add parts of speech, for recipes that plan sentences.

    Writes Penn Treebank tags, one per word, to DATA/tags. NLTK's perceptron tagger computes them with the model
    averaged_perceptron_tagger_eng in NLTK_DATA. With --file, they are read from a file with one caption per line:

        ID<TAB>word/TAG word/TAG ...
    """
    from vsemb.data.store import Dataset
    from vsemb.systems.language.tags import describe_tags, import_tags, open_tagger, tag_captions

    dataset = Dataset.open(arguments.data)
    began = time.monotonic()
    if arguments.file is None:
        tags = tag_captions(dataset, open_tagger(), overwrite=arguments.overwrite)
    else:
        tags = import_tags(dataset, arguments.file, overwrite=arguments.overwrite, report=say)
    values = describe_tags(dataset, tags) | {"seconds": round(time.monotonic() - began, 2)}
    splits = ", ".join(f"{name} {count:,}" for name, count in values["splits"].items())
    most = ", ".join(f"{tag} {100 * count / values['words']:.0f} %" for tag, count in list(values["tags"].items())[:5])
    print(f"captions  {values['captions']:,} ({splits}), {values['words']:,} words")
    print(f"tags      {len(values['tags'])} kinds: {most}{', ...' if len(values['tags']) > 5 else ''}")
    print(f"from      {values['source'].get('tagger') or values['source'].get('file')}")
    print(f"time      {values['seconds']:.1f} s")
    print(f"where     {values['directory']}")
    return values


POS_TAGS = Mode(_annotate_tags, _configure_tags)

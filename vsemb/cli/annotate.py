"""`vsemb annotate`; systems provide its modes."""

from __future__ import annotations

import argparse
from pathlib import Path

from vsemb.commands import Modes
from vsemb.printing import save_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("data", type=Path, metavar="DATA", help="a prepared dataset")
    parser.add_argument("--overwrite", action="store_true", help="replace existing annotations")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the summary as JSON to FILE")
    Modes(parser, "annotate")


def run(arguments: argparse.Namespace) -> None:
    """Annotate the captions of a dataset, for example with dependency trees.

    Annotations are computed, or read from files. In a file, the id of a caption is its id in the dataset's source, or
    KEY#NUMBER: the key of the image and the number of the caption, from 0. Words and tokens are matched by letters and
    digits. Nothing is downloaded.
    """
    # A mode annotates, prints, and returns the values for JSON.
    save_json(arguments, arguments.modes.run(arguments))

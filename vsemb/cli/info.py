"""`vsemb info`."""

from __future__ import annotations

import argparse
import dataclasses

from vsemb.printing import save_json
from vsemb.runs.describe import describe


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("path", metavar="DIR", help="directory of a run, dataset, index or exported model")
    parser.add_argument("--json", metavar="FILE", help="also write the page as JSON to FILE")


def run(arguments: argparse.Namespace) -> None:
    """Describe a run, dataset, index or exported model on one short page.

    The page shows recipe, dataset, sizes, metrics, dates and suggested next commands. Nothing is loaded or verified.

    Examples:
      vsemb info runs/vsepp
      vsemb info data/flickr8k
      vsemb info indexes/photos --json -
    """
    found = describe(arguments.path)
    width = max(map(len, found.facts)) + 2
    print(f"{found.kind:<{width}}{arguments.path}")
    for name, value in found.facts.items():
        print(f"{name:<{width}}{value}")
    print("\nnext")
    for command in found.next:
        print(f"  {command}")
    save_json(arguments, dataclasses.asdict(found))

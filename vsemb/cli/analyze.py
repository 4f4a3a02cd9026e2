"""Analyze what runs have learned, by one of several analyses.

lengths compares runs on captions of very different lengths for one image (Vendrov et al. 2016, section 4.6): at which
mean rank do the pairs of captions that differ most in length find their image, and at which does the shorter caption
find the longer one among all others? Ranks start at 1, and ties count against the model. Give a run with an order
and its symmetric twin to see the effect of the order.

norms lists the words and regions with the largest embeddings, and the words with the smallest, for a run on regions
whose score is a sum of inner products, such as the variant paper of the recipe dvsa.
"""

from __future__ import annotations

import argparse

from vsemb import registry
from vsemb.commands import add_modes

EXAMPLE = """  vsemb analyze lengths runs/order runs/symmetric --data data/flickr8k --images 1000
  vsemb analyze norms runs/dvsa --data data/flickr8k --split test -k 20 --parts --out norms.png"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    names = list(registry.modes("analyze"))
    parser.add_argument("analysis", choices=names, metavar="ANALYSIS", help=" or ".join(names))
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run directory; lengths compares several")
    parser.add_argument("--data", help="the dataset (that of the first run's training)")
    parser.add_argument("--split", default="val", help="the split to measure on (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE as JSON")
    add_modes(parser, "analyze", by_flag=False)


def run(arguments: argparse.Namespace) -> int | None:
    """Runs the command."""
    arguments.modes.check(arguments, arguments.analysis)
    return arguments.modes.modules[arguments.analysis].run(arguments)

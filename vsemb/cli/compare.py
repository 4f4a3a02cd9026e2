"""`vsemb compare`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from vsemb.commands import picked
from vsemb.printing import add_json, save_json, table


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("first", metavar="RUN", help="the run to compare with")
    parser.add_argument("second", metavar="RUN", help="the run whose gain is measured")
    parser.add_argument("--data", help="dataset (the training dataset of the first run)")
    parser.add_argument("--split", default="val", help="split to evaluate (%(default)s)")
    parser.add_argument("--bootstrap", type=int, default=1000, metavar="N", help="bootstrap samples (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (%(default)s)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Compare the recalls of two runs by a paired bootstrap over images.

    Each bootstrap sample draws images with replacement, with all their captions, for both runs. The table has the
    recalls of both runs, the gain of the second with its 95 % interval, and the share of samples without a gain.

    Examples:
      vsemb compare runs/kiros runs/vsepp --data data/flickr8k --split test
    """
    from vsemb.runs.measure import compare_runs, count_unknown_words
    from vsemb.runs.run import Run

    opened = Run.open(arguments.first, "retrieval"), Run.open(arguments.second, "retrieval")
    dataset = opened[0].open_data(arguments.data)
    found = compare_runs(*opened, dataset, arguments.split, **picked(arguments, "bootstrap", "seed"))
    rows = [
        [
            name.replace("_to_", " → ").replace("_", " "),
            f"{each.first:.1f}",
            f"{each.second:.1f}",
            f"{each.difference:+.1f}",
            "{:+.1f} to {:+.1f}".format(*each.interval_95),
            f"{each.not_better:.3f}",
        ]
        for name, each in found.items()
    ]
    print(table([arguments.split, "first", "second", "gain", "95 %", "share <= 0"], rows))
    sides = ("first", "second")
    unknown = {
        side: count_unknown_words(each, dataset, arguments.split) for side, each in zip(sides, opened, strict=True)
    }
    for side, counts in unknown.items():
        for note in counts.notes:
            print(f"{side}: {note}")
    values = {name: each.to_json() for name, each in found.items()}
    named = {"first": arguments.first, "second": arguments.second, "split": arguments.split}
    save_json(arguments, {**named, **values, "unknown": {side: asdict(counts) for side, counts in unknown.items()}})

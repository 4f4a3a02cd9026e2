"""`vsemb report`."""

from __future__ import annotations

import argparse

from vsemb.commands import add_options, apply_options, picked, save_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", help="the run directory")
    parser.add_argument("--data", help="the dataset (that of the training)")
    parser.add_argument("--split", default="val", help="the split to show (%(default)s)")
    parser.add_argument("--out", metavar="FILE", help="the page to write (RUN/report.html)")
    shown = "queries per direction, or images with captions (%(default)s)"
    parser.add_argument("--shown", type=int, default=12, metavar="N", help=shown)
    arithmetic = "an image, a word to subtract, one to add; repeatable (six)"
    triple = ("KEY", "MINUS", "PLUS")
    parser.add_argument("--arithmetic", nargs=3, action="append", default=[], metavar=triple, help=arithmetic)
    parser.add_argument("--seed", type=int, default=0, help="of all draws (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write the metrics to FILE as JSON")
    add_options(parser, "run", "report")


def run(arguments: argparse.Namespace) -> None:
    """Write a page about a run: its metrics, how it was trained, queries with their results, and failures.

    The sections depend on the run. The page is one HTML file that loads nothing else, so that it can be sent, kept and
    read anywhere.

    Examples:
      vsemb report runs/vsepp
      vsemb report runs/vsepp --data data/flickr8k --split test --out report.html
      vsemb report runs/vsepp --arithmetic beach.jpg pink red
    """
    from vsemb.report import write_report
    from vsemb.runs.run import Run

    opened = Run.open(arguments.run)
    path, lines, measured = write_report(
        opened,
        opened.open_data(arguments.data),
        arguments.split,
        arguments.out,
        arithmetic=[tuple(example) for example in arguments.arithmetic],
        **picked(arguments, "shown", "seed"),
        **apply_options(arguments, opened, "run", "report"),
    )
    print(lines)
    save_json(arguments, measured)
    print(f"\n{path}  {path.stat().st_size / 1e6:.1f} MB")

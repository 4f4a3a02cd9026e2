"""`vsemb report`."""

from __future__ import annotations

import argparse

from vsemb.commands import add_options, apply_options, picked
from vsemb.printing import save_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", help="the run directory")
    parser.add_argument("--data", help="dataset (the training dataset)")
    parser.add_argument("--split", default="val", help="split to show (%(default)s)")
    parser.add_argument("--out", metavar="FILE", help="HTML file to write (RUN/report.html)")
    shown = "queries per direction, or captioned images, to show (%(default)s)"
    parser.add_argument("--shown", type=int, default=12, metavar="N", help=shown)
    arithmetic = "image, word to subtract, word to add; repeatable (six random examples)"
    triple = ("KEY", "MINUS", "PLUS")
    parser.add_argument("--arithmetic", nargs=3, action="append", default=[], metavar=triple, help=arithmetic)
    parser.add_argument("--seed", type=int, default=0, help="random seed (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write the metrics as JSON to FILE")
    add_options(parser, "run", "report")


def run(arguments: argparse.Namespace) -> None:
    """Write the report of a run: metrics, failures, queries with their results, and training curves.

    The report is one self-contained HTML file without scripts. Its sections depend on the task of the run.

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

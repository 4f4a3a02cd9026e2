"""Write a page about a run: its metrics, how it was trained, queries with their results, and failures.

The sections depend on the run: alignments of words and regions for a run on regions; for a run that writes captions,
these beside the captions of people and the nearest training sentence. The page is one HTML file that loads nothing
else, so that it can be sent, kept and read anywhere.
"""

from __future__ import annotations

import argparse

from vsemb.commands import add_options, apply_options

EXAMPLE = """  vsemb report runs/vsepp
  vsemb report runs/vsepp --data data/flickr8k --split test --out report.html
  vsemb report runs/vsepp --arithmetic beach.jpg pink red
  vsemb report runs/captions --split test"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", help="the run directory")
    parser.add_argument("--data", help="the dataset (that of the training)")
    parser.add_argument("--split", default="val", help="the split to show (%(default)s)")
    parser.add_argument("--out", metavar="FILE", help="the page to write (RUN/report.html)")
    parser.add_argument(
        "--shown", type=int, default=12, metavar="N", help="queries per direction, or captioned images (%(default)s)"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="images to caption (all; 100 for slow captioners)")
    parser.add_argument(
        "--arithmetic",
        nargs=3,
        action="append",
        default=[],
        metavar=("KEY", "MINUS", "PLUS"),
        help="an image, a word to subtract, one to add; repeatable (six)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of all draws (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write the metrics to FILE as JSON")
    add_options(parser, "run")


def run(arguments: argparse.Namespace) -> None:
    """Runs the command."""
    from vsemb.files import write_json
    from vsemb.report import write_report
    from vsemb.runs.run import Run

    opened = Run.open(arguments.run)
    apply_options(arguments, opened, "run")
    path, lines, measured = write_report(
        opened,
        opened.open_data(arguments.data),
        arguments.split,
        arguments.out,
        shown=arguments.shown,
        limit=arguments.limit,
        arithmetic=[tuple(example) for example in arguments.arithmetic],
        seed=arguments.seed,
    )
    print(lines)
    if arguments.json:
        write_json(arguments.json, measured)
    print(f"\n{path}  {path.stat().st_size / 1e6:.1f} MB")

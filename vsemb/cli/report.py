"""Write a page about a run: its recall, how it was trained, what it finds, and where it fails.

Of a run on regions it also shows which words describe which regions. One HTML file that loads nothing else:
it can be sent, kept and read anywhere.
"""

from __future__ import annotations

import argparse

from vsemb.cli.parsers import add_parser, use_parser

EXAMPLE = """  vsemb report runs/vsepp
  vsemb report runs/vsepp --data data/flickr8k --split test --out report.html
  vsemb report runs/vsepp --arithmetic beach.jpg pink red"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", help="the run directory")
    parser.add_argument("--data", help="the dataset (the one the run was trained on)")
    parser.add_argument("--split", default="val", help="the split to show (%(default)s)")
    parser.add_argument("--out", metavar="FILE", help="the page to write (RUN/report.html)")
    parser.add_argument(
        "--queries", type=int, default=12, metavar="N", help="queries shown in each direction (%(default)s)"
    )
    parser.add_argument(
        "--arithmetic",
        nargs=3,
        action="append",
        default=[],
        metavar=("KEY", "MINUS", "PLUS"),
        help="show this: an image of the split, a word taken away, another added; repeatable "
        "(six are chosen)",
    )
    add_parser(parser)
    parser.add_argument("--seed", type=int, default=0, help="of all draws (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write the retrieval table to FILE as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb.cli.tables import retrieval_table
    from vsemb.data.store import Dataset
    from vsemb.files import write_json
    from vsemb.recipes.report import write_report
    from vsemb.recipes.run import Run

    opened = Run.open(arguments.run)
    use_parser(arguments, opened)
    path, metrics = write_report(
        opened,
        Dataset.open(arguments.data or opened.data_path),
        arguments.split,
        arguments.out,
        queries=arguments.queries,
        arithmetic=[tuple(example) for example in arguments.arithmetic],
        seed=arguments.seed,
    )
    print(retrieval_table(metrics))
    if arguments.json:
        write_json(arguments.json, metrics.to_json())
    print(f"\n{path}  {path.stat().st_size / 1e6:.1f} MB")
    return 0

"""Write a page about a run: its recall, how it was trained, what it finds, and where it fails.

Of a run on regions it also shows which words describe which regions. Of a run that writes captions it shows
these, beside what people wrote and the nearest sentence of the training. One HTML file that loads nothing
else: it can be sent, kept and read anywhere.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from vsemb.systems.trees.parser_option import add_parser, use_parser

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = """  vsemb report runs/vsepp
  vsemb report runs/vsepp --data data/flickr8k --split test --out report.html
  vsemb report runs/vsepp --arithmetic beach.jpg pink red
  vsemb report runs/captions --split test"""

_QUERIES = 12


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", help="the run directory")
    parser.add_argument("--data", help="the dataset (the one the run was trained on)")
    parser.add_argument("--split", default="val", help="the split to show (%(default)s)")
    parser.add_argument("--out", metavar="FILE", help="the page to write (RUN/report.html)")
    parser.add_argument(
        "--queries",
        type=int,
        metavar="N",
        help=f"queries shown in each direction, or images with captions ({_QUERIES})",
    )
    parser.add_argument(
        "--limit",
        type=int,
        metavar="N",
        help="for a run that writes captions: images captioned and measured (all; 100 for sc-nlm, which is slow)",
    )
    parser.add_argument(
        "--arithmetic",
        nargs=3,
        action="append",
        default=[],
        metavar=("KEY", "MINUS", "PLUS"),
        help="show this: an image of the split, a word taken away, another added; repeatable (six are chosen)",
    )
    add_parser(parser)
    parser.add_argument("--seed", type=int, default=0, help="of all draws (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write the table to FILE as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb.files import write_json
    from vsemb.systems.captions.captioning import writes_captions

    report = _report_captions if writes_captions(arguments.run) else _report_retrieval
    path, measured = report(arguments)
    if arguments.json:
        write_json(arguments.json, measured)
    print(f"\n{path}  {path.stat().st_size / 1e6:.1f} MB")
    return 0


def _report_retrieval(arguments: argparse.Namespace) -> tuple[Path, dict[str, Any]]:
    from vsemb.cli.tables import retrieval_table
    from vsemb.data.store import Dataset
    from vsemb.errors import invalid_argument
    from vsemb.report import write_report
    from vsemb.runs.run import Run

    if arguments.limit is not None:
        raise invalid_argument("limit", arguments.limit, "nothing for a run that writes no captions")
    opened = Run.open(arguments.run)
    use_parser(arguments, opened)
    path, metrics = write_report(
        opened,
        Dataset.open(arguments.data or opened.data_path),
        arguments.split,
        arguments.out,
        queries=_QUERIES if arguments.queries is None else arguments.queries,
        arithmetic=[tuple(example) for example in arguments.arithmetic],
        seed=arguments.seed,
    )
    print(retrieval_table(metrics))
    return path, metrics.to_json()


def _report_captions(arguments: argparse.Namespace) -> tuple[Path, dict[str, Any]]:
    from vsemb.cli.tables import table
    from vsemb.data.store import Dataset
    from vsemb.errors import invalid_argument
    from vsemb.systems.captions.captioning import open_captioning_run
    from vsemb.systems.captions.report import write_caption_report

    if arguments.arithmetic:
        allowed = "nothing for a run that writes captions"
        raise invalid_argument("arithmetic", arguments.arithmetic[0], allowed)
    opened = open_captioning_run(arguments.run)
    use_parser(arguments, opened)
    path, metrics = write_caption_report(
        opened,
        Dataset.open(arguments.data or opened.data_path),
        arguments.split,
        arguments.out,
        images=_QUERIES if arguments.queries is None else arguments.queries,
        limit=arguments.limit,
        seed=arguments.seed,
    )
    if metrics is None:
        print("Not measured: pip install 'vsemb[captions]'")
        return path, {}
    measured = metrics.to_json()
    shown = {name: value for name, value in measured.items() if isinstance(value, float)}
    header = [f"{arguments.split}: {metrics.images} images", *shown]
    print(table(header, [["", *(f"{value:.1f}" for value in shown.values())]]))
    return path, measured

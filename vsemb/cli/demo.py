"""`vsemb demo`."""

from __future__ import annotations

import argparse

from vsemb.commands import add_options, apply_options, picked


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", help="the run directory")
    parser.add_argument("--data", help="the dataset to search (that of the training)")
    parser.add_argument("--split", default="all", help="the split to search, or all (%(default)s)")
    parser.add_argument("--port", type=int, default=7860, help="the port; 0 takes a free one (%(default)s)")
    parser.add_argument("--open", dest="open_browser", action="store_true", help="open the page in a browser")
    add_options(parser, "run", "demo")


def run(arguments: argparse.Namespace) -> None:
    """Try a run in the browser: type a sentence, drop an image, do arithmetic, compare.

    The page is served on 127.0.0.1 only and loads nothing from other machines. The dataset's images and captions are
    embedded on first use, see `vsemb index`; those of a run that has no index with the first answer, each time the
    page is served. Images that are dropped are kept in a temporary folder until the command ends. Ctrl-C ends it.

    Examples:
      vsemb demo runs/vsepp --open
      vsemb demo runs/order --data data/flickr8k --split test --port 8080
    """
    from vsemb.demo import serve_demo
    from vsemb.runs.run import Run

    opened = Run.open(arguments.run)
    serve_demo(
        opened,
        opened.open_data(arguments.data),
        **picked(arguments, "split", "port", "open_browser"),
        report=lambda line: print(line, flush=True),
        **apply_options(arguments, opened, "run", "demo"),
    )

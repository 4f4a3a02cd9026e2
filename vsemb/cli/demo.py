"""Try a run in the browser: type a sentence, drop an image, do arithmetic, compare.

Of a run that writes captions, drop an image and read them; --captions adds such a run to one of the others.

The page is served on 127.0.0.1 alone and asks no other machine for anything. The dataset's images and
captions are embedded on first use, see `vsemb index`; for a run on regions with the first answer, each time
the page is served. Images that are dropped are kept in a temporary folder until the command ends. Ctrl-C
ends it.
"""

from __future__ import annotations

import argparse

from vsemb.systems.trees.parser_option import add_parser, use_parser

EXAMPLE = """  vsemb demo runs/vsepp --open
  vsemb demo runs/order --data data/flickr8k --split test --port 8080
  vsemb demo runs/vsepp --captions runs/captions"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", help="the run directory")
    parser.add_argument("--data", help="the dataset to search (the one the run was trained on)")
    parser.add_argument("--split", default="all", help="the split to search, or all (%(default)s)")
    parser.add_argument(
        "--captions", metavar="RUN", help="a run that writes captions of the images that are asked about"
    )
    add_parser(parser)
    parser.add_argument("--port", type=int, default=7860, help="0 takes any that is free (%(default)s)")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb.data.store import Dataset
    from vsemb.demo import serve_demo
    from vsemb.runs.run import Run
    from vsemb.systems.captions.captioning import open_captioning_run, writes_captions

    opener = open_captioning_run if writes_captions(arguments.run) else Run.open
    opened = opener(arguments.run)
    use_parser(arguments, opened)
    serve_demo(
        opened,
        Dataset.open(arguments.data or opened.data_path),
        split=arguments.split,
        port=arguments.port,
        open_browser=arguments.open,
        report=lambda line: print(line, flush=True),
        captioning=None if arguments.captions is None else open_captioning_run(arguments.captions),
    )
    return 0

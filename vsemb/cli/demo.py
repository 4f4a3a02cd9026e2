"""`vsemb demo`."""

from __future__ import annotations

import argparse

from vsemb.cli.serve import access, configure_access
from vsemb.commands import add_options, apply_options, picked

#: As in `vsemb.cli.serve`.
KEEPS_MEMORY = False


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", help="the run directory")
    parser.add_argument("--data", help="dataset to search (the training dataset)")
    parser.add_argument("--split", default="all", help="split to search, or all (%(default)s)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    configure_access(parser)
    parser.add_argument("--port", type=int, default=7860, help="port; 0 for any free port (%(default)s)")
    parser.add_argument("--open", dest="open_browser", action="store_true", help="open the page in a browser")
    add_options(parser, "run", "demo")


def run(arguments: argparse.Namespace) -> None:
    """Serve a demo page for a run: search by sentence or image, arithmetic, comparison.

    The page loads nothing from other hosts. The first start builds an index of images and captions, see `vsemb index`.
    Runs that do not support an index embed them at every start. Dropped images are stored in a temporary directory,
    which is deleted at the end. Press Ctrl-C to end the command.

    On an address other than loopback, browsers ask for a name and a password. The password is the token.

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
        **picked(arguments, "split", "host", "port", "open_browser"),
        access=access(arguments),
        report=lambda line: print(line, flush=True),
        **apply_options(arguments, opened, "run", "demo"),
    )

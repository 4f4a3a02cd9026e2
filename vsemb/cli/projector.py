"""`vsemb projector`."""

from __future__ import annotations

import argparse

from vsemb.commands import picked
from vsemb.printing import table


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", help="run directory")
    parser.add_argument("--data", help="dataset (the training dataset)")
    parser.add_argument("--split", default="val", help="split to show (%(default)s)")
    parser.add_argument("--out", metavar="DIR", help="folder to write (RUN/projector)")
    for name, default, what in (
        ("images", 1000, "number of images, drawn at random"),
        ("sentences", 1000, "number of sentences of these images"),
        ("words", 500, "number of words, the most frequent"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{what} (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (%(default)s)")


def run(arguments: argparse.Namespace) -> None:
    """Write the embeddings of images, sentences and words for TensorBoard's projector.

    Images have thumbnails. The tensor `everything` contains images and their sentences together. Each word is embedded
    as a sentence.

    Examples:
      vsemb projector runs/vsepp
      vsemb projector runs/vsepp --data data/flickr8k --split test --images 200 --sentences 1000
      tensorboard --logdir runs/vsepp/projector
    """
    import shlex

    from vsemb.runs.projector import project_run
    from vsemb.runs.run import Run

    opened = Run.open(arguments.run, "retrieval")
    path, shapes = project_run(
        opened,
        opened.open_data(arguments.data),
        arguments.split,
        arguments.out,
        **picked(arguments, "images", "sentences", "words", "seed"),
    )
    rows = [[name, str(points), str(dim)] for name, (points, dim) in shapes.items()]
    print(table(["tensor", "points", "entries"], rows))
    print(f"\ntensorboard --logdir {shlex.quote(str(path))}")

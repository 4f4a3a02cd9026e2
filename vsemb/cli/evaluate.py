"""Measure a run: recall at 1, 5 and 10, median and mean rank, from images to texts and back."""

from __future__ import annotations

import argparse

EXAMPLE = """  vsemb evaluate runs/vsepp --data data/flickr8k --split test --json metrics.json
  vsemb evaluate runs/coco --data data/coco --split test --folds 5"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", help="the run directory")
    parser.add_argument("--data", help="the dataset (the one the run was trained on)")
    parser.add_argument("--split", default="val", help="the split to measure on (%(default)s)")
    parser.add_argument(
        "--folds", type=int, default=1, help="average over so many contiguous parts of the images (1)"
    )
    parser.add_argument(
        "--bootstrap", type=int, default=0, metavar="N", help="95 %% intervals from N resamplings (0: none)"
    )
    parser.add_argument("--json", metavar="FILE", help="also write the table to FILE as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb.cli.tables import retrieval_table
    from vsemb.data.store import Dataset
    from vsemb.files import write_json
    from vsemb.recipes.measure import evaluate_run
    from vsemb.recipes.run import Run

    opened = Run.open(arguments.run)
    dataset = Dataset.open(arguments.data or opened.data_path)
    metrics = evaluate_run(
        opened, dataset, arguments.split, folds=arguments.folds, bootstrap=arguments.bootstrap
    )
    print(retrieval_table(metrics))
    if arguments.json:
        write_json(arguments.json, metrics.to_json())
    return 0

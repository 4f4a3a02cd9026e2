"""Measure a run.

Retrieval: recall at 1, 5 and 10, median and mean rank, from images to texts and back. Entailment: accuracy of
two classes at the threshold that is best on the validation split, average precision and area under ROC.
"""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLE = """  vsemb evaluate runs/vsepp --data data/flickr8k --split test --json metrics.json
  vsemb evaluate runs/coco --data data/coco --split test --folds 5
  vsemb evaluate runs/snli --split test"""


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
    from vsemb.cli.tables import entailment_table, retrieval_table
    from vsemb.data.store import Dataset
    from vsemb.errors import invalid_argument
    from vsemb.files import write_json
    from vsemb.recipes.entailment_run import EntailmentRun, evaluate_entailment_run
    from vsemb.recipes.measure import evaluate_run
    from vsemb.recipes.tasks import open_run

    opened = open_run(arguments.run)
    measured: dict[str, Any]
    if isinstance(opened, EntailmentRun):
        for name, default in (("folds", 1), ("bootstrap", 0)):
            if getattr(arguments, name) != default:
                raise invalid_argument(name, getattr(arguments, name), f"{default} for an entailment run")
        data = opened.open_data(arguments.data)
        metrics = evaluate_entailment_run(opened, data, arguments.split)
        measured = metrics.to_json()
        print(f"{entailment_table(metrics, arguments.split)}\n\n{data.protocol}")
    else:
        dataset = Dataset.open(arguments.data or opened.data_path)
        found = evaluate_run(
            opened, dataset, arguments.split, folds=arguments.folds, bootstrap=arguments.bootstrap
        )
        measured = found.to_json()
        print(retrieval_table(found))
    if arguments.json:
        write_json(arguments.json, measured)
    return 0

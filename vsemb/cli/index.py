"""Embed a dataset's images, or its captions, into an index for `vsemb search`.

The index lies in RUN/index. It belongs to the run's weights and to the dataset as they are now; search
notices when either has changed. --candidates measures approximate search, which scores orders exactly for
those items alone that have the largest inner product with the query.
"""

from __future__ import annotations

import argparse

EXAMPLE = """  vsemb index runs/vsepp --data data/flickr8k --split val
  vsemb index runs/order --candidates 50 100"""

_BEST = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", help="the run directory")
    parser.add_argument("--data", help="the dataset (the one the run was trained on)")
    parser.add_argument("--split", default="all", help="the split to embed, or all (%(default)s)")
    parser.add_argument("--captions", action="store_true", help="embed captions instead of images")
    parser.add_argument(
        "--candidates",
        type=int,
        nargs="+",
        default=[],
        metavar="N",
        help="measure how much of the exact ten best a search among N candidates finds (orders)",
    )
    parser.add_argument("--json", metavar="FILE", help="also write what is printed to FILE")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb.data.store import Dataset
    from vsemb.files import write_json
    from vsemb.recipes.build import similarity_name
    from vsemb.recipes.indexing import build_index, index_directory, measure_candidates
    from vsemb.recipes.run import Run
    from vsemb.search import check_candidates

    opened = Run.open(arguments.run)
    dataset = Dataset.open(arguments.data or opened.data_path)
    kind = "text" if arguments.captions else "image"
    for count in arguments.candidates:  # Before the work of embedding.
        check_candidates(count, _BEST, similarity_name(opened.recipe))
    index = build_index(opened, dataset, arguments.split, kind)
    report = {
        "items": len(index),
        "kind": kind,
        "dim": int(index.embeddings.shape[1]),
        "splits": list(index.source.splits),
        "where": str(index_directory(opened, dataset, arguments.split, kind)),
    }
    print(f"items   {len(index):,} {kind}s of {', '.join(index.source.splits)}")
    print(f"dim     {report['dim']}")
    print(f"where   {report['where']}")
    if arguments.candidates:
        recalls = measure_candidates(opened, dataset, index, arguments.candidates, k=_BEST)
        report["recall"] = {str(count): recall for count, recall in recalls.items()}
        for count, recall in recalls.items():
            print(f"recall  {100 * recall:.1f} % of the exact {_BEST} best among {count} candidates")
    if arguments.json:
        write_json(arguments.json, report)
    return 0

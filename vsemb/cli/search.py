"""Find the images of a dataset that fit a text or an image, with words taken away and added.

--image takes an image file, or the key of an image of the dataset; that image itself is not among the
results. --minus and --plus are the arithmetic of Kiros et al. 2014: an image of a blue car, minus "blue",
plus "red". --compose and --abstract are those of Vendrov et al. 2016, for order-embeddings: images that
show all of several texts or images, or what they have in common. The dataset is embedded on first use, see
`vsemb index`.
"""

from __future__ import annotations

import argparse
import sys

EXAMPLE = """  vsemb search runs/vsepp "a dog running on a beach" --data data/flickr8k
  vsemb search runs/order --compose "a dog" "a ball"
  vsemb search runs/vsepp --image blue_car.jpg --minus blue --plus red --resort 20"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", help="the run directory")
    parser.add_argument("text", nargs="?", help="what to look for, in words")
    parser.add_argument("--image", metavar="FILE", help="an image to start from: a file, or a dataset's key")
    parser.add_argument(
        "--minus", action="append", default=[], metavar="WORD", help="take a word away; repeatable"
    )
    parser.add_argument("--plus", action="append", default=[], metavar="WORD", help="add a word; repeatable")
    for name, what in (("compose", "all of"), ("abstract", "what is common to")):
        parser.add_argument(
            f"--{name}",
            nargs="+",
            default=[],
            metavar="A",
            help=f"{what} two or more texts or images (as --image takes them)",
        )
    parser.add_argument("--data", help="the dataset to search (the one the run was trained on)")
    parser.add_argument("--split", default="all", help="the split to search, or all (%(default)s)")
    parser.add_argument("-k", type=int, default=10, metavar="N", help="results to show (%(default)s)")
    parser.add_argument(
        "--resort", type=int, metavar="N", help="sort the best N anew by their distance to their mean"
    )
    parser.add_argument("--captions", action="store_true", help="search captions instead of images")
    parser.add_argument(
        "--candidates", type=int, metavar="N", help="score exactly only N, chosen by inner product (orders)"
    )
    parser.add_argument("--keep-query", action="store_true", help="let images find themselves")
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    import dataclasses

    from vsemb.cli.tables import table
    from vsemb.data.store import Dataset
    from vsemb.files import write_json
    from vsemb.recipes.run import Run
    from vsemb.recipes.searching import Query, search_run

    several = {name: tuple(getattr(arguments, name)) for name in ("minus", "plus", "compose", "abstract")}
    query = Query(arguments.text, arguments.image, **several)
    opened = Run.open(arguments.run)
    results = search_run(
        opened,
        Dataset.open(arguments.data or opened.data_path),
        query,
        k=arguments.k,
        split=arguments.split,
        captions=arguments.captions,
        resort=arguments.resort,
        keep_query=arguments.keep_query,
        candidates=arguments.candidates,
        report=lambda line: print(line, file=sys.stderr),
    )
    rows = [[str(r.rank), f"{r.score:.3f}", r.item.key, r.item.caption] for r in results]
    print(table(["rank", "score", "key", "caption"], rows, text=(2, 3)))
    if arguments.json:
        found = [result.to_json() for result in results]
        write_json(arguments.json, {"query": dataclasses.asdict(query), "results": found})
    return 0

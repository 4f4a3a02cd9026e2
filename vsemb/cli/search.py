"""`vsemb search`."""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import TYPE_CHECKING

from vsemb.commands import Mode, Modes, add_options, apply_options, picked, save_json, say, table

if TYPE_CHECKING:
    from vsemb.runs.searching import Query, Result

_OPTIONS = ("k", "resort", "keep_query", "candidates")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", metavar="RUN_OR_INDEX", help="the run directory, or an index's")
    parser.add_argument("text", nargs="?", help="a text to search for")
    parser.add_argument("--data", help="the dataset to search (that of the training)")
    parser.add_argument("--split", help="the split to search, or all (all)")
    parser.add_argument("-k", type=int, default=10, metavar="N", help="results to show (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE as JSON")
    Modes(parser, "search", Mode(_search, _configure_images))


def _configure_images(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--image", metavar="FILE", help="an image to start from: a file, or a dataset's key")
    parser.add_argument("--minus", action="append", default=[], metavar="WORD", help="take a word away; repeatable")
    parser.add_argument("--plus", action="append", default=[], metavar="WORD", help="add a word; repeatable")
    for name, which in (("compose", "all of"), ("abstract", "what is common to")):
        texts = f"{which} two or more texts or images"
        parser.add_argument(f"--{name}", nargs="+", default=[], metavar="A", help=texts)
    parser.add_argument("--resort", type=int, metavar="N", help="sort the best N by distance to their mean")
    parser.add_argument("--captions", action="store_true", help="search captions instead of images")
    candidates = "score N exactly (10 per result, at least 100; all for orders)"
    parser.add_argument("--candidates", type=int, metavar="N", help=candidates)
    parser.add_argument("--keep-query", action="store_true", help="let images find themselves")
    parser.add_argument("--run", dest="index_run", metavar="RUN", help="the index's run, where it was moved")
    add_options(parser, "run")


def run(arguments: argparse.Namespace) -> None:
    """Find the images of a dataset that fit a text or an image, with words taken away and added.

    The dataset of a run is embedded on first use. An index made by `vsemb index --out` needs no dataset. --image takes
    an image file, or the key of an image of the dataset, which is then not among the results. --minus and --plus are
    the arithmetic of Kiros et al. 2014: an image of a blue car, minus "blue", plus "red". --compose and --abstract are
    those of Vendrov et al. 2016 for order-embeddings: images that show all of several texts or images, or what they
    have in common. A run of several vectors per image has neither index nor arithmetic: each query is compared with
    all images.

    Examples:
      vsemb search runs/vsepp "a dog running on a beach" --data data/flickr8k
      vsemb search indexes/flickr8k "a dog running on a beach" --candidates 200
      vsemb search runs/order --compose "a dog" "a ball"
      vsemb search runs/vsepp --image blue_car.jpg --minus blue --plus red --resort 20
    """
    arguments.modes.run(arguments)


def _search(arguments: argparse.Namespace) -> None:
    import dataclasses

    from vsemb.runs.searching import Query
    from vsemb.searching import is_index

    several = picked(arguments, "minus", "plus", "compose", "abstract")
    query = Query(arguments.text, arguments.image, **{name: tuple(value) for name, value in several.items()})
    search = _search_index if is_index(arguments.run) else _search_run
    results = search(arguments, query)
    rows = [[str(r.rank), f"{r.score:.3f}", r.item.key, r.item.caption] for r in results]
    print(table(["rank", "score", "key", "caption"], rows, text=(2, 3)))
    found = [result.to_json() for result in results]
    save_json(arguments, {"query": dataclasses.asdict(query), "results": found})


def _search_run(arguments: argparse.Namespace, query: Query) -> list[Result]:
    from vsemb.errors import invalid_argument
    from vsemb.runs.run import Run
    from vsemb.runs.searching import search_run

    if arguments.index_run is not None:
        raise invalid_argument("run", arguments.index_run, f"none, since {arguments.run} is no index")
    opened = Run.open(arguments.run, "retrieval")
    apply_options(arguments, opened, "run")
    return search_run(
        opened,
        opened.open_data(arguments.data),
        query,
        split=arguments.split or "all",
        captions=arguments.captions,
        report=say,
        **picked(arguments, *_OPTIONS),
    )


def _search_index(arguments: argparse.Namespace, query: Query) -> list[Result]:
    from vsemb.errors import invalid_argument
    from vsemb.runs.indexing import open_indexed
    from vsemb.runs.searching import search_run

    index, opened, dataset = open_indexed(arguments.run, arguments.index_run, arguments.data)
    with closing(index):
        apply_options(arguments, opened, "run")
        holds = f"{index.source.kind}s of {', '.join(index.source.splits)}"
        for name, value in (("split", arguments.split), ("captions", arguments.captions or None)):
            if value is not None:
                fix = "Search the run, or make an index of what is wanted."
                raise invalid_argument(name, value, f"none, since the index holds {holds}", fix)
        return search_run(opened, dataset, query, index=index, report=say, **picked(arguments, *_OPTIONS))

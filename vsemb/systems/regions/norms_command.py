"""`vsemb analyze norms`: the words and regions with the largest embeddings, and the words with the smallest.

The norm of a word is the mean norm of its vectors over its places in the captions of a split.
"""

from __future__ import annotations

import argparse

from vsemb.commands import table
from vsemb.systems.regions import search_command
from vsemb.systems.regions.search_command import check_files, regions_table

SUMMARY = "norms of words and regions"


def configure(parser: argparse._ActionsContainer) -> None:
    """Adds the analysis' options."""
    parser.add_argument("-k", type=int, default=40, metavar="N", help="words per list, and regions (%(default)s)")
    parser.add_argument(
        "--min-count", type=int, default=5, metavar="N", help="leave rarer words of the split out (%(default)s)"
    )
    search_command.configure(parser)


def run(arguments: argparse.Namespace) -> None:
    """Measures and prints."""
    from vsemb.errors import invalid_argument, printable
    from vsemb.files import write_json
    from vsemb.runs.pictures import decimals, save_picture
    from vsemb.runs.run import Run
    from vsemb.systems.regions.norms import measure_norms
    from vsemb.systems.regions.region_search import region_sheet
    from vsemb.systems.regions.run import require_regions

    if len(arguments.runs) > 1:
        raise invalid_argument("run", arguments.runs[1], "one run for norms")
    check_files(arguments)
    opened = Run.open(arguments.runs[0], "retrieval")
    require_regions(opened)
    dataset = opened.open_data(arguments.data)
    found = measure_norms(
        opened,
        dataset,
        arguments.split,
        k=arguments.k,
        min_count=arguments.min_count,
        every=arguments.all_regions,
        parts=arguments.parts,
    )
    digits = decimals(word.norm for word in found.largest)
    words = [
        [[f"{word.norm:.{digits}f}", word.word, str(word.count)] for word in side]
        for side in (found.smallest, found.largest)
    ]
    rows = [[*low, *high] for low, high in zip(*words, strict=True)]
    print(table(["smallest", "word", "places", "largest", "word", "places"], rows, text=(1, 4)))
    print(f"\n{regions_table(found.regions, 'norm')}")
    if arguments.out is not None and found.regions:
        save_picture(region_sheet(dataset, found.regions), arguments.out)
        print(f"\n{printable(arguments.out)}")
    if arguments.json:
        write_json(arguments.json, {"split": arguments.split, **found.to_json()})

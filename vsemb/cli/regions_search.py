"""Find the regions of a dataset's images that fit a few words best.

For runs whose images are sets of regions, such as those of the recipe dvsa. A region is scored by all words
together, and an image is found by its best region, or with --all-regions by several. --out draws a sheet of
what was found.
"""

from __future__ import annotations

import argparse
import sys

EXAMPLE = """  vsemb regions-search runs/dvsa "red bus"
  vsemb regions-search runs/dvsa "a dog in the snow" --data data/flickr8k --split test -k 20 --out dogs.png"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", metavar="RUN", help="the run directory")
    parser.add_argument("text", metavar="TEXT", help="what to look for, in a few words")
    parser.add_argument("--data", help="the dataset to search (the one the run was trained on)")
    parser.add_argument("--split", default="all", help="the split to search, or all (%(default)s)")
    parser.add_argument("-k", type=int, default=10, metavar="N", help="regions to show (%(default)s)")
    add_choice(parser)
    parser.add_argument("--out", metavar="FILE", help="draw the regions: a .png or .jpg file")
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE as JSON")


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that say which regions may be found."""
    parser.add_argument(
        "--all-regions", action="store_true", help="let an image be found by several of its regions"
    )
    parser.add_argument("--parts", action="store_true", help="leave whole images out")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb.cli.tables import printable, regions_table
    from vsemb.data.store import Dataset
    from vsemb.files import write_json
    from vsemb.recipes.pictures import check_picture_path, save_picture
    from vsemb.recipes.region_search import region_sheet, search_regions
    from vsemb.recipes.run import Run

    if arguments.out is not None:
        check_picture_path(arguments.out)
    opened = Run.open(arguments.run)
    opened.need_regions()
    dataset = Dataset.open(arguments.data or opened.data_path)
    found = search_regions(
        opened,
        dataset,
        arguments.text,
        k=arguments.k,
        split=arguments.split,
        every=arguments.all_regions,
        parts=arguments.parts,
        report=lambda line: print(line, file=sys.stderr),
    )
    print(regions_table(found, "score"))
    if arguments.out is not None and found:
        save_picture(region_sheet(dataset, found), arguments.out)
        print(f"\n{printable(arguments.out)}")
    if arguments.json:
        write_json(
            arguments.json,
            {"query": printable(arguments.text), "results": [region.to_json() for region in found]},
        )
    return 0

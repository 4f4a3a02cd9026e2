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
    add_files(parser)


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that say which regions may be found."""
    parser.add_argument("--all-regions", action="store_true", help="let an image be found by several of its regions")
    parser.add_argument("--parts", action="store_true", help="leave whole images out")


def add_files(parser: argparse.ArgumentParser) -> None:
    """Adds the files that regions are written to."""
    parser.add_argument("--out", metavar="FILE", help="draw the regions, 400 at most: a .png or .jpg file")
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE as JSON")


def check_files(arguments: argparse.Namespace) -> None:
    """Refuses, before any work, a picture that has no known ending or that the JSON would replace."""
    import os

    from vsemb.errors import invalid_argument
    from vsemb.runs.pictures import check_picture_path

    if arguments.out is None:
        return
    check_picture_path(arguments.out)
    if arguments.json and os.path.realpath(arguments.json) == os.path.realpath(arguments.out):
        raise invalid_argument("json", arguments.json, "another file than the picture, which it would replace")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb.cli.tables import regions_table
    from vsemb.data.store import Dataset
    from vsemb.errors import printable
    from vsemb.files import write_json
    from vsemb.runs.pictures import save_picture
    from vsemb.runs.run import Run
    from vsemb.systems.regions.region_search import region_sheet, search_regions

    check_files(arguments)
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

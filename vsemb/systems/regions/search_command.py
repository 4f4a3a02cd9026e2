"""`vsemb search --regions`: the regions of a dataset's images that fit a few words best."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vsemb.commands import check_image_files, say, table

if TYPE_CHECKING:
    from vsemb.systems.regions.region_search import FoundRegion

SUMMARY = "find regions of images by a text, for a run on regions"


def configure(parser: argparse._ActionsContainer) -> None:
    """Adds the mode's options."""
    parser.add_argument("--all-regions", action="store_true", help="let an image be found by several of its regions")
    parser.add_argument("--parts", action="store_true", help="leave whole images out")
    parser.add_argument("--out", metavar="FILE", help="draw the regions, 400 at most: a .png or .jpg file")


def check_files(arguments: argparse.Namespace, images: Sequence[str] = ()) -> None:
    """Refuses, before any work, a picture without a known ending, or one file in the place of another.

    Args:
        arguments: with `out` and `json`.
        images: files that are read.

    Raises:
        InvalidArgumentError: naming the option.
    """
    from vsemb.runs.pictures import check_picture_path

    check_image_files(images, out=arguments.out, json=arguments.json)
    if arguments.out is not None:
        check_picture_path(arguments.out)


def run(arguments: argparse.Namespace) -> None:
    """Searches and prints."""
    from vsemb.errors import invalid_argument, printable
    from vsemb.files import write_json
    from vsemb.runs.pictures import save_picture
    from vsemb.runs.run import Run
    from vsemb.systems.regions.region_search import region_sheet, search_regions
    from vsemb.systems.regions.run import require_regions

    if arguments.text is None:
        raise invalid_argument("text", None, "a few words to look for")
    check_files(arguments)
    opened = Run.open(arguments.run, "retrieval")
    require_regions(opened)
    dataset = opened.open_data(arguments.data)
    found = search_regions(
        opened,
        dataset,
        arguments.text,
        k=arguments.k,
        split=arguments.split or "all",
        every=arguments.all_regions,
        parts=arguments.parts,
        report=say,
    )
    print(regions_table(found, "score"))
    if arguments.out is not None and found:
        save_picture(region_sheet(dataset, found), arguments.out)
        print(f"\n{printable(arguments.out)}")
    if arguments.json:
        results = [region.to_json() for region in found]
        write_json(arguments.json, {"query": printable(arguments.text), "results": results})


def regions_table(found: Sequence[FoundRegion], score: str) -> str:
    """Lays out regions that were found, with what they were found by."""
    from vsemb.runs.pictures import decimals

    digits = decimals(region.score for region in found)
    rows = [
        [
            str(region.rank),
            f"{region.score:.{digits}f}",
            region.key,
            region.split,
            str(region.region),
            "{} {} {} {}".format(*region.box),
        ]
        for region in found
    ]
    return table(["rank", score, "key", "split", "region", "box (x y w h)"], rows, text=(2, 3, 5))

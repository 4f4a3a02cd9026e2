"""Commands on regions: `vsemb align`, and modes of `search`, `analyze` and `evaluate`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vsemb.commands import Command, Mode, check_image_files, open_keys, picked
from vsemb.console import say
from vsemb.printing import save_json, table

if TYPE_CHECKING:
    from PIL import Image


_BOXES = "detector results for this image, in COCO format (pixels)"


def check_files(arguments: argparse.Namespace, images: Sequence[str] = ()) -> None:
    """Check before any work that output files have valid endings and do not overwrite other files.

    Args:
        arguments: parsed arguments with `out` and `json`.
        images: input files.

    Raises:
        InvalidArgumentError: if a path is invalid; the error names the option.
    """
    from vsemb.runs.pictures import check_picture_path

    check_image_files(images, out=arguments.out, json=arguments.json)
    if arguments.out is not None:
        check_picture_path(arguments.out)


def save_files(arguments: argparse.Namespace, values: Any, draw: Callable[[], Image.Image] | None) -> None:
    """Write the picture and the JSON file of a command.

    Args:
        arguments: parsed arguments with `out` and `json`.
        values: content of the JSON file.
        draw: returns the picture; None without a picture.
    """
    from vsemb.errors import printable
    from vsemb.runs.pictures import save_picture

    if arguments.out is not None and draw is not None:
        save_picture(draw(), arguments.out)
        print(f"\n{printable(arguments.out)}")
    save_json(arguments, values)


def box_text(box: Sequence[float]) -> str:
    """Return a box as text for tables."""
    return " ".join(map(str, box))


def _configure_align(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run directory")
    parser.add_argument("image", metavar="IMAGE", help="image file, or key of an image in the dataset")
    parser.add_argument("sentence", metavar="SENTENCE", help="a sentence about the image")
    parser.add_argument("--out", metavar="FILE", help="draw the alignment: a .png or .jpg file")
    affinity = "bonus for neighbouring words on one region, added to the score (%(default)s)"
    parser.add_argument("--affinity", type=float, default=0.0, metavar="B", help=affinity)
    fade = "draw words below this share of the best score grey (%(default)s)"
    parser.add_argument("--fade", type=float, default=0.25, metavar="SHARE", help=fade)
    parser.add_argument("--data", help="dataset of image keys (the training dataset)")
    parser.add_argument("--boxes", metavar="FILE", help=_BOXES)
    parser.add_argument("--json", metavar="FILE", help="also write the result as JSON to FILE")


def _align(arguments: argparse.Namespace) -> None:
    """Align the words of a sentence with the regions of an image that they describe.

    The command needs a run on regions, such as one of the recipe dvsa. Each word gets its best region. With
    --affinity, neighbouring words tend to share a region, so phrases get longer. --out draws the image with its boxes,
    and the words in the colours of their boxes; words with low scores are grey. IMAGE is a file, or the key of an image
    of the dataset.

    Examples:
      vsemb align runs/dvsa dog.jpg "a brown dog chases a child" --out aligned.png
      vsemb align runs/dvsa girl.jpg "a girl in a pink dress" --affinity 0.5 --json aligned.json
    """
    from vsemb.parts import NonNegative, require
    from vsemb.runs.pictures import decimals
    from vsemb.runs.run import Run
    from vsemb.systems.regions.aligning import align_image

    require("fade", arguments.fade, NonNegative)
    check_files(arguments, [arguments.image])
    opened = Run.open(arguments.run, "retrieval")
    dataset = open_keys(opened, arguments.data, [arguments.image])
    options = picked(arguments, "affinity", "boxes")
    found = align_image(opened, arguments.image, arguments.sentence, dataset, **options, report=say)
    digits = decimals(found.scores)
    rows = []
    for phrase in found.phrases:
        scores = " ".join(f"{score:.{digits}f}" for score in phrase.scores)
        where = [str(phrase.region), box_text(phrase.box)]
        rows.append([" ".join(phrase.words), *where, f"{phrase.score:.{digits}f}", scores])
    print(table(["phrase", "region", "box (x y w h)", "score", "of its words"], rows, text=(0, 2, 4)))
    save_files(arguments, found.to_json(), lambda: found.drawn(arguments.fade))


ALIGN = Command(_align, _configure_align)


def _configure_search(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--all-regions", action="store_true", help="allow several regions per image")
    parser.add_argument("--parts", action="store_true", help="exclude whole images")


def _search(arguments: argparse.Namespace) -> None:
    """Find regions of images by a text, for a run on regions.

    The score of a region is the sum over all words. Each image is found by its best region, or with --all-regions by
    several regions. --out draws a contact sheet of the regions.
    """
    from vsemb.errors import invalid_argument, printable
    from vsemb.runs.run import Run
    from vsemb.systems.regions.region_search import region_sheet, regions_table, search_regions

    if arguments.text is None:
        raise invalid_argument("text", None, "a few words to look for")
    check_files(arguments)
    opened = Run.open(arguments.run, "retrieval")
    dataset = opened.open_data(arguments.data)
    found = search_regions(
        opened,
        dataset,
        arguments.text,
        split=arguments.split or "all",
        every=arguments.all_regions,
        report=say,
        **picked(arguments, "k", "parts"),
    )
    print(regions_table(found, "score"))
    values = {"query": printable(arguments.text), "results": [region.to_json() for region in found]}
    save_files(arguments, values, (lambda: region_sheet(dataset, found)) if found else None)


SEARCH = Mode(_search, _configure_search)

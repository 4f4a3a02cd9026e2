"""Align the words of a sentence with the regions of an image that they describe.

For runs on regions, such as those of the recipe dvsa. Each word gets the region that fits it best. With --affinity,
neighbouring words tend to share a region, so that phrases get longer. --out draws the image with the boxes, and the
words in their colours; words with low scores are grey. IMAGE is a file, or the key of an image of the dataset.
"""

from __future__ import annotations

import argparse

from vsemb.commands import open_keys, say, table
from vsemb.systems.regions.search_command import check_files

EXAMPLE = """  vsemb align runs/dvsa dog.jpg "a brown dog chases a child" --out aligned.png
  vsemb align runs/dvsa girl.jpg "a girl in a pink dress" --affinity 0.5 --json aligned.json"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", metavar="RUN", help="the run directory")
    parser.add_argument("image", metavar="IMAGE", help="an image file, or the key of a dataset's image")
    parser.add_argument("sentence", metavar="SENTENCE", help="a sentence about the image")
    parser.add_argument("--out", metavar="FILE", help="draw it: a .png or .jpg file")
    parser.add_argument(
        "--affinity",
        type=float,
        default=0.0,
        metavar="B",
        help="bonus for neighbouring words on one region, in units of scores (%(default)s)",
    )
    parser.add_argument(
        "--fade",
        type=float,
        metavar="SHARE",
        help="words below this share of the best score are grey (0.25)",
    )
    parser.add_argument("--data", help="the dataset whose keys IMAGE may name (the training's)")
    parser.add_argument(
        "--boxes",
        metavar="FILE",
        help="a detector's results for this image, in COCO's format, in pixels",
    )
    parser.add_argument("--json", metavar="FILE", help="also write the result to FILE as JSON")


def run(arguments: argparse.Namespace) -> None:
    """Runs the command."""
    import math

    from vsemb.errors import invalid_argument, printable
    from vsemb.files import write_json
    from vsemb.runs.pictures import decimals, save_picture
    from vsemb.runs.run import Run
    from vsemb.systems.regions.aligning import align_image
    from vsemb.systems.regions.drawing import FADE

    fade = FADE if arguments.fade is None else arguments.fade
    if not 0 <= fade < math.inf:
        raise invalid_argument("fade", fade, "a number >= 0")
    check_files(arguments, [arguments.image])
    opened = Run.open(arguments.run, "retrieval")
    found = align_image(
        opened,
        arguments.image,
        arguments.sentence,
        open_keys(opened, arguments.data, [arguments.image]),
        affinity=arguments.affinity,
        boxes=arguments.boxes,
        report=say,
    )
    digits = decimals(found.scores)
    rows = [
        [
            " ".join(phrase.words),
            str(phrase.region),
            "{} {} {} {}".format(*phrase.box),
            f"{phrase.score:.{digits}f}",
            " ".join(f"{score:.{digits}f}" for score in phrase.scores),
        ]
        for phrase in found.phrases
    ]
    print(table(["phrase", "region", "box (x y w h)", "score", "of its words"], rows, text=(0, 2, 4)))
    if arguments.out is not None:
        save_picture(found.drawn(fade), arguments.out)
        print(f"\n{printable(arguments.out)}")
    if arguments.json:
        write_json(arguments.json, found.to_json())

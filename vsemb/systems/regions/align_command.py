"""Show which words of a sentence describe which regions of an image.

For runs whose images are sets of regions, such as those of the recipe dvsa. Each word has the region that
fits it best; with --affinity, words in a row like to share one, so that phrases get longer. --out draws the
image with the boxes, and its words in their colours; words that score low are grey. IMAGE is a file, or the
key of an image of the dataset.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vsemb.systems.regions.search_command import check_files

if TYPE_CHECKING:
    from vsemb.data.store import Dataset
    from vsemb.runs.stored_run import StoredRun

EXAMPLE = """  vsemb align runs/dvsa dog.jpg "a brown dog chases a child" --out aligned.png
  vsemb align runs/dvsa girl.jpg "a girl in a pink dress" --affinity 0.5 --json aligned.json"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", metavar="RUN", help="the run directory")
    parser.add_argument("image", metavar="IMAGE", help="an image file, or the key of a dataset's image")
    parser.add_argument("sentence", metavar="SENTENCE", help="what is said of the image")
    parser.add_argument("--out", metavar="FILE", help="draw it: a .png or .jpg file")
    parser.add_argument(
        "--affinity",
        type=float,
        default=0.0,
        metavar="B",
        help="what two neighbouring words on one region are worth, in units of their scores; `vsemb evaluate "
        "--pointing` tries several (%(default)s: each word by itself)",
    )
    parser.add_argument(
        "--fade",
        type=float,
        metavar="SHARE",
        help="words that score less than this share of the best are grey and draw no box (0.25)",
    )
    parser.add_argument("--data", help="the dataset whose keys IMAGE may name (the one the run was trained on)")
    parser.add_argument(
        "--boxes",
        metavar="FILE",
        help="for runs on a detector's regions: its results for this image, in COCO's format, in pixels",
    )
    parser.add_argument("--json", metavar="FILE", help="also write the result to FILE as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    import math

    from vsemb.cli.tables import table
    from vsemb.errors import invalid_argument, printable
    from vsemb.files import write_json
    from vsemb.runs.pictures import decimals, save_picture
    from vsemb.runs.run import Run
    from vsemb.systems.regions.aligning import align_image
    from vsemb.systems.regions.drawing import FADE

    fade = FADE if arguments.fade is None else arguments.fade
    if not 0 <= fade < math.inf:
        raise invalid_argument("fade", fade, "a number >= 0")
    check_image_files([arguments.image], out=arguments.out, json=arguments.json)
    check_files(arguments)
    opened = Run.open(arguments.run)
    found = align_image(
        opened,
        arguments.image,
        arguments.sentence,
        open_keys(opened, arguments.data, [arguments.image]),
        affinity=arguments.affinity,
        boxes=arguments.boxes,
        report=lambda line: print(line, file=sys.stderr),
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
    return 0


def check_image_files(images: Sequence[str], **written: str | None) -> None:
    """Refuses to write a picture or JSON over an image that it is of.

    Args:
        images: what was read.
        **written: option -> the file that is written, or None.
    """
    import os

    from vsemb.errors import invalid_argument

    read = {os.path.realpath(image) for image in images}
    for name, path in written.items():
        if path is not None and os.path.realpath(path) in read:
            raise invalid_argument(name, path, "another file than the image, which it would replace")


def open_keys(opened: StoredRun, data: str | None, images: Sequence[str]) -> Dataset | None:
    """Opens the dataset whose keys images may name; None where files need none.

    Args:
        opened: the run.
        data: the dataset that was named; None for the run's.
        images: files or keys. One that is a file is enough to go on without a dataset.
    """
    import os

    from vsemb.data.store import Dataset
    from vsemb.errors import DataError, printable

    try:
        return Dataset.open(data or opened.data_path)
    except DataError as error:
        # Image files need no dataset; only one that was asked for is missed.
        if data:
            raise
        if not any(map(os.path.isfile, images)):
            raise DataError(
                f"There is no image file {printable(images[0])!r}, and no dataset whose key it may be "
                f"(name one with --data): {error}"
            ) from error
    return None

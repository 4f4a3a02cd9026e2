"""Write what is to be seen in each region of an image.

For runs of the recipe multimodal-rnn-regions. Each region gets a caption; of those that overlap or say the
same, the likeliest by its words is kept. --out draws the image with the boxes, and their captions beside it.
IMAGE is a file, or the key of an image of the dataset.
"""

from __future__ import annotations

import argparse
import sys

from vsemb.systems.regions.search_command import check_files

EXAMPLE = """  vsemb caption-regions runs/regions dog.jpg --out regions.png
  vsemb caption-regions runs/regions street.jpg --most 8 --parts --json regions.json
  vsemb caption-regions runs/regions street.jpg --most 20 --overlap 0.2"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", metavar="RUN", help="the run directory")
    parser.add_argument("image", metavar="IMAGE", help="an image file, or the key of a dataset's image")
    parser.add_argument("--out", metavar="FILE", help="draw it: a .png or .jpg file")
    parser.add_argument("--most", type=int, default=5, metavar="N", help="captions to show (%(default)s)")
    parser.add_argument(
        "--beam", type=int, metavar="B", help="hypotheses kept while a caption is looked for (the recipe's)"
    )
    parser.add_argument("--parts", action="store_true", help="leave the whole image out")
    parser.add_argument(
        "--overlap",
        type=float,
        default=0.5,
        metavar="SHARE",
        help="leave out a region whose intersection over union with a better one is larger (%(default)s)",
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
    from vsemb.cli.tables import table
    from vsemb.errors import printable
    from vsemb.files import write_json
    from vsemb.runs.pictures import save_picture
    from vsemb.systems.captions.caption_run import CaptionRun
    from vsemb.systems.captions.region_captions import caption_regions
    from vsemb.systems.regions.align_command import check_image_files, open_keys

    check_image_files([arguments.image], out=arguments.out, json=arguments.json)
    check_files(arguments)
    opened = CaptionRun.open(arguments.run)
    found = caption_regions(
        opened,
        arguments.image,
        open_keys(opened, arguments.data, [arguments.image]),
        most=arguments.most,
        beam=arguments.beam,
        parts=arguments.parts,
        overlap=arguments.overlap,
        boxes=arguments.boxes,
        report=lambda line: print(line, file=sys.stderr),
    )
    rows = [
        [
            printable(caption.text),
            f"{caption.log_prob:.2f}",
            f"{caption.score:.2f}",
            str(caption.region),
            "{} {} {} {}".format(*caption.box),
        ]
        for caption in found.captions
    ]
    print(table(["caption", "log-prob", "a word", "region", "box (x y w h)"], rows, text=(0, 4)))
    if arguments.out is not None:
        save_picture(found.drawn(), arguments.out)
        print(f"\n{printable(arguments.out)}")
    if arguments.json:
        write_json(arguments.json, found.to_json())
    return 0

"""`vsemb caption --regions`: a caption of each region of an image."""

from __future__ import annotations

import argparse

from vsemb.commands import open_keys, say, table
from vsemb.systems.regions.search_command import check_files

SUMMARY = "caption each region of one image"
USES = ("beam",)


def configure(parser: argparse._ActionsContainer) -> None:
    """Adds the mode's options."""
    parser.add_argument("--out", metavar="FILE", help="draw the image with boxes: a .png or .jpg file")
    parser.add_argument("--most", type=int, default=5, metavar="N", help="captions to show (%(default)s)")
    parser.add_argument("--parts", action="store_true", help="leave the whole image out")
    parser.add_argument(
        "--overlap",
        type=float,
        default=0.5,
        metavar="SHARE",
        help="highest intersection over union of regions that are kept (%(default)s)",
    )
    parser.add_argument(
        "--boxes", metavar="FILE", help="a detector's results for this image, in COCO's format, in pixels"
    )


def run(arguments: argparse.Namespace) -> None:
    """Captions, prints and draws."""
    from vsemb.errors import invalid_argument, printable
    from vsemb.files import write_json
    from vsemb.runs.pictures import save_picture
    from vsemb.systems.captions.captioning import open_captioning_run
    from vsemb.systems.captions.region_captions import caption_regions

    if len(arguments.images) > 1:
        raise invalid_argument("images", arguments.images[1], "one image with --regions")
    check_files(arguments, arguments.images)
    opened = open_captioning_run(arguments.run)
    found = caption_regions(
        opened,
        arguments.images[0],
        open_keys(opened, arguments.data, arguments.images),
        most=arguments.most,
        beam=arguments.beam,
        parts=arguments.parts,
        overlap=arguments.overlap,
        boxes=arguments.boxes,
        report=say,
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
    print(table(["caption", "log-prob", "per word", "region", "box (x y w h)"], rows, text=(0, 4)))
    if arguments.out is not None:
        save_picture(found.drawn(), arguments.out)
        print(f"\n{printable(arguments.out)}")
    if arguments.json:
        write_json(arguments.json, found.to_json())

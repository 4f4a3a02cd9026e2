"""Commands of captions: `vsemb caption`, options of `demo`, `export` and `report`, modes of `evaluate`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from vsemb.commands import Command, Mode, Modes, Options, check_image_files, open_keys, picked
from vsemb.console import say
from vsemb.printing import save_json, say_images, table
from vsemb.systems.regions.commands import box_text, check_files, save_files

if TYPE_CHECKING:
    from vsemb.runs.run import Run

_SEARCH = ("beam", "n_best", "length_penalty", "max_words", "candidates")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run directory")
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="image files, or keys of images in the dataset")
    parser.add_argument("--data", help="dataset of image keys (the training dataset)")
    parser.add_argument("--json", metavar="FILE", help="also write the captions as JSON to FILE")
    Modes(parser, "caption", Mode(_caption_images, _configure_images))


def _configure_images(parser: argparse._ActionsContainer) -> None:
    _configure_search(parser)
    draws = parser.add_argument_group("sampling in place of beam search")
    draws.add_argument("--sample", metavar="HOW", help="greedy, random, top-k=5 or top-p=0.9 (beam search)")
    draws.add_argument("--temperature", type=float, default=1.0, metavar="T", help="sampling temperature (%(default)s)")
    draws.add_argument("--seed", type=int, default=0, help="random seed (%(default)s)")


def _configure_search(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--beam", type=int, metavar="N", help="beam width (the recipe's)")
    parser.add_argument("--n-best", type=int, metavar="N", help="captions per image (5, at most the beam)")
    penalty = "divide log-probabilities by length to the power P (the recipe's)"
    parser.add_argument("--length-penalty", type=float, metavar="P", help=penalty)
    parser.add_argument("--max-words", type=int, metavar="N", help="maximum words per caption (the recipe's)")
    candidates = "candidate captions of sc-nlm (the recipe's)"
    parser.add_argument("--candidates", type=int, metavar="N", help=candidates)


def _caption(arguments: argparse.Namespace) -> int | None:
    """Write captions of images, most probable first, with the logarithm of their probability.

    RUN is a run of multimodal-rnn or multimodal-rnn-regions, which write word by word, or of sc-nlm, which writes many
    candidates and returns the best. IMAGE is a file, or the key of an image of the dataset.

    Examples:
      vsemb caption runs/captions dog.jpg beach.jpg
      vsemb caption runs/captions dog.jpg --beam 20 --n-best 10 --json captions.json
      vsemb caption runs/captions dog.jpg --sample top-p=0.9 --seed 7
      vsemb caption runs/sc-nlm dog.jpg --n-best 1
      vsemb caption runs/regions street.jpg --regions --most 8 --parts --out regions.png
    """
    return arguments.modes.run(arguments)


CAPTION = Command(_caption, _configure)


def _caption_images(arguments: argparse.Namespace) -> int:
    from vsemb.errors import printable
    from vsemb.systems.captions.captioning import CaptionOptions, caption_images, open_captioning_run

    check_image_files(arguments.images, json=arguments.json)
    opened = open_captioning_run(arguments.run)
    options = CaptionOptions(**picked(arguments, *_SEARCH, "sample", "temperature", "seed"))
    dataset = open_keys(opened, arguments.data, arguments.images)
    found = caption_images(opened, arguments.images, dataset, options)
    written = [[(printable(text), f"{log_prob:.2f}") for text, log_prob in each.captions] for each in found]
    status = say_images("caption", found, ("caption", "log-prob"), written)
    save_json(arguments, {"images": [result.to_json() for result in found]})
    return status


def _configure_regions(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--out", metavar="FILE", help="draw the image with boxes: a .png or .jpg file")
    parser.add_argument("--most", type=int, default=5, metavar="N", help="captions to show (%(default)s)")
    parser.add_argument("--parts", action="store_true", help="exclude the whole image")
    overlap = "maximum overlap (IoU) of regions (%(default)s)"
    parser.add_argument("--overlap", type=float, default=0.5, metavar="SHARE", help=overlap)
    boxes = "detector results for this image, in COCO format (pixels)"
    parser.add_argument("--boxes", metavar="FILE", help=boxes)


def _caption_regions(arguments: argparse.Namespace) -> None:
    """Caption each region of one image.

    RUN is a run of multimodal-rnn-regions. Of regions with overlapping boxes or equal captions, the one with the
    highest log-probability per word is kept. --out draws the image with the boxes, and their captions beside it.
    """
    from vsemb.errors import invalid_argument, printable
    from vsemb.systems.captions.captioning import open_captioning_run
    from vsemb.systems.captions.region_captions import caption_regions

    if len(arguments.images) > 1:
        raise invalid_argument("images", arguments.images[1], "one image with --regions")
    check_files(arguments, arguments.images)
    opened = open_captioning_run(arguments.run)
    dataset = open_keys(opened, arguments.data, arguments.images)
    options = picked(arguments, "most", "beam", "parts", "overlap", "boxes")
    found = caption_regions(opened, arguments.images[0], dataset, report=say, **options)
    rows = []
    for each in found.captions:
        numbers = [f"{each.log_prob:.2f}", f"{each.score:.2f}", str(each.region)]
        rows.append([printable(each.text), *numbers, box_text(each.box)])
    print(table(["caption", "log-prob", "per word", "region", "box (x y w h)"], rows, text=(0, 4)))
    save_files(arguments, found.to_json(), found.drawn)


REGIONS = Mode(_caption_regions, _configure_regions, uses=("beam",))


def _configure_demo(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--captions", metavar="RUN", help="caption run, to caption query images")


def _add_captioner(arguments: argparse.Namespace, run: Run) -> dict[str, Any]:
    """Return the run of `--captions` as argument `captioning`."""
    if arguments.captions is None:
        return {}
    from vsemb.systems.captions.captioning import open_captioning_run

    return {"captioning": open_captioning_run(arguments.captions)}


DEMO = Options(_configure_demo, _add_captioner)

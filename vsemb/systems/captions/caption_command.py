"""Write captions of images: sentences, the likeliest first, with the logarithm of their probability.

For runs of the recipes multimodal-rnn and multimodal-rnn-regions, which write word by word, and sc-nlm, which writes
many candidates and returns the best. IMAGE is a file, or the key of an image of the dataset.

--regions captions each region of one image, for runs of multimodal-rnn-regions. Of regions that overlap or say the
same, the likeliest by its words is kept. --out draws the image with the boxes, and their captions beside it.
"""

from __future__ import annotations

import argparse

from vsemb.commands import add_modes, check_image_files, open_keys, say, table

EXAMPLE = """  vsemb caption runs/captions dog.jpg beach.jpg
  vsemb caption runs/captions dog.jpg --beam 20 --n-best 10 --json captions.json
  vsemb caption runs/captions dog.jpg --sample top-p=0.9 --seed 7
  vsemb caption runs/sc-nlm dog.jpg --n-best 1
  vsemb caption runs/regions street.jpg --regions --most 8 --parts --out regions.png"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", metavar="RUN", help="the run directory")
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="image files, or keys of a dataset's images")
    parser.add_argument("--data", help="the dataset whose keys IMAGE may name (the training's)")
    parser.add_argument("--json", metavar="FILE", help="also write the captions to FILE as JSON")
    add_modes(parser, "caption", own=_configure_images)


def _configure_images(parser: argparse._ActionsContainer) -> None:
    add_search(parser)
    draws = parser.add_argument_group("drawing words in place of a beam search")
    draws.add_argument("--sample", metavar="HOW", help="greedy, random, top-k=5 or top-p=0.9 (beam search)")
    draws.add_argument("--temperature", type=float, default=1.0, metavar="T", help="of the draws (%(default)s)")
    draws.add_argument("--seed", type=int, default=0, help="of the draws (%(default)s)")


def add_search(parser: argparse._ActionsContainer) -> None:
    """Adds the arguments of the beam search, to a parser or a group of one."""
    parser.add_argument("--beam", type=int, metavar="N", help="hypotheses kept (the recipe's)")
    parser.add_argument("--n-best", type=int, metavar="N", help="captions per image (5, at most the beam)")
    parser.add_argument(
        "--length-penalty",
        type=float,
        metavar="P",
        help="divides log-probabilities by length to this power (the recipe's)",
    )
    parser.add_argument("--max-words", type=int, metavar="N", help="longest caption (the recipe's)")
    parser.add_argument(
        "--candidates", type=int, metavar="N", help="for sc-nlm: captions to choose from (the recipe's)"
    )


def run(arguments: argparse.Namespace) -> int | None:
    """Runs the command."""
    name = arguments.modes.chosen(arguments)
    arguments.modes.check(arguments, name or "")
    return _caption(arguments) if name is None else arguments.modes.modules[name].run(arguments)


def _caption(arguments: argparse.Namespace) -> int:
    from vsemb.errors import printable
    from vsemb.files import write_json
    from vsemb.systems.captions.captioning import CaptionOptions, caption_images, open_captioning_run

    check_image_files(arguments.images, json=arguments.json)
    opened = open_captioning_run(arguments.run)
    options = CaptionOptions(
        beam=arguments.beam,
        n_best=arguments.n_best,
        length_penalty=arguments.length_penalty,
        max_words=arguments.max_words,
        sample=arguments.sample,
        temperature=arguments.temperature,
        seed=arguments.seed,
        candidates=arguments.candidates,
    )
    dataset = open_keys(opened, arguments.data, arguments.images)
    found = caption_images(opened, arguments.images, dataset, options)
    rows = [
        ["" if place else printable(result.image), printable(text), f"{log_prob:.2f}"]
        for result in found
        for place, (text, log_prob) in enumerate(result.captions)
    ]
    if rows:
        print(table(["image", "caption", "log-prob"], rows, text=(0, 1)))
    errors = [result.error for result in found if result.error is not None]
    for error in errors:
        say(f"vsemb caption: {error}")
    if arguments.json:
        write_json(arguments.json, {"images": [result.to_json() for result in found]})
    return 1 if errors else 0

"""Commands of captions: `vsemb caption`, options of `demo`, `export` and `report`, modes of `evaluate`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vsemb.commands import Command, Measured, Mode, Modes, Options, check_image_files, open_keys, picked
from vsemb.console import say
from vsemb.printing import save_json, say_images, table
from vsemb.systems.regions.commands import box_text, check_files, save_files

if TYPE_CHECKING:
    from vsemb.runs.run import Run
    from vsemb.systems.captions.caption_measure import CaptionTable
    from vsemb.systems.captions.validation import PerplexityRow

_SEARCH = ("beam", "n_best", "length_penalty", "max_words", "candidates")
_RECIPES = ("vsemb.systems.captions.task:NextWordTask",)


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


def _configure_export(parser: argparse._ActionsContainer) -> None:
    _configure_search(parser.add_argument_group("runs that write captions"))


def _fix_search(arguments: argparse.Namespace, run: Run) -> dict[str, Any]:
    """Return the options of the search as argument `options`.

    Raises:
        InvalidArgumentError: if the run writes no captions and options are given, or writes captions and a precision
            is given.
    """
    from vsemb.errors import invalid_argument
    from vsemb.systems.captions.captioner import CaptionOptions
    from vsemb.systems.captions.task import NextWordTask

    given = {name: value for name, value in picked(arguments, *_SEARCH).items() if value is not None}
    writes = isinstance(run.recipe, NextWordTask)
    if writes and arguments.precision is not None:
        raise invalid_argument("--precision", arguments.precision, "omitted for a run that writes captions")
    if not given:
        return {}
    if not writes:
        name = next(iter(given))
        raise invalid_argument(f"--{name.replace('_', '-')}", given[name], "omitted for a run that writes no captions")
    return {"options": CaptionOptions(**given)}


EXPORT = Options(_configure_export, _fix_search)


def _configure_report(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--limit", type=int, metavar="N", help="images to caption (all; 100 for slow captioners)")


def _limit(arguments: argparse.Namespace, run: Run) -> dict[str, Any]:
    return {} if arguments.limit is None else picked(arguments, "limit")


REPORT = Options(_configure_report, _limit)


def _configure_captions(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--beside", nargs="+", default=[], metavar="RUN", help="other runs to include in the table")
    parser.add_argument("--beam", type=int, metavar="N", help="beam width (the recipe's)")
    parser.add_argument("--length-penalty", type=float, metavar="P", help="see vsemb caption --help (the recipe's)")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N images (all)")
    parser.add_argument("--examples", type=int, default=0, metavar="N", help="images whose captions are printed (0)")
    parser.add_argument("--references", action="store_true", help="also score one reference caption against the others")
    clip = "also CLIPScore and RefCLIPScore, by this run's embeddings (none)"
    parser.add_argument("--clip-score", metavar="RUN", help=clip)
    parser.add_argument("--no-meteor", action="store_true", help="omit METEOR, which needs Java and time")


def _evaluate_captions(arguments: argparse.Namespace, opened: Run) -> Measured:
    """Measure BLEU, METEOR, ROUGE-L, CIDEr-D and novelty of generated captions."""
    from vsemb.errors import invalid_argument
    from vsemb.runs.run import Run
    from vsemb.systems.captions.caption_measure import measure_captions
    from vsemb.systems.captions.captioning import CaptionOptions, open_captioning_run

    if arguments.examples < 0:
        raise invalid_argument("examples", arguments.examples, "an integer >= 0")
    found = measure_captions(
        [open_captioning_run(path) for path in (arguments.run, *arguments.beside)],
        opened.open_data(arguments.data),
        arguments.split,
        options=CaptionOptions(**picked(arguments, "beam", "length_penalty")),
        meteor=not arguments.no_meteor,
        clip=None if arguments.clip_score is None else Run.open(arguments.clip_score),
        **picked(arguments, "limit", "references"),
    )
    examples = [_example(found, image) for image in range(min(arguments.examples, len(found.keys)))]
    return Measured("\n\n".join([captions_table(found), *examples]), found.to_json())


def captions_table(found: CaptionTable, unit: str = "images") -> str:
    """Format caption metrics as a table, in percent, one row per run or baseline, with notes below.

    Args:
        found: see `vsemb.systems.captions.caption_measure.measure_captions`.
        unit: name of the captioned items, such as `images`.
    """
    columns: dict[str, list[float | None]] = {
        **{f"B-{order}": [row.metrics.bleu[order - 1] for row in found.rows] for order in range(1, 5)},
        "METEOR": [row.metrics.meteor for row in found.rows],
        "ROUGE-L": [row.metrics.rouge_l for row in found.rows],
        "CIDEr": [row.metrics.cider for row in found.rows],
        "CLIP-S": [row.metrics.clip_score for row in found.rows],
        "RefCLIP-S": [row.metrics.ref_clip_score for row in found.rows],
        "true": [row.true for row in found.rows],
        "novel": [row.metrics.novelty for row in found.rows],
    }
    columns = {name: values for name, values in columns.items() if any(v is not None for v in values)}
    rows = [
        [
            row.name,
            *("" if values[number] is None else f"{values[number]:.1f}" for values in columns.values()),
            str(row.metrics.vocabulary),
            f"{row.metrics.words:.1f}",
        ]
        for number, row in enumerate(found.rows)
    ]
    header = [f"{found.split}: {len(found.keys)} {unit}", *columns, "vocabulary", "words"]
    lines = [table(header, rows)]
    known = found.rows[0].metrics.train_vocabulary
    if known is not None:
        lines.append(f"The training captions have {known:,} different words.")
    return "\n".join([*lines, *found.notes])


def _example(found: CaptionTable, image: int) -> str:
    """Format the captions of one image, each with its nearest training sentence."""
    from vsemb.errors import printable

    rows = []
    for row in found.rows:
        marks = {None: "", True: "  (true)", False: "  (not true)"}
        truth = None if row.truths is None else row.truths[image] is True
        rows.append(["", row.name, f"{row.captions[image] or '(none)'}{marks[truth]}"])
        nearest = found.nearest_sentence(row, image)
        if row.recipe is not None and nearest is not None:
            rows.append(["", "  nearest training sentence", nearest])
    rows.append(["", "a reference", found.references[image][0]])
    return printable(table([found.keys[image], "", ""], rows, text=(0, 1, 2)))


CAPTIONS = Mode(_evaluate_captions, _configure_captions, recipes=_RECIPES)


def _configure_region_captions(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--annotations", metavar="FILE", help="texts of regions (phrases of captions that name objects)"
    )
    parser.add_argument("--image-list", metavar="FILE", help="COCO annotations with names and sizes of the images")
    parser.add_argument("--alignment", metavar="RUN", help="dvsa run that ranks training snippets, as a baseline")


def _evaluate_region_captions(arguments: argparse.Namespace, opened: Run) -> Measured:
    """Measure captions of annotated regions, beside human agreement and a ranking baseline."""
    from vsemb.errors import invalid_argument
    from vsemb.runs.run import Run
    from vsemb.systems.captions.captioning import CaptionOptions, open_captioning_run
    from vsemb.systems.captions.region_measure import measure_region_captions
    from vsemb.systems.captions.region_texts import named_region_texts, read_region_texts

    if arguments.image_list is not None and arguments.annotations is None:
        raise invalid_argument("image-list", arguments.image_list, "omitted without --annotations")
    dataset = opened.open_data(arguments.data)
    part = dataset.split(arguments.split)
    texts = (
        named_region_texts(part)
        if arguments.annotations is None
        else read_region_texts(arguments.annotations, dataset, part, arguments.image_list)
    )
    found = measure_region_captions(
        [opened, *map(open_captioning_run, arguments.beside)],
        part,
        texts,
        options=CaptionOptions(**picked(arguments, "beam", "length_penalty")),
        alignment=None if arguments.alignment is None else Run.open(arguments.alignment),
        limit=arguments.limit,
        meteor=not arguments.no_meteor,
    )
    return Measured(captions_table(found, "regions"), found.to_json())


REGION_CAPTIONS = Mode(
    _evaluate_region_captions,
    _configure_region_captions,
    uses=("beside", "beam", "length_penalty", "limit", "no_meteor"),
    recipes=("vsemb.systems.captions.recipe:CaptionTask",),
)


def _evaluate_perplexity(arguments: argparse.Namespace, opened: Run) -> Measured:
    """Measure the perplexity of a split's captions."""
    from vsemb.errors import DataError
    from vsemb.runs.run import Run
    from vsemb.systems.captions.validation import difference_of, measure_perplexities

    runs = [opened, *map(Run.open, arguments.beside)]
    for run in runs:
        if not PERPLEXITY.measures(run.recipe):
            raise DataError(
                f"{run.path} must be a run that writes words, such as one of multimodal-rnn or sc-nlm; it was trained "
                f"with the recipe {run.recipe.name!r}, which is for {run.recipe.kind}."
            )
    rows = measure_perplexities(runs, opened.open_data(arguments.data), arguments.split)
    difference = difference_of(rows[: len(runs)])
    values = {"split": arguments.split, "difference": difference, "measured": [row.to_json() for row in rows]}
    return Measured(perplexity_table(rows, arguments.split, difference), values)


def perplexity_table(rows: Sequence[PerplexityRow], split: str, difference: str | None) -> str:
    """Format perplexities as a table, one row per run or baseline.

    Args:
        rows: see `vsemb.systems.captions.validation.measure_perplexities`.
        split: name of the split.
        difference: the reason why the rows cannot be compared; None if they can.
    """
    cells = [
        [
            row.name,
            row.decoder,
            f"{row.perplexity:.2f}",
            f"{row.bits:.3f}",
            f"{row.words:,}",
            f"{100 * row.unknown:.1f} %",
        ]
        for row in rows
    ]
    header = [split, "model", "perplexity", "bits per word", "words", "unknown"]
    return "\n".join([table(header, cells, text=(0, 1)), *([difference] if difference else [])])


PERPLEXITY = Mode(_evaluate_perplexity, uses=("beside",), recipes=_RECIPES)


def _configure_likelihood(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--first", type=int, metavar="N", help="rank the first N images and their captions (all)")
    prior = "training images that give the probability of a caption (%(default)s)"
    parser.add_argument("--prior", type=int, default=100, metavar="N", help=prior)


def _evaluate_likelihood(arguments: argparse.Namespace, opened: Run) -> Measured:
    """Measure retrieval by the likelihood of captions, as in m-RNN.

    Every caption is scored for every image, which takes minutes for 100 images on a CPU.
    """
    from vsemb.report.retrieval import retrieval_table
    from vsemb.systems.captions.likelihood_ranking import measure_ranking

    dataset, options = opened.open_data(arguments.data), picked(arguments, "first", "prior")
    metrics = measure_ranking(opened, dataset, arguments.split, **options)
    return Measured(retrieval_table(metrics), {"split": arguments.split, **metrics.to_json()}, metrics)


LIKELIHOOD = Mode(_evaluate_likelihood, _configure_likelihood, recipes=("vsemb.systems.captions.recipe:Captioning",))

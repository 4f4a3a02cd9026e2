"""`vsemb evaluate --positives` and `--compositional`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from vsemb.commands import Measured, Mode
from vsemb.printing import table

if TYPE_CHECKING:
    from vsemb.runs.run import Run

_RECIPES = ("vsemb.recipes.retrieval:Retrieval",)


def _configure_files(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--files", nargs="+", default=[], metavar="FILE", help="published files (object classes of the data)"
    )


def _evaluate_positives(arguments: argparse.Namespace, opened: Run) -> Measured:
    """Measure retrieval with several positives per query: ECCV Caption, CxC, PMRP.

    --files names any of: the folder of ECCV Caption's NAME_image_to_caption.json and NAME_caption_to_image.json, a file
    sits_*.csv of CxC, and COCO's instances_*.json. R-P is R-Precision. Plausible matches are images whose sets of
    object classes differ in at most 0, 1 or 2 classes. Their R-P is PMRP, the mean over these three limits.
    """
    import numpy as np

    from vsemb.errors import DataError
    from vsemb.runs.measure import embedded_with_coverage
    from vsemb.systems.benchmarks.positives import METRICS, SomeQueries, measure_positives, read_positives

    dataset = opened.open_data(arguments.data)
    part = dataset.split(arguments.split)
    positives = read_positives(arguments.files, part)
    images, texts, rows, coverage = embedded_with_coverage(opened, dataset, arguments.split)
    if not np.array_equal(rows, part.caption_rows):
        raise DataError(f"{opened.path} must embed captions; it embeds other texts, which have no judged positives.")
    measured = {"": measure_positives(images, texts, rows, opened.model.similarity, positives)}
    for name, chosen in (("with_known_word", coverage.share > 0), ("all_words_known", coverage.share == 1)):
        if chosen.any() and not chosen.all():
            shown = np.isin(np.arange(len(images)), rows[chosen])
            some = [SomeQueries(each, shown, chosen) for each in positives]
            found = measure_positives(images, texts, rows, opened.model.similarity, some)
            measured[name] = [each for each in found if all(each.queries)]
    lines = []
    for name, found in measured.items():
        which = f", {name.replace('_', ' ')}" if name else ""
        for each in found:
            sides = each.image_to_text, each.text_to_image
            for title, side, queries in zip(("image → text", "text → image"), sides, each.queries, strict=True):
                numbers = [f"{side[metric]:.1f}" for metric in METRICS]
                lines.append([f"{each.name}{which}: {title}", str(queries), *numbers])
    text = table([f"{arguments.split}: {len(images)} images, {len(texts)} texts", "queries", *METRICS], lines)
    values = {name: {each.name: each.to_json() for each in found} for name, found in measured.items()}
    unknown = coverage.counts
    named = {"split": arguments.split, **values.pop(""), "unknown": asdict(unknown), **values}
    return Measured("\n".join([text, *unknown.notes]), named)


POSITIVES = Mode(_evaluate_positives, _configure_files, recipes=_RECIPES)


def _configure_images(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--images", metavar="DIR", help="folder of the images of the tests (the folder of the file)")


def _evaluate_compositional(arguments: argparse.Namespace, opened: Run) -> Measured:
    """Measure compositional tests: Winoground, ARO, SugarCrepe.

    --files names Winoground's examples.jsonl, JSON files of SugarCrepe, or visual_genome_*.json of ARO. `text` is the
    share of tests in which the true caption has a higher score than the false one. Winoground also has an image score,
    and a group score for both. `by kind` is the mean of `text` over relations or pairs of attributes.
    """
    from vsemb.errors import InvalidArgumentError
    from vsemb.systems.benchmarks.compositional import measure_compositional, read_cases

    if not arguments.files:
        raise InvalidArgumentError(
            "--compositional must have the tests; got none. Name their files: --files swap_att.json"
        )
    cases = {Path(file): read_cases(file) for file in arguments.files}
    found = {file: measure_compositional(opened, own, arguments.images or file.parent) for file, own in cases.items()}
    rows = [
        [file.stem, str(each.cases), *("" if score is None else f"{score:.1f}" for score in scores)]
        for file, each in found.items()
        for scores in [(each.text, each.image, each.group, each.by_kind)]
    ]
    text = table(["", "tests", "text", "image", "group", "by kind"], rows)
    notes = [f"{file.stem}: {note}" for file, each in found.items() if each.unknown for note in each.unknown.notes]
    return Measured("\n".join([text, *notes]), {file.stem: each.to_json() for file, each in found.items()})


COMPOSITIONAL = Mode(_evaluate_compositional, _configure_images, uses=("files",), recipes=_RECIPES)

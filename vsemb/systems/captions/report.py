"""Report sections about caption generation: metrics, examples and failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vsemb.data.store import Split, StoredDataset
from vsemb.drawing.pictures import data_uri
from vsemb.drawing.templates import page_template
from vsemb.errors import DataError, MissingExtraError, invalid_argument
from vsemb.printing import table
from vsemb.recipes.info import untyped
from vsemb.report.page import EXPLAINED, FOUND, MEASURED, WORST, Cell, Measure, Section, View
from vsemb.report.space import Picture, picture_of
from vsemb.runs.run import Run
from vsemb.systems.captions.caption_metrics import CaptionMetrics, evaluate_captions
from vsemb.systems.captions.captioning import Written, caption_split
from vsemb.systems.captions.options import ReportedImages
from vsemb.systems.captions.recipe import RegionCaptioning
from vsemb.systems.captions.region_captions import caption_regions
from vsemb.systems.captions.task import NextWordTask
from vsemb.systems.captions.training_captions import TrainingCaptions

# Default number of images for models that need seconds per image.
_SLOW = 100
# Number of images with captions of regions, and their longer side in pixels.
_PICTURES, _SIDE = 4, 320


@dataclass(frozen=True)
class Captioned:
    """An image with generated captions and captions by people.

    Attributes:
        picture: the image.
        captions: generated captions with log-probabilities, best first.
        nearest: training caption most similar to the best caption; None if unknown.
        copied: whether the best caption equals a training caption.
        references: captions by people.
        score: CIDEr of the best caption, in percent; None if not measured.
    """

    picture: Picture
    captions: tuple[Written, ...]
    nearest: str | None
    copied: bool
    references: tuple[str, ...]
    score: float | None


def sections(view: View) -> list[Section]:
    """Return the sections, see `vsemb.report.page.SectionMaker`.

    Args:
        view: run, dataset and options, see `CaptionedImages`.

    Raises:
        InvalidArgumentError: for examples of arithmetic.
        DataError: if run and dataset do not match.
    """
    run, part = view.run, view.part
    if not isinstance(run.recipe, NextWordTask):
        return []
    if view.arithmetic:
        raise invalid_argument("arithmetic", view.arithmetic[0], "omitted for a run that writes captions")
    limit = view.option(ReportedImages).limit
    templates = page_template(__package__, "report.html.jinja").module
    if limit is None and run.recipe.ranks_candidates:
        limit = _SLOW
    rows = np.random.default_rng(view.seed).permutation(len(part))[:limit]
    view.step("captions")
    written = caption_split(run, view.dataset, part.name, rows=rows)
    train = training_captions(run, view.dataset)
    notes = [] if train is not None else ["The training captions are not available, so novelty was not measured."]
    if len(rows) < len(part):
        notes.append(f"{len(rows):,} of the {len(part):,} images were captioned, chosen at random.")
    view.step("measuring")
    metrics = None
    try:
        metrics = evaluate_captions(_best(written), [part.captions_of(row) for row in rows], train=train, meteor=False)
        notes += metrics.notes
    except MissingExtraError as error:
        notes.append(f"Captions were not measured. {error}")
    scores = None if metrics is None else metrics.per_image["cider"]
    drawn = _captioned(part, rows[: view.shown], written[: view.shown], scores, train)
    parts = [
        Section(
            MEASURED,
            "metrics",
            "Caption metrics",
            templates.metrics([] if metrics is None else _measures(metrics), len(rows), notes),
            style=templates.style(),
            headline=_headline(written, metrics),
            facts=_facts(run),
            lines=_lines(part.name, metrics),
            measured={} if metrics is None else metrics.to_json(),
        ),
        Section(FOUND, "captions", "Generated captions", templates.captions(drawn, run.recipe.how_written)),
    ]
    regions = _regions(run, view.dataset, part, rows)
    if regions:
        parts.append(Section(EXPLAINED, "regions", "Captions of regions", templates.regions(regions)))
    if scores is not None:
        last = np.argsort(scores, kind="stable")[: max(1, view.shown // 2)]
        worst = _captioned(part, rows[last], [written[place] for place in last], scores[last], train)
        parts.append(Section(WORST, "worst", "Failures", templates.worst(worst)))
    return parts


def training_captions(run: Run, dataset: StoredDataset) -> TrainingCaptions | None:
    """Return the training captions of a run, from this dataset or its own; None if neither is available.

    Args:
        run: the run.
        dataset: a dataset, possibly the training dataset.
    """
    try:
        own = dataset if dataset.fingerprint == run.info["dataset"] else run.open_data()
        return TrainingCaptions(own.split("train").captions)
    except DataError:
        return None


def _best(written: Sequence[Sequence[Written]]) -> list[str]:
    return [captions[0][0] if captions else "" for captions in written]


def _captioned(
    part: Split,
    rows: np.ndarray,
    written: Sequence[Sequence[Written]],
    scores: np.ndarray | None,
    train: TrainingCaptions | None,
) -> list[Captioned]:
    best = _best(written)
    nearest = [-1] * len(rows) if train is None else train.nearest(best).rows.tolist()
    shown = []
    for place, row in enumerate(rows.tolist()):
        sentence, copied = None, False
        if train is not None and nearest[place] >= 0:
            sentence, copied = train.captions[nearest[place]], train.novelty([best[place]]) == 0
        people = tuple(part.captions_of(row))
        score = None if scores is None else float(scores[place])
        shown.append(Captioned(picture_of(part, row), tuple(written[place]), sentence, copied, people, score))
    return shown


def _regions(run: Run, dataset: StoredDataset, part: Split, rows: np.ndarray) -> list[Picture]:
    """Return the first images with captions of regions; empty if the run generates none."""
    if not isinstance(run.recipe, RegionCaptioning) or not part.has_images or run.image_input is None:
        return []
    pictures = []
    for row in rows[:_PICTURES].tolist():
        key = part.keys[row]
        regions = caption_regions(run, key, dataset, report=lambda line: None)
        drawn = regions.drawn(_SIDE)
        texts = "; ".join(caption.text for caption in regions.captions)
        alt = f"The image with captions of its regions: {texts}"
        pictures.append(Picture(row, key, alt, data_uri(drawn), *drawn.size))
    return pictures


def _facts(run: Run) -> list[tuple[str, str]]:
    lines = [("Decoder", run.recipe.model_name), ("Vocabulary", f"{len(run.vocabulary.words):,} words")]
    if "best_log2_likelihood" in run.info:
        lines.append(("Perplexity on val", f"{2 ** -untyped(run.info)['best_log2_likelihood']:.2f}"))
    return lines


def _lines(split: str, metrics: CaptionMetrics | None) -> str:
    """Return the metrics as a table for the terminal."""
    if metrics is None:
        return "Not measured: pip install 'vsemb[captions]'"
    shown = {name: value for name, value in metrics.to_json().items() if isinstance(value, float)}
    header = [f"{split}: {metrics.images} images", *shown]
    return table(header, [["", *(f"{value:.1f}" for value in shown.values())]])


def _measures(metrics: CaptionMetrics) -> list[Measure]:
    rows: list[tuple[str, str, str, float | None]] = []
    for order, value in enumerate(metrics.bleu, 1):
        words = "words" if order == 1 else f"sequences of {order} words"
        rows.append((f"BLEU-{order}, %", f"precision of {words}", f"{value:.1f}", value))
    rows.append(("ROUGE-L, %", "longest common subsequence", f"{metrics.rouge_l:.1f}", metrics.rouge_l))
    rows.append(("CIDEr, %", "common words, weighted by rarity", f"{metrics.cider:.1f}", None))
    if metrics.novelty is not None:
        rows.append(("New captions, %", "not among the training captions", f"{metrics.novelty:.1f}", metrics.novelty))
    rows.append(("Words per caption", "mean", f"{metrics.words:.1f}", None))
    rows.append(("Vocabulary used", "different words in all captions", f"{metrics.vocabulary:,}", None))
    return [Measure(name, explained, [Cell(text, (), percent)]) for name, explained, text, percent in rows]


def _headline(written: Sequence[Sequence[Written]], metrics: CaptionMetrics | None) -> str:
    if metrics is None or metrics.novelty is None:
        return f"Captions of {len(written):,} images"
    return (
        f"Captions of {metrics.images:,} images score {metrics.cider:.0f} % in CIDEr; "
        f"{metrics.novelty:.0f} % of them are not among the training captions"
    )

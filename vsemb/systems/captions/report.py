"""The report's sections about a run that writes captions: what it scores, and what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vsemb.commands import table
from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError, MissingExtraError, invalid_argument
from vsemb.parts import Count, require
from vsemb.report.page import EXPLAINED, FOUND, MEASURED, WORST, Section, View
from vsemb.report.space import Picture, picture_of
from vsemb.runs.pictures import data_uri
from vsemb.runs.run import Run
from vsemb.runs.templates import page_template
from vsemb.systems.captions.caption_metrics import CaptionMetrics, TrainingCaptions, evaluate_captions
from vsemb.systems.captions.captioning import Written, caption_split
from vsemb.systems.captions.recipe import RegionCaptioning
from vsemb.systems.captions.region_captions import caption_regions
from vsemb.systems.captions.task import NextWordTask

# Images captioned where each takes seconds, unless more are asked for.
_SLOW = 100
# Images shown with captions of their regions, and the longer side of these in pixels.
_PICTURES, _SIDE = 4, 320


@dataclass(frozen=True)
class Captioned:
    """An image with what the run writes of it and what people wrote.

    Attributes:
        picture: the image.
        captions: with their log-probabilities, best first.
        nearest: the training sentence most similar to the best caption; None where there is none, or training
            sentences are not known.
        copied: whether the best caption is a training caption.
        references: what people wrote.
        score: CIDEr of the best caption, in percent; None where it was not measured.
    """

    picture: Picture
    captions: tuple[Written, ...]
    nearest: str | None
    copied: bool
    references: tuple[str, ...]
    score: float | None


def sections(view: View) -> list[Section]:
    """Returns the sections, see `vsemb.report.page.SectionMaker`.

    Raises:
        InvalidArgumentError: for examples of arithmetic.
        DataError: if the run writes no captions, or run and dataset do not fit.
    """
    run, part = view.run, view.part
    if not isinstance(run.recipe, NextWordTask):
        return []
    if view.arithmetic:
        raise invalid_argument("arithmetic", view.arithmetic[0], "nothing for a run that writes captions")
    limit = view.options.get("limit")
    require("limit", limit, Count | None)
    templates = page_template(__package__, "report.html.jinja").module
    order = np.random.default_rng(view.seed).permutation(len(part))
    rows = order[: limit or (_SLOW if run.recipe.ranks_candidates else None)]
    view.step("captions")
    written = caption_split(run, view.dataset, part.name, rows=rows)
    train = training_captions(run, view.dataset)
    notes = [] if train is not None else ["The captions it was trained on are not at hand."]
    if len(rows) < len(part):
        notes.append(f"{len(rows):,} of the {len(part):,} images were captioned, drawn at random.")
    view.step("measuring")
    metrics = None
    try:
        metrics = evaluate_captions(
            _best(written), [list(part.entries[row]["captions"]) for row in rows], train=train, meteor=False
        )
        notes += metrics.notes
    except MissingExtraError as error:
        notes.append(f"Captions were not measured. {error}")
    found = [
        Section(
            MEASURED,
            templates.metrics(metrics, len(rows), notes),
            style=templates.style(),
            summary=_summary(written, metrics),
            facts=_facts(run),
            lines=_lines(part.name, metrics),
            measured={} if metrics is None else metrics.to_json(),
        )
    ]
    scores = None if metrics is None else metrics.each["cider"]
    drawn = _captioned(part, rows[: view.shown], written[: view.shown], scores, train)
    found.append(Section(FOUND, templates.captions(drawn, run.recipe.how_written)))
    if regions := _regions(run, view.dataset, part, rows):
        found.append(Section(EXPLAINED, templates.regions(regions)))
    if scores is not None:
        last = np.argsort(scores, kind="stable")[: max(1, view.shown // 2)]
        worst = _captioned(part, rows[last], [written[place] for place in last], scores[last], train)
        found.append(Section(WORST, templates.worst(worst)))
    return found


def training_captions(run: Run, dataset: Dataset) -> TrainingCaptions | None:
    """Returns the captions that a run was trained on, of this dataset or of its own; None if neither is."""
    try:
        own = dataset if dataset.fingerprint == run.info["dataset"] else Dataset.open(run.data_path)
        if own.fingerprint != run.info["dataset"]:
            return None
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
        people = tuple(part.entries[row]["captions"])
        score = None if scores is None else float(scores[place])
        shown.append(Captioned(picture_of(part, row), tuple(written[place]), sentence, copied, people, score))
    return shown


def _regions(run: Run, dataset: Dataset, part: Split, rows: np.ndarray) -> list[Picture]:
    """The first images with captions of their regions, where a run writes some: figure 7 of the paper."""
    if not isinstance(run.recipe, RegionCaptioning) or not part.has_images or run.image_input is None:
        return []
    pictures = []
    for row in rows[:_PICTURES].tolist():
        key = part.keys[row]
        found = caption_regions(run, key, dataset, report=lambda line: None)
        drawn = found.drawn(_SIDE)
        alt = f"The image with captions of its regions: {'; '.join(each.text for each in found.captions)}"
        pictures.append(Picture(row, key, alt, data_uri(drawn), *drawn.size))
    return pictures


def _facts(run: Run) -> list[tuple[str, str]]:
    facts = [("Decoder", run.recipe.model_name), ("Vocabulary", f"{len(run.vocabulary.words):,} words")]
    if "best_log2_likelihood" in run.info:
        facts.append(("Perplexity on val", f"{2 ** -run.info['best_log2_likelihood']:.2f}"))
    return facts


def _lines(split: str, metrics: CaptionMetrics | None) -> str:
    """Returns the scores in a row, for a terminal."""
    if metrics is None:
        return "Not measured: pip install 'vsemb[captions]'"
    shown = {name: value for name, value in metrics.to_json().items() if isinstance(value, float)}
    header = [f"{split}: {metrics.images} images", *shown]
    return table(header, [["", *(f"{value:.1f}" for value in shown.values())]])


def _summary(written: Sequence[Sequence[Written]], metrics: CaptionMetrics | None) -> str:
    if metrics is None or metrics.novelty is None:
        return f"What it writes of {len(written):,} images."
    return (
        f"Its captions of {metrics.images:,} images score {metrics.cider:.0f} in CIDEr; "
        f"{metrics.novelty:.0f} % of them are no caption that it was trained on."
    )

"""The page about a run that writes captions: what it scores, how it was trained, and what it writes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vsemb import __version__
from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError, MissingExtraError, invalid_argument
from vsemb.files import replacing
from vsemb.report import curves
from vsemb.report.facts import run_facts
from vsemb.report.page import REPORT
from vsemb.report.space import Picture, picture_of
from vsemb.report.template import page_template
from vsemb.runs.stored_run import METRICS
from vsemb.runs.thumbnails import data_uri
from vsemb.systems.captions.caption_metrics import CaptionMetrics, evaluate_captions
from vsemb.systems.captions.caption_run import CaptionRun
from vsemb.systems.captions.caption_writer import CaptioningRun, Written, images_run
from vsemb.systems.captions.captioning import CaptionOptions, caption_split
from vsemb.systems.captions.novelty import TrainingCaptions
from vsemb.systems.captions.region_captions import caption_regions
from vsemb.systems.language.language_run import LanguageRun

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


def write_caption_report(
    run: CaptioningRun,
    dataset: Dataset,
    split: str = "val",
    out: str | os.PathLike[str] | None = None,
    *,
    images: int = 12,
    limit: int | None = None,
    options: CaptionOptions | None = None,
    seed: int = 0,
) -> tuple[Path, CaptionMetrics | None]:
    """Writes a page about a run that writes captions; one file that loads nothing, as `write_report`.

    Args:
        run: the run.
        dataset: the dataset.
        split: name of the split that is shown.
        out: the file; None for `report.html` inside the run.
        images: images shown, drawn at random, and half as many of the worst.
        limit: images captioned and measured, drawn at random; None for all, or for 100 with `sc-nlm`, which
            takes seconds for each.
        options: how captions are looked for; None for the recipe's ways.
        seed: of all draws, >= 0.

    Returns:
        path: the file.
        metrics: those in it; None without the extra `captions`, which measures them.

    Raises:
        InvalidArgumentError: for a number out of range, or a directory as `out`.
        DataError: if run and dataset do not fit, the split is not there, or the file system refuses.
        MissingExtraError: without jinja2.

    Example:

        write_caption_report(open_captioning_run("runs/captions"), Dataset.open("data/flickr8k"), "test")
    """
    if images < 1:
        raise invalid_argument("images", images, "an integer >= 1")
    if limit is not None and limit < 1:
        raise invalid_argument("limit", limit, "an integer >= 1")
    if seed < 0:
        raise invalid_argument("seed", seed, "an integer >= 0")
    out = run.path / REPORT if out is None else Path(out)
    if out.is_dir():
        raise invalid_argument("out", str(out), "a file, not a directory")
    options = options or CaptionOptions()
    template = page_template("captions.html.jinja")
    part = dataset.split(split)
    order = np.random.default_rng(seed).permutation(len(part))
    rows = order[: limit or (_SLOW if isinstance(run, LanguageRun) else None)]
    written = caption_split(run, dataset, split, options, rows=rows)
    train = training_captions(run, dataset)
    notes = [] if train is not None else ["The captions it was trained on are not at hand."]
    if len(rows) < len(part):
        notes.append(f"{len(rows):,} of the {len(part):,} images were captioned, drawn at random.")
    metrics = None
    try:
        metrics = evaluate_captions(_best(written), _references(part, rows), train=train, meteor=False)
        notes += metrics.notes
    except MissingExtraError as error:
        notes.append(f"Captions were not measured. {error}")
    scores = None if metrics is None else metrics.each["cider"]
    drawn = _captioned(part, rows[:images], written[:images], scores, train)
    worst = []
    if scores is not None:
        last = np.argsort(scores, kind="stable")[: max(1, images // 2)]
        worst = _captioned(part, rows[last], [written[place] for place in last], scores[last], train)
    page = template.render(
        name=run.path.resolve().name,
        facts=run_facts(run, run.model, images_run(run), part, _facts(run)),
        summary=_summary(written, metrics),
        table=None if metrics is None else _table(metrics),
        captioned_images=len(rows),
        notes=notes,
        charts=curves.charts(curves.read_metrics(run.path / METRICS), run.info.get("best_epoch")),
        search=_search(run, options),
        regions=_regions(run, dataset, part, rows),
        drawn=drawn,
        worst=worst,
        curves=curves,
        version=__version__,
    )
    with replacing(out) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return out, metrics


def training_captions(run: CaptioningRun, dataset: Dataset) -> TrainingCaptions | None:
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


def _references(part: Split, rows: np.ndarray) -> list[list[str]]:
    return [list(part.entries[row]["captions"]) for row in rows]


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
        sentence = None
        if train is not None and nearest[place] >= 0:
            sentence = train.captions[nearest[place]]
        shown.append(
            Captioned(
                picture_of(part, row),
                tuple(written[place]),
                sentence,
                sentence is not None and train is not None and train.novelty([best[place]]) == 0,
                tuple(part.entries[row]["captions"]),
                None if scores is None else float(scores[place]),
            )
        )
    return shown


def _regions(run: CaptioningRun, dataset: Dataset, part: Split, rows: np.ndarray) -> list[Picture]:
    """The first images with captions of their regions, where a run writes some: figure 7 of the paper."""
    if not isinstance(run, CaptionRun) or not run.multi_vector or not part.has_images or not run.feature_regions:
        return []
    pictures = []
    for row in rows[:_PICTURES].tolist():
        key = part.keys[row]
        found = caption_regions(run, key, dataset, report=lambda line: None)
        drawn = found.drawn(_SIDE)
        alt = f"The image with captions of its regions: {'; '.join(each.text for each in found.captions)}"
        pictures.append(Picture(row, key, alt, data_uri(drawn), *drawn.size))
    return pictures


def _facts(run: CaptioningRun) -> list[tuple[str, str]]:
    caption = run.recipe.caption
    decoder = caption.decoder if isinstance(run, LanguageRun) else f"{caption.decoder}, {caption.units} units"
    facts = [("Decoder", decoder), ("Vocabulary", f"{len(run.vocabulary.words):,} words")]
    if "best_log2_likelihood" in run.info:
        facts.append(("Perplexity on val", f"{2 ** -run.info['best_log2_likelihood']:.2f}"))
    return facts


def _search(run: CaptioningRun, options: CaptionOptions) -> str:
    caption = run.recipe.caption
    if isinstance(run, LanguageRun):
        return f"the best of {options.candidates or caption.candidates:,} candidates"
    if options.sample is not None:
        return f"words are drawn ({options.sample})"
    return f"a beam of {options.beam or caption.beam}"


def _summary(written: Sequence[Sequence[Written]], metrics: CaptionMetrics | None) -> str:
    if metrics is None or metrics.novelty is None:
        return f"What it writes of {len(written):,} images."
    return (
        f"Its captions of {metrics.images:,} images score {metrics.cider:.0f} in CIDEr; "
        f"{metrics.novelty:.0f} % of them are no caption that it was trained on."
    )


def _table(metrics: CaptionMetrics) -> list[tuple[str, Any]]:
    values = {
        **{f"BLEU-{order}": value for order, value in enumerate(metrics.bleu, 1)},
        "ROUGE-L": metrics.rouge_l,
        "CIDEr": metrics.cider,
    }
    if metrics.novelty is not None:
        values["new captions"] = metrics.novelty
    table = [(name, f"{value:.1f}") for name, value in values.items()]
    return [*table, ("words a caption", f"{metrics.words:.1f}"), ("words used", f"{metrics.vocabulary:,}")]

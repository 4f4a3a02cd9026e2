"""Report sections about retrieval: recall, queries with their results, arithmetic and a projection."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vsemb.drawing.templates import page_template
from vsemb.errors import invalid_argument
from vsemb.evaluation import RetrievalMetrics, evaluate_retrieval
from vsemb.recipes.retrieval import Retrieval
from vsemb.report.page import EXPLAINED, FOUND, MEASURED, Cell, Measure, Section, View
from vsemb.report.queries import Gallery
from vsemb.report.words import check_arithmetic, choose_arithmetic, draw_plane, families, work_out
from vsemb.runs.run import Run
from vsemb.runs.searching import search_method_of

_BOOTSTRAP, _EXAMPLES = 1000, 6
# Column of the table -> its direction.
_DIRECTIONS = {"Sentence to image": "text_to_image", "Image to sentence": "image_to_text"}
# Metric -> its name and meaning.
_METRICS = {
    "R@1": ("R@1, %", "right result first"),
    "R@5": ("R@5, %", "among the first five"),
    "R@10": ("R@10, %", "among the first ten"),
    "median_rank": ("Median rank", "1 is best"),
    "mean_rank": ("Mean rank", "1 is best"),
}
# K of the headline's recall -> its words.
_FIRST = {10: "among the first ten", 5: "among the first five", 1: "first"}


def sections(view: View) -> list[Section]:
    """Return the sections of a retrieval run, see `vsemb.report.page.SectionMaker`.

    A run trained on class names has no section about recall or words, since images of a class share their text.
    Arithmetic and the projection need one vector per image and per sentence.

    Args:
        view: run, dataset and options.

    Raises:
        InvalidArgumentError: for an example of arithmetic that cannot be computed.
    """
    run = view.run
    if not isinstance(run.recipe, Retrieval):
        return []
    combines = search_method_of(run).combines
    if view.arithmetic and not combines:
        fix = "The run embeds images and sentences as sets of vectors, which cannot be added or subtracted."
        raise invalid_argument("arithmetic", view.arithmetic[0], "omitted for this run", fix)
    if view.arithmetic and not run.recipe.text.tokenizer.per_caption:
        fix = "The run was trained on class names and has no words to add."
        raise invalid_argument("arithmetic", view.arithmetic[0], "omitted for this run", fix)
    templates = page_template(__package__, "retrieval.html.jinja").module
    space = view.space
    check_arithmetic(space, view.arithmetic)
    view.step("measuring")
    ids = space.part.ids, space.part.ids[space.text_rows]
    embedded = (space.images, space.texts, *ids, run.model.similarity)
    metrics = evaluate_retrieval(*embedded, bootstrap=_BOOTSTRAP, seed=view.seed, coverage=space.coverage)
    view.step("queries")
    gallery = Gallery(space, view.shown, view.seed)
    classes = sorted({name for name in space.part.class_names if name})
    remedies = run.recipe.word_remedies
    sections = [
        Section(
            FOUND,
            "queries",
            "Queries",
            templates.queries(gallery, classes, remedies, view.shown),
            facts=_facts(run, combines),
            lines=str(metrics),
            measured=metrics.to_json(),
        ),
    ]
    if not space.by_class:
        chance = _chance(space.text_rows, len(space.part))
        recall = _measures(metrics, chance)
        sections.append(Section(MEASURED, "recall", "Recall", recall, headline=_headline(metrics, chance)))
    view.step("arithmetic")
    kinds = families(space) if combines and not space.by_class else []
    examples = view.arithmetic or choose_arithmetic(kinds, _EXAMPLES, view.seed, space)
    if examples:
        shown = templates.arithmetic(work_out(space, examples))
        sections.append(Section(EXPLAINED, "arithmetic", "Word arithmetic", shown))
    if kinds:
        plane = draw_plane(space, kinds[0], view.seed, gallery.images)
        numbers = {row: number for number, row in enumerate(gallery.images)}
        sections.append(Section(EXPLAINED, "plane", "Projection", templates.plane(plane, numbers, space.part.keys)))
    return sections


def _facts(run: Run, combines: bool) -> list[tuple[str, str]]:
    recipe = run.recipe
    sets = "" if combines else "sets of vectors, "
    return [
        ("Space", f"{sets}{run.embedding_dim} dimensions, {recipe.similarity.kind}"),
        ("Text encoder", f"{recipe.text.encoder.label} over {recipe.text.tokenizer.label}"),
    ]


def _chance(text_rows: np.ndarray, images: int) -> dict[str, dict[str, float]]:
    """Return direction -> metric -> recall in percent of results in random order.

    Args:
        text_rows: (texts,) int64, row of each text's image.
        images: number of images.
    """
    own = {"text_to_image": np.ones(1), "image_to_text": np.bincount(text_rows, minlength=images)}
    candidates = {"text_to_image": images, "image_to_text": len(text_rows)}
    chance: dict[str, dict[str, float]] = {}
    for side, right in own.items():
        total = candidates[side]
        for k in _FIRST:
            place = np.arange(min(k, total))
            # (queries, K): probability that the next result is wrong, given that all earlier ones are wrong.
            wrong = np.maximum(total - right[:, None] - place, 0) / (total - place)
            chance.setdefault(side, {})[f"R@{k}"] = 100 * float(1 - wrong.prod(axis=1).mean())
    return chance


def _headline(metrics: RetrievalMetrics, chance: dict[str, dict[str, float]]) -> str:
    # With ten images or fewer, every image is among the first ten results.
    k = next((k for k in _FIRST if k < metrics.images), 1)
    reached, by_chance = metrics.text_to_image[f"R@{k}"], chance["text_to_image"][f"R@{k}"]
    return f"{_percent(reached)} of sentences find their image {_FIRST[k]}; chance {_percent(by_chance)}"


def _percent(value: float) -> str:
    return f"{value:.0f} %" if value >= 1 or value == 0 else f"{value:.1g} %"


def _measures(metrics: RetrievalMetrics, chance: dict[str, dict[str, float]]) -> str:
    rows = []
    for key, (name, explained) in _METRICS.items():
        cells = []
        for side in _DIRECTIONS.values():
            value, (low, high) = getattr(metrics, side)[key], (metrics.intervals_95 or {})[side][key]
            notes, percent = [f"{low:.1f}–{high:.1f}"], None
            if key in chance[side]:
                percent = value
                notes.append(f"chance {chance[side][key]:.1f}")
            cells.append(Cell(f"{value:.1f}", notes, percent))
        rows.append(Measure(name, explained, cells))
    low, high = (metrics.intervals_95 or {})["recall_sum"]
    note = (
        f"{metrics.images:,} images and {metrics.texts:,} sentences. Below each value: its 95 % bootstrap interval. "
        f"Recall sum: {metrics.recall_sum:.1f} ({low:.1f}–{high:.1f})."
    )
    for line in (*metrics.notes, *_without_unknown(metrics)):
        note += f" {line[:1].upper()}{line[1:]}"
    pieces = page_template(__package__, "pieces.html.jinja").module
    return pieces.measures("recall", list(_DIRECTIONS), rows, note)


def _without_unknown(metrics: RetrievalMetrics) -> Iterator[str]:
    """Yield sentences about the recall without queries that have unknown words."""
    for known, which in (
        (metrics.with_known_word, "with a known word"),
        (metrics.all_words_known, "of known words only"),
    ):
        if known is not None:
            yield f"Recall sum of the {known.texts:,} sentences {which}, and their images: {known.recall_sum:.1f}."

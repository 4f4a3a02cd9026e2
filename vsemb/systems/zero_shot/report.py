"""Report section about zero-shot recognition, for runs trained on class names."""

from __future__ import annotations

from vsemb.drawing.templates import page_template
from vsemb.recipes.retrieval import Retrieval
from vsemb.report.page import MEASURED, Cell, Measure, Section, View
from vsemb.systems.zero_shot.metrics import evaluate_zero_shot


def sections(view: View) -> list[Section]:
    """Return the section, see `vsemb.report.page.SectionMaker`; it replaces the section about recall.

    Args:
        view: run, dataset and options.
    """
    recipe = view.run.recipe
    if not isinstance(recipe, Retrieval) or recipe.text.tokenizer.per_caption:
        return []
    space = view.space
    view.step("recognition")
    # Images of a class share their text, so recall of an image's own text is undefined.
    names, classes = space.part.class_ids()
    grouped = (space.images, classes, space.texts, classes[space.text_rows])
    metrics = evaluate_zero_shot(*grouped, view.run.model.similarity, names=names)
    best = f"at most {metrics.average_precision_limit:.1f}"
    chance = f"chance {metrics.chance:.1f}"
    rows = [
        ("Top-1, mean over classes, %", "share of images assigned to their class", metrics.top1, chance),
        ("Top-1, all images, %", "share of images assigned to their class", metrics.top1_images, chance),
        (
            f"AP@{metrics.top}, %",
            f"precision of the first {metrics.top} images of a class",
            metrics.average_precision,
            best,
        ),
    ]
    measures = [Measure(name, said, [Cell(f"{value:.1f}", [note], value)]) for name, said, value, note in rows]
    note = (
        f"{metrics.images:,} images of {metrics.classes:,} classes, as measured by vsemb evaluate --protocol zero-shot."
    )
    pieces = page_template("vsemb.report", "pieces.html.jinja").module
    table = pieces.measures("recognition", ["Value"], measures, note)
    said = f"{metrics.top1_images:.0f} % of images are recognized among {metrics.classes:,} classes"
    headline = f"{said}; chance {metrics.chance:.0f} %"
    return [Section(MEASURED, "recognition", "Zero-shot recognition", table, headline=headline)]

"""The report's section about recognition, of a run that reads the names of classes."""

from __future__ import annotations

from vsemb.recipes.retrieval import Retrieval
from vsemb.report.page import MEASURED, Section, View
from vsemb.runs.templates import page_template
from vsemb.systems.zero_shot.metrics import evaluate_zero_shot


def sections(view: View) -> list[Section]:
    """Returns the section, see `vsemb.report.page.SectionMaker`; it stands in the place of recall."""
    recipe = view.run.recipe
    if not isinstance(recipe, Retrieval) or recipe.text.tokenizer.per_caption:
        return []
    space = view.space
    view.step("recognition")
    # Images of a class share their text, so that no image has one of its own to be found.
    names, classes = space.part.class_ids()
    grouped = (space.images, classes, space.texts, classes[space.text_rows])
    found = evaluate_zero_shot(*grouped, view.run.model.similarity, names=names)
    summary = f"{found.top1_images:.0f} % of {found.images:,} images are recognised among {found.classes:,} classes."
    template = page_template(__package__, "report.html.jinja")
    return [Section(MEASURED, template.render(recognition=found), summary=summary)]

"""The sections about retrieval: recall, what is found, arithmetic, the plane, and where a run fails most."""

from __future__ import annotations

from vsemb.commands import table
from vsemb.errors import invalid_argument
from vsemb.evaluation import RetrievalMetrics, evaluate_retrieval
from vsemb.evaluation.retrieval import retrieval_ranks
from vsemb.image.presets import display_name
from vsemb.recipes.retrieval import Retrieval
from vsemb.report.page import EXPLAINED, FOUND, MEASURED, WORST, Section, View
from vsemb.report.space import Gallery
from vsemb.report.words import check_arithmetic, choose_arithmetic, draw_plane, families, work_out
from vsemb.runs.run import Run
from vsemb.runs.searching import searcher_of
from vsemb.runs.templates import page_template

_BOOTSTRAP, _EXAMPLES = 1000, 6


def sections(view: View) -> list[Section]:
    """Returns the sections about a run that is trained for retrieval, see `vsemb.report.page.SectionMaker`.

    Of a run that reads the names of classes there is neither recall, since images of a class share their text, nor
    anything about words. Arithmetic and the plane want one vector per image and per sentence.

    Raises:
        InvalidArgumentError: for an example that cannot be shown.
    """
    run = view.run
    if not isinstance(run.recipe, Retrieval):
        return []
    for name, value in view.options.items():
        raise invalid_argument(name, value, "nothing for a run for retrieval")
    combines = searcher_of(run).combines
    if view.arithmetic and not combines:
        fix = "It embeds images and sentences as sets of vectors, which cannot be added or subtracted."
        raise invalid_argument("arithmetic", view.arithmetic[0], "nothing for this run", fix)
    if view.arithmetic and not run.recipe.text.tokenizer.per_caption:
        fix = "It reads the names of classes, so there are no words to add."
        raise invalid_argument("arithmetic", view.arithmetic[0], "nothing for this run", fix)
    templates = page_template(__package__, "retrieval.html.jinja").module
    space = view.space
    check_arithmetic(space, view.arithmetic)
    view.step("measuring")
    ids = space.part.ids, space.part.ids[space.text_rows]
    embedded = (space.images, space.texts, *ids, run.model.similarity)
    metrics = evaluate_retrieval(*embedded, bootstrap=_BOOTSTRAP, seed=view.seed)
    # What is shown of a run that recognises classes is that system's.
    html = "" if space.by_class else templates.recall(metrics)
    summary = "" if space.by_class else _summary(metrics)
    facts, lines = _facts(run, combines), retrieval_table(metrics)
    found = [Section(MEASURED, html, summary=summary, facts=facts, lines=lines, measured=metrics.to_json())]
    view.step("queries")
    gallery = Gallery(space)
    by_text, by_image = gallery.draw(view.shown, view.seed)
    found.append(Section(FOUND, templates.found(by_text, by_image, space.by_class)))
    view.step("arithmetic")
    kinds = families(space) if combines and not space.by_class else []
    examples = view.arithmetic or choose_arithmetic(kinds, _EXAMPLES, view.seed, space)
    if examples:
        found.append(Section(EXPLAINED, templates.arithmetic(work_out(space, examples))))
    if kinds:
        found.append(Section(EXPLAINED, templates.plane(draw_plane(space, kinds[0], view.seed))))
    if not space.by_class:
        worst = gallery.worst(*retrieval_ranks(*embedded), max(1, view.shown // 2))
        if worst[0] or worst[1]:
            found.append(Section(WORST, templates.worst(worst)))
    return found


def _facts(run: Run, combines: bool) -> list[tuple[str, str]]:
    recipe = run.recipe
    sets = "" if combines else "sets of vectors, "
    encoder, tokenizer = (
        display_name(part.name) if hasattr(part, "name") else getattr(part, "cell", part.kind)
        for part in (recipe.text.encoder, recipe.text.tokenizer)
    )
    return [
        ("Space", f"{sets}{run.embedding_dim} dimensions, {recipe.similarity.kind}"),
        ("Text encoder", f"{encoder} over {tokenizer}"),
    ]


def _summary(metrics: RetrievalMetrics) -> str:
    return (
        f"Of {metrics.images:,} images, the one that a sentence describes is among the first ten for "
        f"{metrics.text_to_image['R@10']:.0f} % of {metrics.texts:,} sentences."
    )


def retrieval_table(metrics: RetrievalMetrics) -> str:
    """Lays out retrieval metrics, with their intervals, and below those of pairs where they were measured."""
    rows = _rows(metrics, f"{metrics.images} images, {metrics.texts} texts")
    if metrics.pairs is not None:
        rows.append([""] * len(rows[0]))
        rows += _rows(metrics.pairs, f"{metrics.pairs.images} pairs, one text per image")
    return table(rows[0], rows[1:])


def _rows(metrics: RetrievalMetrics, title: str) -> list[list[str]]:
    columns = list(metrics.image_to_text)
    rows = [[title, *(column.removesuffix("_rank") for column in columns)]]
    for name in ("image_to_text", "text_to_image"):
        values = getattr(metrics, name)
        rows.append([name.replace("_to_", " → "), *(f"{values[key]:.1f}" for key in columns)])
        if metrics.intervals_95 is not None:
            bounds = metrics.intervals_95[name]
            rows.append(["  95 %", *(f"{bounds[key][0]:.1f}–{bounds[key][1]:.1f}" for key in columns)])
    return rows

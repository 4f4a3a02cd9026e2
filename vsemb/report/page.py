"""Putting the report's sections together and writing the page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from vsemb import __version__
from vsemb.data.store import Dataset
from vsemb.errors import invalid_argument
from vsemb.evaluation import RetrievalMetrics, evaluate_retrieval
from vsemb.evaluation.retrieval import retrieval_ranks
from vsemb.files import replacing
from vsemb.presets import display_name
from vsemb.report import curves
from vsemb.report.arithmetic import check_arithmetic, choose_arithmetic, work_out
from vsemb.report.facts import run_facts
from vsemb.report.gallery import Gallery
from vsemb.report.plane import draw_plane
from vsemb.report.space import Space
from vsemb.report.template import page_template
from vsemb.report.words import families
from vsemb.runs.build import similarity_name
from vsemb.runs.run import Run
from vsemb.runs.stored_run import METRICS

if TYPE_CHECKING:
    from vsemb.systems.zero_shot.metrics import ZeroShotMetrics


#: The file inside a run where its report lies.
REPORT = "report.html"
_BOOTSTRAP, _EXAMPLES, _ALIGNED = 1000, 6, 6
_COLUMNS = {
    "R@1": "R@1",
    "R@5": "R@5",
    "R@10": "R@10",
    "median_rank": "median",
    "mean_rank": "mean rank",
}
_SIDES = {"image_to_text": "image → text", "text_to_image": "text → image"}
_STEPS = ("embedding", "measuring", "queries", "alignments", "arithmetic", "picture", "writing")


def write_report(
    run: Run,
    dataset: Dataset,
    split: str = "val",
    out: str | os.PathLike[str] | None = None,
    *,
    queries: int = 12,
    arithmetic: Sequence[tuple[str, str, str]] = (),
    seed: int = 0,
) -> tuple[Path, RetrievalMetrics]:
    """Writes a page about a run: what it scores, how it was trained, what it finds and where it fails.

    The page is one file that loads nothing: styles and pictures are inside, and there are no scripts. The
    same run, dataset and arguments give the same page. A run whose embeddings are sets has alignments of
    words with regions in the place of arithmetic and the plane, which want one vector an image.

    Args:
        run: the run.
        dataset: the dataset.
        split: name of the split that is shown.
        out: the file; None for `report.html` inside the run.
        queries: queries shown in each direction, drawn at random, and half as many of the worst.
        arithmetic: examples shown (image key, word taken away, word added); none for a choice.
        seed: of all draws, >= 0.

    Returns:
        path: the file.
        metrics: the retrieval metrics in it, with 95 % intervals.

    Raises:
        InvalidArgumentError: for a number out of range, a directory as `out`, or an example that cannot be
            shown, as none can of a run whose embeddings are sets.
        DataError: if run and dataset do not fit, the split is not there, or the file system refuses.
        MissingExtraError: without jinja2.

    Example:

        write_report(Run.open("runs/vsepp"), Dataset.open("data/flickr8k"), "test", "report.html")
    """
    from vsemb.systems.regions.report import align
    from vsemb.systems.zero_shot.metrics import evaluate_zero_shot

    if queries < 1:
        raise invalid_argument("queries", queries, "an integer >= 1")
    if seed < 0:
        raise invalid_argument("seed", seed, "an integer >= 0")
    out = run.path / REPORT if out is None else Path(out)
    if out.is_dir():
        raise invalid_argument("out", str(out), "a file, not a directory")
    if arithmetic and run.multi_vector:
        fix = "It embeds images and sentences as sets of vectors, which cannot be added or subtracted."
        raise invalid_argument("arithmetic", arithmetic[0], "nothing for this run", fix)
    template = page_template("page.html.jinja")
    with tqdm(total=len(_STEPS), unit="step", disable=None) as bar:

        def step(name: str) -> None:
            bar.update(_STEPS.index(name) - bar.n)
            bar.set_description(name)

        step("embedding")
        space = Space(run, dataset, split)
        if arithmetic and space.reads_classes:
            fix = "It reads the names of classes, so there are no words to add."
            raise invalid_argument("arithmetic", arithmetic[0], "nothing for this run", fix)
        check_arithmetic(space, arithmetic)
        step("measuring")
        ids, text_ids = space.part.ids, space.part.ids[space.text_rows]
        embedded = (space.images, space.texts, ids, text_ids, run.model.similarity)
        metrics = evaluate_retrieval(*embedded, bootstrap=_BOOTSTRAP, seed=seed)
        recognition = None
        if space.reads_classes:
            # Images of a class share their text, so that no image has one of its own to be found.
            names, classes = space.part.class_ids()
            grouped = (space.images, classes, space.texts, classes[space.text_rows])
            recognition = evaluate_zero_shot(*grouped, run.model.similarity, names=names)
        step("queries")
        gallery = Gallery(space)
        drawn = gallery.draw(queries, seed)
        worst = None
        if not space.reads_classes:
            worst = gallery.worst(*retrieval_ranks(*embedded), max(1, queries // 2))
        step("alignments")
        aligned = align(space, dataset, _ALIGNED, seed) if run.multi_vector else []
        step("arithmetic")
        kinds = [] if space.reads_classes or run.multi_vector else families(space)
        examples = arithmetic or choose_arithmetic(kinds, _EXAMPLES, seed, space)
        worked_out = work_out(space, examples)
        step("picture")
        plane = draw_plane(space, kinds[0], seed) if kinds else None
        step("writing")
        logged = curves.read_metrics(run.path / METRICS)
        page = template.render(
            name=run.path.resolve().name,
            facts=run_facts(run, run.model, run, dataset.split(split), _facts(run)),
            summary=_summary(metrics, recognition),
            table=_table(metrics),
            columns=list(_COLUMNS.values()),
            metrics=metrics,
            recognition=recognition,
            charts=curves.charts(logged, run.info.get("best_epoch")),
            by_text=drawn[0],
            by_image=drawn[1],
            worst=worst,
            sets=run.multi_vector,
            alignments=aligned,
            examples=worked_out,
            plane=plane,
            reads_classes=space.reads_classes,
            curves=curves,
            version=__version__,
        )
        with replacing(out) as temporary:
            temporary.write_text(page, encoding="utf-8")
        bar.update(1)
    return out, metrics


def _facts(run: Run) -> list[tuple[str, str]]:
    """Returns what the page's head tells of retrieval, names and values."""
    sets = "sets of vectors, " if run.multi_vector else ""
    return [
        ("Space", f"{sets}{run.recipe.embedding_dim} dimensions, {similarity_name(run.recipe)}"),
        (
            "Text encoder",
            f"{display_name(run.recipe.text.encoder)} over {display_name(run.recipe.text.tokenizer)}",
        ),
    ]


def _summary(metrics: RetrievalMetrics, recognition: ZeroShotMetrics | None) -> str:
    if recognition is not None:
        return (
            f"{recognition.top1_images:.0f} % of {recognition.images:,} images are recognised among "
            f"{recognition.classes:,} classes."
        )
    return (
        f"Of {metrics.images:,} images, the one that a sentence describes is among the first ten for "
        f"{metrics.text_to_image['R@10']:.0f} % of {metrics.texts:,} sentences."
    )


def _table(metrics: RetrievalMetrics) -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns the rows of the recall table: name, and of each column the value and its interval."""
    assert metrics.intervals is not None
    rows = []
    for side, name in _SIDES.items():
        values, bounds = getattr(metrics, side), metrics.intervals[side]
        cells = [(f"{values[key]:.1f}", f"{bounds[key][0]:.1f}–{bounds[key][1]:.1f}") for key in _COLUMNS]
        rows.append((name, cells))
    return rows

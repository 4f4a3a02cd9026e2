"""The page about a run: its head, and the sections that the base and the systems make for it.

A section maker, named in `vsemb.registry.System.report_sections`, is a function of a `View` that returns sections, or
none for runs that it has nothing to say about.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from vsemb import __version__, registry
from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError, invalid_argument
from vsemb.files import replacing
from vsemb.report import curves
from vsemb.report.space import Space
from vsemb.runs.run import METRICS, Run
from vsemb.runs.templates import page_template

#: The file inside a run where its report lies.
REPORT = "report.html"
#: Places of sections: those of smaller numbers come first.
MEASURED, TRAINING, FOUND, EXPLAINED, WORST = 10, 20, 30, 40, 90


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        place: where it stands among the others, see `MEASURED`.
        html: its markup, from a template, in which whatever is filled in is escaped.
        style: rules of CSS for it.
        summary: what it says in a sentence; that of the first section stands in the page's head.
        facts: names and values for the page's head.
        lines: what was measured, as a table for a terminal.
        measured: the same as plain values.
    """

    place: int
    html: str
    style: str = ""
    summary: str = ""
    facts: Sequence[tuple[str, str]] = ()
    lines: str = ""
    measured: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class View:
    """What a page is asked to show.

    Attributes:
        run: the run.
        dataset: the dataset.
        part: the split that is shown.
        shown: queries shown in each direction, or images with what is written of them.
        arithmetic: examples shown (image key, word taken away, word added).
        seed: of all draws.
        step: called with what is done now.
        options: what options of systems say (`System.options["report"]`); a maker refuses those that it does not know.
    """

    run: Run
    dataset: Dataset
    part: Split
    shown: int
    arithmetic: Sequence[tuple[str, str, str]]
    seed: int
    step: Callable[[str], None]
    options: Mapping[str, Any]

    @cached_property
    def space(self) -> Space:
        """The split, embedded by the run."""
        self.step("embedding")
        return Space(self.run, self.dataset, self.part.name)


#: Returns sections of a page; none for a run of another kind.
SectionMaker = Callable[[View], list[Section]]


class Report(NamedTuple):
    """The result of `write_report`.

    Attributes:
        path: the file.
        lines: what was measured, as a table for a terminal.
        measured: the same as plain values; empty where an extra that measures it is not installed.
    """

    path: Path
    lines: str
    measured: dict[str, Any]


def write_report(
    run: Run,
    dataset: Dataset,
    split: str = "val",
    out: str | os.PathLike[str] | None = None,
    *,
    shown: int = 12,
    arithmetic: Sequence[tuple[str, str, str]] = (),
    seed: int = 0,
    **options: Any,
) -> Report:
    """Writes a page about a run: what it scores, how it was trained, what it finds or writes and where it fails.

    The page is one file that loads nothing: styles and pictures are inside, and there are no scripts. The
    same run, dataset and arguments give the same page.

    Args:
        run: the run, of a task that has a report.
        dataset: the dataset.
        split: name of the split that is shown.
        out: the file; None for `report.html` inside the run.
        shown: queries shown in each direction, or images with captions, drawn at random, and half as many of the
            worst.
        arithmetic: examples shown (image key, word taken away, word added); none for a choice.
        seed: of all draws, >= 0.
        **options: of systems, such as `limit`, the images captioned and measured of a run that writes captions.

    Returns:
        The file, and what was measured.

    Raises:
        InvalidArgumentError: for a number out of range, a directory as `out`, or an example that cannot be
            shown of the run.
        DataError: if the run's task has no report, run and dataset do not fit, the split is not there, or the file
            system refuses.
        MissingExtraError: without jinja2.

    Example:

        write_report(Run.open("runs/vsepp"), Dataset.open("data/flickr8k"), "test", "report.html")
    """
    for name, value, least in (("shown", shown, 1), ("seed", seed, 0)):
        if value < least:
            raise invalid_argument(name, value, f"an integer >= {least}")
    out = run.path / REPORT if out is None else Path(out)
    if out.is_dir():
        raise invalid_argument("out", str(out), "a file, not a directory")
    template = page_template(__package__, "page.html.jinja")
    pieces = page_template(__package__, "pieces.html.jinja").module
    with tqdm(unit="step", disable=None) as bar:

        def step(name: str) -> None:
            bar.update(1)
            bar.set_description(name)

        view = View(run, dataset, dataset.split(split), shown, arithmetic, seed, step, options)
        makers: list[SectionMaker] = [registry.load(name) for name in registry.references("report_sections")]
        sections = [section for maker in makers for section in maker(view)]
        if not sections:
            raise DataError(f"There is no report of runs for {run.recipe.kind}, as {run.path} is one.")
        step("writing")
        charts = curves.charts(curves.read_metrics(run.path / METRICS), run.info.get("best_epoch"))
        sections.append(Section(TRAINING, pieces.training(charts, curves)))
        sections.sort(key=lambda section: section.place)
        page = template.render(
            name=run.path.resolve().name,
            facts=_facts(view, [fact for section in sections for fact in section.facts]),
            summary=next((section.summary for section in sections if section.summary), ""),
            style="".join(section.style for section in sections),
            sections=[section.html for section in sections],
            version=__version__,
        )
        with replacing(out) as temporary:
            temporary.write_text(page, encoding="utf-8")
    lines = "\n".join(section.lines for section in sections if section.lines)
    return Report(out, lines, {name: value for section in sections for name, value in section.measured.items()})


def _facts(view: View, own: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns what the page's head tells of the run and the split, names and values."""
    run, part = view.run, view.part
    recipe, info = run.recipe, run.info
    epoch = f"{info['best_epoch'] + 1} of {recipe.training.epochs}" if "best_epoch" in info else "unknown"
    facts = [
        ("Recipe", f"{recipe.name} ({recipe.variant})"),
        ("Paper", recipe.paper),
        ("Trained on", info.get("dataset_name", "unknown")),
        (
            "Measured on",
            f"{view.dataset.name}, {part.name}: {len(part):,} images, {len(part.captions):,} captions",
        ),
        *own,
        ("Images", recipe.card_facts(run).get("images", "")),
        ("Parameters", f"{run.model.count_params():,}"),
        ("Selected epoch", epoch),
        ("Trained with", f"vsemb {info.get('versions', {}).get('vsemb', 'unknown')}"),
        ("Fingerprint", run.fingerprint),
    ]
    return [(name, value) for name, value in facts if value]

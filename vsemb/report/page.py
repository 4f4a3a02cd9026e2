"""Report page: the head, and sections from the base and from systems.

A section maker, named in `vsemb.registry.System.report_sections`, is a function of a `View` that returns sections, or
an empty list if the run belongs to another task.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from vsemb import __version__, registry
from vsemb.console import progress
from vsemb.data.store import Split, StoredDataset
from vsemb.drawing.templates import page_file, page_template
from vsemb.errors import DataError, counted, invalid_argument
from vsemb.files import is_locked, read_bytes, refuse_foreign, replacing
from vsemb.report import curves
from vsemb.report.space import Space
from vsemb.results import Result
from vsemb.runs.options import ReportOption
from vsemb.runs.run import METRICS, STATE, Run

T = TypeVar("T", bound=ReportOption)

#: Default file name of the report, inside the run directory.
REPORT = "report.html"
_GENERATOR = b'<meta name="generator" content="vsemb '
#: Values of `Section.place`; sections are sorted by it.
MEASURED, FOUND, WORST, EXPLAINED, TRAINING, ABOUT = 10, 20, 30, 40, 50, 60


class Cell(NamedTuple):
    """One cell of a table of measures.

    Attributes:
        text: the value.
        notes: lines below it, such as a confidence interval.
        percent: length of its bar, 0 to 100; None for no bar.
    """

    text: str
    notes: Sequence[str] = ()
    percent: float | None = None


class Measure(NamedTuple):
    """One row of a table of measures.

    Attributes:
        name: the metric's name.
        explained: its meaning, as a phrase.
        cells: one per column.
    """

    name: str
    explained: str
    cells: Sequence[Cell]


@dataclass(frozen=True)
class Section:
    """One section of the page.

    Attributes:
        place: sort key, see `MEASURED`.
        name: `id` of the element, unique in the page.
        title: heading, also the entry in the list of contents.
        html: content below the heading, rendered from a template that escapes all values.
        style: CSS rules for it.
        headline: main result as one sentence; the page's heading is the first that is not empty.
        facts: names and values for the section about the run.
        lines: the metrics as a table for the terminal.
        measured: the metrics as plain values.
    """

    place: int
    name: str
    title: str
    html: str
    style: str = ""
    headline: str = ""
    facts: Sequence[tuple[str, str]] = ()
    lines: str = ""
    measured: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class View:
    """Input of a section maker.

    Attributes:
        run: the run.
        dataset: the dataset.
        part: the split that is shown.
        shown: number of queries that each group shows at first, or of images with captions.
        arithmetic: examples as (image key, word to subtract, word to add).
        seed: random seed.
        step: function to call with the name of the next step, for the progress bar.
        options: options of systems that were given.
    """

    run: Run
    dataset: StoredDataset
    part: Split
    shown: int
    arithmetic: Sequence[tuple[str, str, str]]
    seed: int
    step: Callable[[str], None]
    options: Sequence[ReportOption]

    def option(self, kind: type[T]) -> T:
        """Return the options of a kind; its defaults if none were given."""
        return next((each for each in self.options if isinstance(each, kind)), kind())

    @cached_property
    def space(self) -> Space:
        """The split, embedded by the run."""
        self.step("embedding")
        return Space(self.run, self.dataset, self.part.name)


#: Return the sections of a page, or an empty list for a run of another task.
SectionMaker = Callable[[View], list[Section]]


@dataclass(frozen=True, repr=False)
class Report(Result):
    """The report of a run.

    Attributes:
        path: the file.
        size: its bytes.
        lines: the metrics as a table for the terminal.
        measured: the metrics as plain values; empty if the extra that computes them is not installed.
    """

    path: Path
    size: int
    lines: str
    measured: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the metrics."""
        return self.measured

    def __str__(self) -> str:
        return f"{self.lines}\n\n{self.path}  {self.size / 1e6:.1f} MB"


def report_run(
    run: Run,
    dataset: StoredDataset,
    split: str,
    out: Path,
    shown: int,
    arithmetic: Sequence[tuple[str, str, str]],
    seed: int,
    options: Sequence[ReportOption],
) -> Report:
    """Write the page of `vsemb.write_report`: script, styles and pictures are embedded.

    The output is deterministic: the same run, dataset and arguments give the same bytes.
    """
    for option in options:
        option.require(run)
    if out.is_dir():
        raise invalid_argument("out", str(out), "a file, not a directory")
    refuse_foreign(out, lambda file: _GENERATOR in read_bytes(file))
    template = page_template(__package__, "page.html.jinja")
    pieces = page_template(__package__, "pieces.html.jinja").module
    with progress(unit="step") as bar:

        def step(name: str) -> None:
            bar.update(1)
            bar.set_description(name)

        view = View(run, dataset, dataset.split(split), shown, arithmetic, seed, step, options)
        makers: list[SectionMaker] = [registry.load(name) for name in registry.references("report_sections")]
        sections = [section for maker in makers for section in maker(view)]
        if not sections:
            raise DataError(
                f"`run` must be of a task with a report, such as retrieval; got {run.recipe.kind} ({run.path})."
            )
        step("writing")
        charts = curves.charts(curves.read_metrics(run.path / METRICS), run.info.get("best_epoch"))
        facts = _details(run, [fact for section in sections for fact in section.facts])
        sections.append(Section(TRAINING, "training", "Training curves", pieces.training(charts, curves)))
        sections.append(Section(ABOUT, "about", "About this run", pieces.facts(facts)))
        sections.sort(key=lambda section: section.place)
        script = page_file(__package__, "page.js")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        page = template.render(
            name=run.path.resolve().name,
            headline=next((section.headline for section in sections if section.headline), ""),
            facts=pieces.facts(_summary(view)),
            sections=sections,
            run=run,
            dataset=dataset,
            version=__version__,
            script=script,
            script_hash=f"sha256-{digest}",
        )
        with replacing(out) as temporary:
            temporary.write_text(page, encoding="utf-8")
    lines = "\n".join(section.lines for section in sections if section.lines)
    measured = {name: value for section in sections for name, value in section.measured.items()}
    return Report(out, out.stat().st_size, lines, measured)


def _summary(view: View) -> list[tuple[str, str]]:
    """Return names and values for the head of the page: model, data, date."""
    recipe, info, part = view.run.recipe, view.run.info, view.part
    trained = info.get("dataset_name", "unknown")
    if "train_images" in info:
        trained += f": {info['train_images']:,} images, {info['train_captions']:,} captions"
    facts = [
        ("Recipe", f"{recipe.name} ({recipe.variant})"),
        ("Trained on", trained),
        ("Training", training_state(view.run)),
        ("Measured on", f"{view.dataset.name}, {part.name}: {len(part):,} images, {len(part.captions):,} captions"),
    ]
    return [(name, value) for name, value in facts if value]


def training_state(run: Run) -> str:
    """Return the state of the training, such as `stopped after epoch 1 of 3`; empty for a preset."""
    info, epochs = run.info, run.recipe.training.epochs
    rows = curves.read_metrics(run.path / METRICS).get("epoch", [])
    last = max((epoch + 1 for epoch, _ in rows), default=0)
    if info["status"] != "finished":
        doing = "in progress," if is_locked((run.path / STATE).parent) else "stopped"
        return f"{doing} after epoch {last} of {epochs}"
    if "finished" not in info:
        return ""
    day = date.fromisoformat(info["finished"])
    when = f"{day.day} {day:%B %Y}"
    if not last:
        return f"finished, {when}"
    if last < epochs:
        return f"stopped early after epoch {last} of {epochs}, {when}"
    return f"finished after {counted(last, 'epoch')}, {when}"


def _details(run: Run, own: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return names and values for the section about the run; `own` are the facts of other sections."""
    recipe, info = run.recipe, run.info
    epoch = f"{info['best_epoch'] + 1} of {recipe.training.epochs}" if "best_epoch" in info else ""
    facts = [
        ("Paper", recipe.paper),
        *own,
        ("Images", recipe.card_facts(run).get("images", "")),
        ("Parameters", f"{run.model.count_params():,}"),
        ("Selected epoch", epoch),
        ("Trained with", f"vsemb {info.get('versions', {}).get('vsemb', 'unknown')}"),
    ]
    return [(name, value) for name, value in facts if value]

"""The page of the demonstration: a heading, and the tabs that the base and the systems make for a run.

A tab maker, named in `vsemb.registry.System.demo_tabs`, is a function of a run and a dataset that opens what its tabs
need, or returns None for runs of another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Protocol

from vsemb import registry
from vsemb.data.store import Dataset
from vsemb.demo.images import ShownImages
from vsemb.demo.inputs import PageParts
from vsemb.errors import DataError
from vsemb.runs.run import Run


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Tabs:
    """What a run shows on the page.

    Attributes:
        images: those that the page offers by their keys.
        facts: what the page says of the run, a phrase.
        add: adds the tabs, or what stands in the place of tabs, to the page that is being built.
        close: closes what is open.
        written: writes captions of an image by its bytes or key, with their log-probabilities; None where the run
            writes none.
    """

    images: ShownImages
    facts: str
    add: Callable[[PageParts], None]
    close: Callable[[], None] = _nothing
    written: Callable[[bytes | str], Sequence[tuple[str, float]]] | None = None


class TabMaker(Protocol):
    """Opens what the tabs of a run need."""

    def __call__(
        self, run: Run, dataset: Dataset, split: str, report: Callable[[str], None], captioning: Tabs | None
    ) -> Tabs | None:
        """Returns the tabs; None for a run of another kind.

        Args:
            run: the run.
            dataset: the dataset searched, or whose images are captioned.
            split: its split, or `all`.
            report: called with a line worth showing.
            captioning: of another run, which writes captions of the images asked about.

        Raises:
            VsembError: if runs and dataset do not fit.
        """


def open_tabs(
    run: Run, dataset: Dataset, split: str, report: Callable[[str], None] = print, captioning: Run | None = None
) -> Tabs:
    """Opens what the page of a run needs.

    Args:
        run: the run.
        dataset: the dataset searched, or whose images are captioned.
        split: its split, or `all`.
        report: called with a line worth showing.
        captioning: another run, which writes captions of the images asked about; None for none.

    Raises:
        DataError: for a run of a task without a demonstration.
        VsembError: if runs and dataset do not fit.
    """
    other = None if captioning is None else open_tabs(captioning, dataset, split, report)
    for reference in registry.references("demo_tabs"):
        maker: TabMaker = registry.load(reference)
        if (tabs := maker(run, dataset, split, report, other)) is not None:
            return tabs
    raise DataError(f"There is no demonstration of runs for {run.recipe.kind}, as {run.path} is one.")


def build_page(gradio: Any, run: Run, tabs: Tabs) -> Any:
    """Builds the page.

    Args:
        gradio: the module, imported by the caller, since it is optional.
        run: the run.
        tabs: what it shows.

    Returns:
        `gradio.Blocks` with a tab for each thing that the run can do.

    Example:

        build_page(gradio, run, open_tabs(run, Dataset.open("data/flickr8k"), "val"))
    """
    parts = PageParts(gradio, tabs.images)
    name = run.path.name
    with gradio.Blocks(analytics_enabled=False, title=f"vsemb · {name}") as blocks:
        gradio.HTML(f"<h2>{escape(name)}</h2><p class='vsemb-hint'>{escape(tabs.facts)}</p>")
        tabs.add(parts)
    parts.queue(blocks)
    return blocks

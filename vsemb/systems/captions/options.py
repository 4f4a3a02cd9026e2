"""Options that captions bring to acts of the base: export, report and demonstration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vsemb import registry
from vsemb.demo.options import DemoOption
from vsemb.errors import invalid_argument
from vsemb.parts import Count, NonNegative
from vsemb.runs.options import ExportOption, ReportOption

if TYPE_CHECKING:
    from vsemb.runs.run import Run


def _require_captions(run: Run, options: Mapping[str, Any]) -> None:
    if isinstance(run.recipe, registry.load("vsemb.systems.captions.task:NextWordTask")):
        return
    for name, value in options.items():
        if value is not None:
            raise invalid_argument(name, value, "omitted for a run that writes no captions")


@dataclass(frozen=True)
class CaptionSearch(ExportOption, kind="captions"):
    """Set how a run that writes captions searches for them.

    Attributes:
        beam: beam width; default: the recipe's.
        n_best: captions per image; default: 5, at most the beam.
        length_penalty: divide log-probabilities by length to this power; default: the recipe's.
        max_words: maximum words per caption; default: the recipe's.
        candidates: candidate captions of sc-nlm; default: the recipe's.
    """

    beam: Count | None = None
    n_best: Count | None = None
    length_penalty: NonNegative | None = None
    max_words: Count | None = None
    candidates: Count | None = None

    def settings(self, run: Run) -> Mapping[str, Any]:
        from vsemb.systems.captions.captioner import CaptionOptions

        _require_captions(run, self.arguments())
        return {"options": CaptionOptions(**self.arguments())}


@dataclass(frozen=True)
class ReportedImages(ReportOption, kind="captions"):
    """Set which images a run that writes captions captions.

    Attributes:
        limit: images to caption, drawn at random; default: all, or 100 for slow captioners.
    """

    limit: Count | None = None

    def require(self, run: Run) -> None:
        _require_captions(run, self.arguments())


@dataclass(frozen=True)
class CaptionQueries(DemoOption, kind="captions"):
    """Captions of query images, by another run.

    Attributes:
        captions: directory of a run that writes captions; default: none.
    """

    captions: str | os.PathLike[str] | None = None

    def captioning(self) -> Run | None:
        if self.captions is None:
            return None
        from vsemb.systems.captions.captioning import open_captioning_run

        return open_captioning_run(self.captions)

"""Options of `vsemb.write_report` for runs that write captions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vsemb import registry
from vsemb.errors import invalid_argument
from vsemb.parts import Count
from vsemb.runs.options import ReportOption

if TYPE_CHECKING:
    from vsemb.runs.run import Run


@dataclass(frozen=True)
class CaptionedImages(ReportOption, kind="captions"):
    """Set which images a run that writes captions captions.

    Attributes:
        limit: images to caption, drawn at random; default: all, or 100 for slow captioners.
    """

    limit: Count | None = None

    def require(self, run: Run) -> None:
        if not isinstance(run.recipe, registry.load("vsemb.systems.captions.task:NextWordTask")):
            raise invalid_argument("limit", self.limit, "omitted for a run that writes no captions")

"""Options that captions bring to acts of the base."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vsemb.demo.options import DemoOption

if TYPE_CHECKING:
    from vsemb.runs.run import Run


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

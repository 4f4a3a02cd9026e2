"""Options of the demonstration page that systems bring, a family of parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vsemb.parts import Part

if TYPE_CHECKING:
    from vsemb.runs.run import Run


@dataclass(frozen=True)
class DemoOption(Part, family="demo option"):
    """An option of `vsemb demo`.

    Its module imports nothing heavy outside functions, because `--help` shows its fields.
    """

    def captioning(self) -> Run | None:
        """Open a run that writes captions of query images; None without one.

        Raises:
            DataError: if it writes no captions.
        """
        return None

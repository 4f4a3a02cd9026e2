"""`vsemb evaluate --protocol paraphrase`: the share of captions whose nearest other caption is of the same image."""

from __future__ import annotations

from dataclasses import dataclass

import vsemb
from vsemb.results import Table
from vsemb.runs.protocols import RETRIEVAL, Protocol


@dataclass(frozen=True)
class Paraphrase(Protocol, kind="paraphrase"):
    """How often the nearest caption is of the same image.

    Attributes:
        digits: digits of the percentage that is shown.
    """

    digits: int = 1
    tasks = (RETRIEVAL,)

    def measure(self, run: vsemb.Run, data: vsemb.Dataset, split: str) -> Table:
        from outsider.paraphrase import accuracy

        found = accuracy(run.model, run.tokenizer, data.split(split))
        return Table(f"paraphrase   {found:.{self.digits}f} %", {"paraphrase": found})

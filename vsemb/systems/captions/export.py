"""Options of `vsemb.export` for runs that write captions: the search for captions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vsemb import registry
from vsemb.errors import invalid_argument
from vsemb.parts import Count, NonNegative, fields_of
from vsemb.runs.options import ExportOption

if TYPE_CHECKING:
    from vsemb.runs.run import Run


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

        values = {name: getattr(self, name) for name in fields_of(type(self))}
        given = {name: value for name, value in values.items() if value is not None}
        if not isinstance(run.recipe, registry.load("vsemb.systems.captions.task:NextWordTask")):
            for name, value in given.items():
                raise invalid_argument(name, value, "omitted for a run that writes no captions")
        return {"options": CaptionOptions(**given)}

"""Opening a run whatever its task."""

from __future__ import annotations

import os
from pathlib import Path

from vsemb.runs.run import Run
from vsemb.runs.stored_run import read_recipe
from vsemb.systems.captions.caption_run import CaptionRun
from vsemb.systems.entailment.run import EntailmentRun
from vsemb.systems.language.language_run import LanguageRun

#: Task of a recipe -> its runs.
RUNS: dict[str, type[Run] | type[EntailmentRun] | type[CaptionRun] | type[LanguageRun]] = {
    "retrieval": Run,
    "entailment": EntailmentRun,
    "captions": CaptionRun,
    "language": LanguageRun,
}


def open_run(path: str | os.PathLike[str]) -> Run | EntailmentRun | CaptionRun | LanguageRun:
    """Opens a run directory of any task.

    Raises:
        DataError: if it is no run, or has no selected weights yet.

    Example:

        open_run("runs/snli").model.encode_texts(...)
    """
    return RUNS[read_recipe(Path(path)).task].open(path)

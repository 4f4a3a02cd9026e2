"""Opening a run whatever its task."""

from __future__ import annotations

import os
from pathlib import Path

from vsemb.recipes.caption_run import CaptionRun
from vsemb.recipes.entailment_run import EntailmentRun
from vsemb.recipes.language_run import LanguageRun
from vsemb.recipes.run import Run
from vsemb.recipes.stored_run import read_recipe

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

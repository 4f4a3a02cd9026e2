"""Opening a run whatever its task."""

from __future__ import annotations

import os
from pathlib import Path

from vsemb.recipes.entailment_run import EntailmentRun
from vsemb.recipes.run import Run
from vsemb.recipes.stored_run import read_recipe

#: Task of a recipe -> its runs.
RUNS: dict[str, type[Run] | type[EntailmentRun]] = {"retrieval": Run, "entailment": EntailmentRun}


def open_run(path: str | os.PathLike[str]) -> Run | EntailmentRun:
    """Opens a run directory of any task.

    Raises:
        DataError: if it is no run, or has no selected weights yet.

    Example:

        open_run("runs/snli").model.encode_texts(...)
    """
    return RUNS[read_recipe(Path(path)).task].open(path)

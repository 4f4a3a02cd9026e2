"""Serve and export a run: functions from raw strings and image bytes to the outputs of its task."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vsemb.exporting import Corpus, ModelFacts, export_savedmodel
from vsemb.runs.run import Run
from vsemb.searching.index import SearchIndex, StaleIndexError


def check_run(index: SearchIndex, run: Run) -> None:
    """Check that the embeddings of a run are comparable with an index.

    Raises:
        StaleIndexError: if the index was made with other weights.
    """
    if index.source.run != run.fingerprint:
        raise StaleIndexError(
            f"The index was made with another run than {run.path} ({index.source.run[:12]}, not "
            f"{run.fingerprint[:12]}), so they are not comparable. Name the run that made it, or make the "
            f"index again with: vsemb index {run.path}"
        )


def export_run(
    run: Run,
    out: str | os.PathLike[str],
    version: int | None = None,
    *,
    index: SearchIndex | None = None,
    report: Callable[[str], None] = print,
    **options: Any,
) -> Path:
    """Write a run as a version of a SavedModel; see `vsemb.exporting.export_savedmodel`.

    The dataset and access to the network are not needed.

    Args:
        run: a run of any task; `run.computed_in("mixed_bfloat16")` for a model in bfloat16.
        out: directory of the model.
        version: version number; None for the next.
        index: index of the same run for search inside the model; None exports without search.
        report: called with one line per change that clients of the previous export will notice.
        **options: options of the run's task, see `vsemb.recipes.schema.Recipe.served`: `extras`, further signatures.

    Raises:
        StaleIndexError: if the index was made with other weights.
        VsembError: as `vsemb.recipes.schema.Recipe.served` and `export_savedmodel`.

    Example:

        export_run(Run.open("runs/vsepp"), "savedmodels/flickr8k")
    """
    served = run.recipe.served(run, corpus=None if index is None else Corpus.of(index), **options)
    if index is not None:
        check_run(index, run)
    card = model_facts(run)
    return export_savedmodel(served, out, version=version, fingerprint=run.fingerprint, card=card, report=report)


def model_facts(run: Run) -> ModelFacts:
    """Return the facts about a run for the model card of its exports."""
    info, recipe = run.info, run.recipe
    best = {name.removeprefix("best_"): info[name] for name in info if name.startswith("best_")}
    epoch = best.pop("epoch", None)
    facts = recipe.card_facts(run)
    notes = list(facts.pop("notes", ()))
    if recipe.training.dtype != "float32":
        notes.append(
            f"Texts, and what stands behind an image network, are computed in {recipe.training.dtype}: "
            "embeddings have two digits."
        )
    return ModelFacts(
        recipe=recipe.name,
        variant=recipe.variant,
        paper=recipe.paper,
        dataset=info.get("dataset_name", ""),
        dataset_fingerprint=info["dataset"],
        selection="" if epoch is None else f"the best {', '.join(best)} on the split val, after epoch {epoch + 1}",
        metrics=best,
        notes=notes,
        **facts,
    )

"""Serve and export a run: functions from raw strings and image bytes to the outputs of its task."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsemb.exporting import Corpus, Figures, ModelFacts, export_savedmodel
from vsemb.exporting.contract import serving_command
from vsemb.printing import table
from vsemb.results import Result
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


@dataclass(frozen=True, repr=False)
class Exported(Result):
    """A version of an exported model; where a path is expected, its directory.

    Attributes:
        path: directory of the version.
        signatures: name -> inputs and outputs -> rows of name, type and shape.
        embeds_images: whether the run embeds images, possibly from precomputed features only.
    """

    path: Path
    signatures: Mapping[str, Mapping[str, Sequence[Sequence[str]]]]
    embeds_images: bool

    def __fspath__(self) -> str:
        return str(self.path)

    def to_json(self) -> dict[str, Any]:
        """Return the path and the signatures."""
        return {"path": str(self.path), "signatures": self.signatures}

    def __str__(self) -> str:
        rows = [
            [name, side, *row]
            for name, sides in self.signatures.items()
            for side, of_side in sides.items()
            for row in of_side
        ]
        parts = [str(self.path), table(["signature", "", "name", "type", "shape"], rows, text=range(5))]
        encoders = [name for name in self.signatures if name.startswith("encode_")]
        if encoders and "encode_text" not in encoders:
            parts.append(f"no encode_text: vsemb.Client converts texts to the inputs of {encoders[0]}")
        if encoders and "encode_image" not in encoders:
            reason = "embeds no images"
            if self.embeds_images:
                reason = "was trained on precomputed features and holds no image network"
            parts.append(f"no encode_image: the run {reason}")
        return "\n\n".join([*parts, f"next\n{serving_command(self.path)}"])

    def __repr__(self) -> str:
        return f"Exported({str(self.path)!r})"


def export_run(
    run: Run,
    out: str | os.PathLike[str],
    version: int | None = None,
    *,
    index: SearchIndex | None = None,
    measured: Sequence[Figures] = (),
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
        measured: figures for the model card, see `model_facts`.
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
    card = model_facts(run, measured)
    return export_savedmodel(served, out, version=version, fingerprint=run.fingerprint, card=card, report=report)


def model_facts(run: Run, measured: Sequence[Figures] = ()) -> ModelFacts:
    """Return the facts about a run for its model card.

    Args:
        run: the run.
        measured: further figures than the metrics of its validation, see `vsemb.runs.measure.figures`.
    """
    info, recipe = run.info, run.recipe
    best = [name.removeprefix("best_") for name in info if name.startswith("best_") and name != "best_epoch"]
    after = f"the split val, after epoch {info['best_epoch'] + 1}" if "best_epoch" in info else ""
    figures = [Figures(after, info["validation"])] if info.get("validation") else []
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
        selection=after and f"the best {', '.join(best)} on {after}",
        figures=[*figures, *measured],
        notes=notes,
        **facts,
    )

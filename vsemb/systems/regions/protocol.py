"""Protocol `pointing` of `vsemb.evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vsemb.parts import NonNegative, Whole
from vsemb.printing import table
from vsemb.results import Table
from vsemb.runs.protocols import RETRIEVAL, Protocol

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.runs.run import Run
    from vsemb.systems.regions.pointing import PointingMetrics, PointingShare


@dataclass(frozen=True)
class Pointing(Protocol, kind="pointing"):
    """Share of words whose region is the object that they name.

    A word is correct if its region overlaps its object with an intersection over union of 0.5 or more. The dataset must
    contain the words of a caption that name each object, like the data of `vsemb scenes`, of Flickr30k Entities and of
    RefCOCO (`vsemb prepare --format entities`, `--format refcoco`).

    Attributes:
        affinity: bonuses for neighbouring words on one region; default: several values.
        bootstrap: bootstrap samples for 95 % intervals; 0 for none.
    """

    affinity: tuple[NonNegative, ...] | None = None
    bootstrap: Whole = 0

    tasks: ClassVar[Sequence[str]] = (RETRIEVAL,)

    def measure(self, run: Run, data: StoredDataset, split: str) -> Table:
        from vsemb.systems.regions.pointing_task import measure_pointing

        metrics, chosen = measure_pointing(run, data, split, affinities=self.affinity, bootstrap=self.bootstrap)
        values = {"split": split, "affinity_chosen_on_val": chosen, **metrics.to_json()}
        return Table(pointing_table(metrics, split, chosen), values)


def pointing_table(metrics: PointingMetrics, split: str, chosen: float | None) -> str:
    """Return a table of pointing metrics in percent, with intervals if they were computed.

    Args:
        metrics: see `vsemb.systems.regions.pointing.evaluate_pointing`.
        split: name of the split.
        chosen: the best affinity on the validation split, marked in the table; None for no mark.
    """
    shares: list[tuple[str, PointingShare]] = [
        ("chance", metrics.chance),
        ("always the whole image", metrics.whole_image),
    ]
    for affinity, share in metrics.accuracy.items():
        notes = []
        if affinity == 0:
            notes.append("each word by itself")
        if affinity == chosen:
            notes.append("best on val")
        name = f"affinity {affinity:g}"
        if notes:
            name += f" ({', '.join(notes)})"
        shares.append((name, share))
    shares.append(("ceiling: a right region exists", metrics.ceiling))
    rows = []
    for name, share in shares:
        rows.append([name, f"{share.words:.1f}", f"{share.nouns:.1f}"])
        if share.intervals is not None:
            bounds = [share.intervals["words"], share.intervals["nouns"]]
            rows.append(["  95 %", *(f"{low:.1f}–{high:.1f}" for low, high in bounds)])
    images = f"{split}: {metrics.images} images, {metrics.regions:.1f} regions each"
    text = table([images, f"{metrics.words} words", f"{metrics.nouns} nouns"], rows)
    if metrics.undecided:
        text += f"\n{metrics.undecided} words count as wrong, since the model does not read them."
    return text

"""Protocol `zero-shot` of `vsemb.evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vsemb.errors import invalid_argument
from vsemb.parts import Count, PathName, Probability, Seed
from vsemb.printing import table
from vsemb.results import Table
from vsemb.runs.protocols import RETRIEVAL, Protocol

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.runs.run import Run
    from vsemb.systems.zero_shot.metrics import ZeroShotMetrics


@dataclass(frozen=True)
class ZeroShot(Protocol, kind="zero-shot"):
    """Recognize classes by their texts, and retrieve their images (Reed et al. 2016).

    The dataset must have class labels.

    Attributes:
        curve: also evaluate with 1, 2, 4, ..., 128 texts per class.
        typos: shares of mistyped characters, each measured by itself; default: 0.
        top: images retrieved per class.
        seen: allow classes of the training split.
        seed: random seed.
        picture: file of a t-SNE plot of the classes, such as classes.png.
    """

    curve: bool = False
    typos: tuple[Probability, ...] = (0.0,)
    top: Count = 50
    seen: bool = False
    seed: Seed = 0
    picture: PathName | None = None

    tasks: ClassVar[Sequence[str]] = (RETRIEVAL,)

    def check(self) -> None:
        if not self.typos:
            raise invalid_argument("typos", self.typos, "at least one share")

    def measure(self, run: Run, data: StoredDataset, split: str) -> Table:
        from vsemb.systems.zero_shot.class_names import ClassTokenizer
        from vsemb.systems.zero_shot.recognition import ZeroShotTask

        if any(self.typos) and isinstance(run.tokenizer, ClassTokenizer):
            fix = "The run reads class names in place of texts."
            raise invalid_argument("typos", max(self.typos), "0 for a run on attributes", fix)
        task = ZeroShotTask(run, data, split, seen=self.seen)
        if self.picture is not None:
            # First, since a picture that cannot be written must not cost a measurement.
            task.check_drawable(self.picture)
            task.draw(self.picture, seed=self.seed)
        measured = {
            share: task.measure(corrupt=share, curve=self.curve, top=self.top, seed=self.seed) for share in self.typos
        }
        text = zero_shot_table(measured, split, task.seen)
        rows = [{"typos": share, **metrics.to_json()} for share, metrics in measured.items()]
        if self.picture is not None:
            text += f"\n\n{self.picture}: the {len(task.names)} classes"
        return Table(text, {"split": split, "classes_seen": task.seen, "measured": rows})


_SEEN = {
    True: "Classes seen in training: ordinary classification, not zero-shot.",
    False: "The classes of the split are disjoint from the training classes.",
    None: "The run was trained on images without class labels, so overlap with these classes is unknown.",
}


def zero_shot_table(measured: Mapping[float, ZeroShotMetrics], split: str, seen: bool | None) -> str:
    """Format zero-shot metrics, in percent, with their curves if measured.

    Args:
        measured: share of mistyped characters -> metrics.
        split: name of the split.
        seen: see `vsemb.systems.zero_shot.recognition.ZeroShotTask`.
    """
    rows = []
    for share, metrics in measured.items():
        name = f"{100 * share:g} % of characters mistyped" if share else "all texts"
        values = (metrics.top1, metrics.top1_images, metrics.average_precision, metrics.chance)
        rows.append([name, *(f"{value:.1f}" for value in values)])
        for point in metrics.curve:
            if point.texts is not None:
                top1 = f"{point.top1:.1f} ± {point.top1_deviation:.1f}"
                precision = f"{point.average_precision:.1f} ± {point.average_precision_deviation:.1f}"
                rows.append([f"  {point.texts} per class", top1, "", precision, ""])
    first = next(iter(measured.values()))
    # At most all images are ranked.
    precision_name = f"AP@{min(first.top, first.images)}"
    header = [
        f"{split}: {first.classes} classes, {first.images} images, {first.texts} texts",
        *("top-1 per class", "top-1", precision_name, "chance"),
    ]
    lines = [table(header, rows), "", _SEEN[seen]]
    if first.average_precision_limit < 100:
        lines.append(
            f"{precision_name} is at most {first.average_precision_limit:.1f}, because classes have fewer images."
        )
    return "\n".join(lines)

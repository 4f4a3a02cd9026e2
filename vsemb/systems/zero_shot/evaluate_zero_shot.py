"""`vsemb evaluate --zero-shot`: images recognized among classes by the texts of these (Reed et al. 2016)."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vsemb.commands import table

if TYPE_CHECKING:
    from vsemb.recipes.schema import Recipe
    from vsemb.runs.run import Run
    from vsemb.systems.zero_shot.metrics import ZeroShotMetrics
    from vsemb.systems.zero_shot.recognition import ZeroShotTask

SUMMARY = "recognize classes by their texts, and retrieve their images"


def measures(recipe: Recipe) -> bool:
    """Whether it measures runs of a recipe: those for retrieval."""
    from vsemb.recipes.retrieval import Retrieval

    return isinstance(recipe, Retrieval)


def configure(parser: argparse._ActionsContainer) -> None:
    """Adds the protocol's options."""
    parser.add_argument("--curve", action="store_true", help="also use 1, 2, 4, ..., 128 texts per class")
    parser.add_argument("--typos", type=float, nargs="+", metavar="SHARE", help="share of characters to mistype (0)")
    parser.add_argument("--top", type=int, default=50, metavar="K", help="images retrieved per class (%(default)s)")
    parser.add_argument("--seen", action="store_true", help="allow classes of the training split")
    parser.add_argument("--seed", type=int, default=0, help="of draws, typing errors and the picture (%(default)s)")
    parser.add_argument("--picture", metavar="FILE.png", help="draw the classes, near ones together")


def run(arguments: argparse.Namespace, opened: Run) -> dict[str, Any]:
    """Measures, prints and draws; returns what is written as JSON."""
    from vsemb.files import write_json

    task = _task(arguments, opened)
    shares = [0.0] if arguments.typos is None else arguments.typos
    options = {"curve": arguments.curve, "top": arguments.top, "seed": arguments.seed}
    measured = {share: task.measure(corrupt=share, **options) for share in shares}
    print(zero_shot_table(measured, arguments.split, task.seen))
    rows = [{"typos": share, **metrics.to_json()} for share, metrics in measured.items()]
    found = {"split": arguments.split, "classes_seen": task.seen, "measured": rows}
    if arguments.picture is not None:
        # The metrics are kept if drawing fails.
        if arguments.json:
            write_json(arguments.json, found)
        task.draw(arguments.picture, seed=arguments.seed)
        print(f"\n{arguments.picture}: the {len(task.names)} classes")
    return found


def _task(arguments: argparse.Namespace, opened: Run) -> ZeroShotTask:
    """Refuses what cannot be measured or drawn before anything is."""
    from vsemb.errors import invalid_argument
    from vsemb.systems.zero_shot.class_names import ClassTokenizer
    from vsemb.systems.zero_shot.metrics import check_seed
    from vsemb.systems.zero_shot.recognition import ZeroShotTask

    shares = arguments.typos or []
    wrong = [share for share in shares if not 0 <= share <= 1]
    if wrong:
        raise invalid_argument("typos", wrong[0], "shares from 0 to 1")
    if any(shares) and isinstance(opened.tokenizer, ClassTokenizer):
        fix = "It reads no text, so there is nothing to mistype."
        raise invalid_argument("typos", max(shares), "0 for a run on attributes", fix)
    check_seed(arguments.seed)
    task = ZeroShotTask(opened, opened.open_data(arguments.data), arguments.split, seen=arguments.seen)
    if arguments.picture is not None:
        task.check_drawable(arguments.picture)
    return task


_SEEN = {
    True: "Classes seen in training: ordinary classification, not zero-shot.",
    False: "No class of the split was trained on.",
    None: "The run was trained on images without classes; whether of these is not known.",
}


def zero_shot_table(measured: Mapping[float, ZeroShotMetrics], split: str, seen: bool | None) -> str:
    """Lays out zero-shot metrics, in percent, with their curves where they are there.

    Args:
        measured: share of mistyped characters -> metrics.
        split: its name.
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
    # All images are looked at where there are fewer than that.
    precision_name = f"AP@{min(first.top, first.images)}"
    header = [
        f"{split}: {first.classes} classes, {first.images} images, {first.texts} texts",
        *("top-1 per class", "top-1", precision_name, "chance"),
    ]
    lines = [table(header, rows), "", _SEEN[seen]]
    if first.average_precision_limit < 100:
        lines.append(f"{precision_name} is at most {first.average_precision_limit:.1f}: classes have fewer images.")
    return "\n".join(lines)

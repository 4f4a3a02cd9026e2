"""`vsemb evaluate --pointing`: the words of captions choose regions of their image.

A word is right where its region overlaps what it names with an intersection over union of 0.5 or more.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from vsemb.commands import table

if TYPE_CHECKING:
    from vsemb.recipes.schema import Recipe
    from vsemb.runs.run import Run
    from vsemb.systems.regions.pointing_metrics import PointingMetrics, PointingShare

SUMMARY = "share of words that choose the region of what they name"
USES = ("bootstrap",)


def measures(recipe: Recipe) -> bool:
    """Whether it measures runs of a recipe: those for retrieval."""
    from vsemb.recipes.retrieval import Retrieval

    return isinstance(recipe, Retrieval)


def configure(parser: argparse._ActionsContainer) -> None:
    """Adds the protocol's options."""
    parser.add_argument(
        "--affinity",
        type=float,
        nargs="+",
        metavar="BETA",
        help="bonus for neighbouring words on one region (several)",
    )


def run(arguments: argparse.Namespace, opened: Run) -> dict[str, Any]:
    """Measures and prints; returns what is written as JSON."""
    from vsemb.systems.regions.pointing import measure_pointing

    metrics, chosen = measure_pointing(
        opened,
        opened.open_data(arguments.data),
        arguments.split,
        affinities=arguments.affinity,
        bootstrap=arguments.bootstrap,
    )
    print(pointing_table(metrics, arguments.split, chosen))
    return {"split": arguments.split, "affinity_chosen_on_val": chosen, **metrics.to_json()}


def pointing_table(metrics: PointingMetrics, split: str, chosen: float | None) -> str:
    """Lays out pointing metrics, in percent, with their intervals where they are there.

    Args:
        metrics: see `vsemb.systems.regions.pointing_metrics.evaluate_pointing`.
        split: its name.
        chosen: the affinity that is best on the validation split, which is marked; None marks none.
    """
    shares: list[tuple[str, PointingShare]] = [
        ("chance", metrics.chance),
        ("always the whole image", metrics.whole_image),
    ]
    for affinity, share in metrics.accuracy.items():
        notes = ["each word by itself"] if affinity == 0 else []
        notes += ["best on val"] if affinity == chosen else []
        shares.append((f"affinity {affinity:g}" + (f" ({', '.join(notes)})" if notes else ""), share))
    shares.append(("ceiling: a right region exists", metrics.ceiling))
    rows = []
    for name, share in shares:
        rows.append([name, f"{share.words:.1f}", f"{share.nouns:.1f}"])
        if share.intervals is not None:
            bounds = (share.intervals[part] for part in ("words", "nouns"))
            rows.append(["  95 %", *(f"{low:.1f}–{high:.1f}" for low, high in bounds)])
    header = [f"{split}: {metrics.images} images, {metrics.regions:.1f} regions each"]
    header += [f"{metrics.words} words", f"{metrics.nouns} nouns"]
    lines = [table(header, rows)]
    if metrics.undecided:
        lines.append(f"{metrics.undecided} words count as wrong, since the model does not read them.")
    return "\n".join(lines)

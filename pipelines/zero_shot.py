"""Zero-shot recognition with every text encoder: tables 1 and 2 and figure 4 of Reed et al. 2016.

    python -m pipelines.zero_shot                       synthetic flowers, made and measured in OUT
    python -m pipelines.zero_shot --data data/birds     a dataset with classes and features

Trains `da-sje-ENCODER` and `ds-sje-ENCODER` and prints top-1 accuracy and AP@50 over classes that no model
was trained on. Without --data it first makes the dataset (vsemb scenes --fine-grained) and trains an image
network on the labels of the training classes. Run again, it goes on where it was stopped.

--sentences 1 2 5 10   figure 4a: trained on so many captions of each image
--curve                figure 4b: with 1, 2, 4, ... texts a class at test time
--typos 0.05 0.1 0.2   with so large a share of the texts' characters corrupted at test time
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.class_backbone import train_class_backbone
from vsemb import recipes
from vsemb.cli.__main__ import main as vsemb
from vsemb.cli.tables import table
from vsemb.data.store import Dataset
from vsemb.errors import DataError, VsembError, unknown_name
from vsemb.evaluation.zero_shot import ZeroShotMetrics
from vsemb.files import write_json
from vsemb.recipes.run import Run
from vsemb.recipes.sje import ENCODERS
from vsemb.recipes.train import train
from vsemb.recipes.zero_shot import ZeroShotTask

#: Encoders without captions, or without word order, that figure 4a and typing errors say nothing about.
WITHOUT_TEXT = ("attributes",)
OBJECTIVES = ("da", "ds")


def flowers(out: Path) -> Path:
    """Makes the synthetic flowers and their features; returns the dataset's directory."""
    data, weights = out / "flowers", out / "backbone.weights.h5"
    run_command(["scenes", "--fine-grained", "--out", str(data)])
    if not weights.exists():
        print("training an image network on the labels of the training classes", flush=True)
        accuracy = train_class_backbone(Dataset.open(data), weights)
        print(f"its training accuracy: {100 * accuracy:.1f} %")
    run_command(
        ["features", str(data), "--backbone", "SmallConvNet", "--weights", str(weights), "--training-crops"]
    )
    return data


def run_command(arguments: list[str]) -> None:
    """Runs a `vsemb` command.

    Raises:
        DataError: if it fails; it has said why.
    """
    print(f"$ vsemb {' '.join(arguments)}", flush=True)
    if vsemb(arguments):
        raise DataError(f"vsemb {arguments[0]} failed.")


class Runs:
    """Trains recipes on a dataset, one run a recipe, seed and number of captions.

    Args:
        dataset: the dataset.
        out: where the runs go.
        variant: of the recipes.
        settings: overrides, as `vsemb train --set` takes them.
        seeds: how many runs are averaged.
        split: the split to measure on.
    """

    def __init__(
        self, dataset: Dataset, out: Path, variant: str, settings: Sequence[str], seeds: int, split: str
    ) -> None:
        self.dataset, self.out, self.variant = dataset, out, variant
        self.settings, self.seeds, self.split = list(settings), seeds, split

    def tasks(self, name: str, captions: int | None = None) -> list[ZeroShotTask]:
        """Trains a recipe with each seed, or opens what was trained.

        Args:
            name: of the recipe.
            captions: a training image; None for all.
        """
        found = []
        for seed in range(self.seeds):
            extra = [f"training.seed={seed}"]
            extra += [] if captions is None else [f"batches.captions_per_image={captions}"]
            recipe = recipes.get(name, self.variant).with_overrides([*extra, *self.settings])
            folder = "-".join(
                [name, self.variant, str(seed), *([] if captions is None else [f"captions{captions}"])]
            )
            run: Run = train(recipe, self.dataset, self.out / "runs" / folder)
            found.append(ZeroShotTask(run, self.dataset, self.split))
        return found


def mean(values: Sequence[float]) -> float:
    """Returns the mean."""
    return statistics.fmean(values)


def summary(metrics: Sequence[ZeroShotMetrics]) -> dict[str, Any]:
    """Returns mean and deviation over the seeds, in percent."""
    top1, precision = [m.top1 for m in metrics], [m.average_precision for m in metrics]
    return {
        "top1": mean(top1),
        "top1_deviation": statistics.pstdev(top1),
        "average_precision": mean(precision),
        "average_precision_deviation": statistics.pstdev(precision),
    }


def print_table(measured: dict[str, dict[str, Any]], encoders: Sequence[str], top: int) -> None:
    """Prints the table of encoders and objectives, as tables 1 and 2 of the paper."""
    objectives = [o for o in OBJECTIVES if any(o in found for found in measured.values())]
    rows = [
        [
            encoder,
            *(f"{measured[encoder][o]['top1']:.1f}" for o in objectives),
            *(f"{measured[encoder][o]['average_precision']:.1f}" for o in objectives),
        ]
        for encoder in encoders
    ]
    titles = [f"top-1 {o.upper()}" for o in objectives] + [f"AP@{top} {o.upper()}" for o in objectives]
    print(f"\n{table(['encoder', *titles], rows)}")


def print_series(title: str, heads: Sequence[str], rows: dict[str, list[tuple[float, float]]]) -> None:
    """Prints top-1 and AP@50 of each encoder against something."""
    cells = [[name, *(f"{top1:.1f} / {ap:.1f}" for top1, ap in values)] for name, values in rows.items()]
    print(f"\n{title}, top-1 / AP@50 of DS-SJE\n{table(['encoder', *heads], cells)}")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains and measures everything that is asked for; returns it as plain values."""
    data = arguments.data or flowers(arguments.out)
    dataset = Dataset.open(data)
    encoders = list(arguments.encoders)
    if dataset.attributes is None and "attributes" in encoders:
        print("the dataset has no attributes: that row is left out")
        encoders.remove("attributes")
    runs = Runs(dataset, arguments.out, arguments.variant, arguments.set, arguments.seeds, arguments.split)
    measured: dict[str, dict[str, Any]] = {encoder: {} for encoder in encoders}
    trained: dict[str, list[ZeroShotTask]] = {}
    found: ZeroShotMetrics | None = None
    for encoder in encoders:
        for objective in arguments.objectives:
            tasks = runs.tasks(f"{objective}-sje-{encoder}")
            metrics = [task.measure() for task in tasks]
            found = metrics[0]
            measured[encoder][objective] = summary(metrics)
            if objective == "ds":
                trained[encoder] = tasks
    assert found is not None
    result: dict[str, Any] = {"dataset": dataset.name, "split": arguments.split, "table": measured}
    result |= {name: getattr(found, name) for name in ("classes", "images", "texts", "chance")}
    print_table(measured, encoders, found.top)
    print(
        f"percent, mean over {arguments.seeds} seed(s); {found.classes} classes, {found.images} images; "
        f"chance {found.chance:.1f}, AP@{found.top} at most {found.average_precision_limit:.1f}"
    )
    reading = {name: tasks for name, tasks in trained.items() if name not in WITHOUT_TEXT}
    if arguments.sentences:
        result["sentences"] = _sentences(runs, list(reading), arguments.sentences)
    if arguments.curve:
        result["curve"] = _curve(reading)
    if arguments.typos:
        result["typos"] = _typos(reading, arguments.typos)
    return result


def _sentences(runs: Runs, encoders: list[str], counts: Sequence[int]) -> dict[str, Any]:
    rows = {}
    for encoder in encoders:
        found = [[t.measure() for t in runs.tasks(f"ds-sje-{encoder}", count)] for count in counts]
        rows[encoder] = [(s["top1"], s["average_precision"]) for s in map(summary, found)]
    print_series("Captions a training image", [str(count) for count in counts], rows)
    return {"captions_per_image": list(counts), "measured": rows}


def _curve(trained: dict[str, list[ZeroShotTask]]) -> dict[str, Any]:
    rows, points = {}, []
    for encoder, tasks in trained.items():
        curves = [task.measure(curve=True).curve for task in tasks]
        points = [point.to_json()["texts"] for point in curves[0]]
        rows[encoder] = [
            (mean([p.top1 for p in group]), mean([p.average_precision for p in group]))
            for group in zip(*curves, strict=True)
        ]
    print_series("Texts a class in the test", [str(point) for point in points], rows)
    return {"texts_per_class": points, "measured": rows}


def _typos(trained: dict[str, list[ZeroShotTask]], shares: Sequence[float]) -> dict[str, Any]:
    rows = {}
    for encoder, tasks in trained.items():
        found = [[task.measure(corrupt=share) for task in tasks] for share in (0.0, *shares)]
        rows[encoder] = [(s["top1"], s["average_precision"]) for s in map(summary, found)]
    print_series("Characters with a typing error", [f"{share:.0%}" for share in (0.0, *shares)], rows)
    return {"shares": [0.0, *shares], "measured": rows}


def main(argv: list[str] | None = None) -> int:
    """Runs the pipeline; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a dataset with classes and features (synthetic flowers)")
    parser.add_argument(
        "--out", type=Path, default=Path("zero_shot"), help="where everything goes (%(default)s)"
    )
    parser.add_argument(
        "--encoders", nargs="+", default=list(ENCODERS), metavar="E", help=f"(all) {', '.join(ENCODERS)}"
    )
    parser.add_argument("--objectives", nargs="+", choices=OBJECTIVES, default=list(OBJECTIVES))
    parser.add_argument(
        "--variant", default="released", help="of the recipes: released or paper (%(default)s)"
    )
    parser.add_argument("--seeds", type=int, default=1, help="runs that are averaged (%(default)s)")
    parser.add_argument("--split", default="test", help="the split to measure on (%(default)s)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="as in vsemb train; repeatable"
    )
    parser.add_argument("--sentences", nargs="+", type=int, default=[], metavar="N", help="figure 4a")
    parser.add_argument("--curve", action="store_true", help="figure 4b")
    parser.add_argument("--typos", nargs="+", type=float, default=[], metavar="SHARE")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything to FILE as JSON")
    arguments = parser.parse_args(argv)
    try:
        for encoder in arguments.encoders:
            if encoder not in ENCODERS:
                raise unknown_name("encoders", encoder, ENCODERS)
        result = measure(arguments)
    except VsembError as error:
        print(f"zero_shot: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("zero_shot: interrupted; the same command goes on from here.", file=sys.stderr)
        return 130
    if arguments.json:
        write_json(arguments.json, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())

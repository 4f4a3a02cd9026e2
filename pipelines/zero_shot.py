"""Measure zero-shot recognition with all text encoders: tables 1 and 2 and figure 4 of Reed et al. 2016.

    python -m pipelines.zero_shot                       synthetic flowers, made and measured in OUT
    python -m pipelines.zero_shot --data data/birds     a dataset with classes and features

Trains `da-sje-ENCODER` and `ds-sje-ENCODER`, and prints top-1 accuracy and AP@50 on unseen classes. Without --data it
first generates the dataset (vsemb scenes --kind flowers) and trains an image network on the labels of the training
classes. After an interruption the same command resumes.

--sentences 1 2 5 10   figure 4a: number of captions per image in training
--curve                figure 4b: 1, 2, 4, ... texts per class at test time
--typos 0.05 0.1 0.2   share of corrupted characters in the texts at test time
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.class_backbone import train_class_backbone
from pipelines.running import main_of, parser_of
from vsemb import recipes, train
from vsemb.cli.__main__ import main as vsemb
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError, invalid_argument, unknown_name
from vsemb.files import write_json
from vsemb.printing import table
from vsemb.runs.run import Run
from vsemb.systems.zero_shot.metrics import CurvePoint, ZeroShotMetrics
from vsemb.systems.zero_shot.recognition import ZeroShotTask
from vsemb.systems.zero_shot.sje import ENCODERS

#: Encoders without captions, which are not in figure 4a and the typing errors.
WITHOUT_TEXT = ("attributes",)
OBJECTIVES = ("da", "ds")


def flowers(out: Path) -> Path:
    """Generate the synthetic flowers and their features; return the dataset's directory."""
    data, weights = out / "flowers", out / "backbone.weights.h5"
    run_command(["scenes", "--kind", "flowers", "--out", str(data)])
    if not weights.exists():
        print("training an image network on the labels of the training classes", flush=True)
        accuracy = train_class_backbone(StoredDataset.open(data), weights)
        print(f"its training accuracy: {100 * accuracy:.1f} %")
    run_command(["features", str(data), "--backbone", "SmallConvNet", "--weights", str(weights), "--training-crops"])
    return data


def run_command(arguments: list[str]) -> None:
    """Run a `vsemb` command.

    Raises:
        DataError: if it fails; the command prints the reason.
    """
    print(f"$ vsemb {' '.join(arguments)}", flush=True)
    if vsemb(arguments):
        raise DataError(f"vsemb {arguments[0]} failed.")


class Runs:
    """Trained runs on a dataset, one per recipe, seed and number of captions.

    Args:
        dataset: the dataset.
        out: folder of the runs.
        variant: variant of the recipes.
        settings: overrides in the form of `vsemb train --set`.
        seeds: number of runs to average.
        split: split for measurement.
    """

    def __init__(
        self, dataset: StoredDataset, out: Path, variant: str, settings: Sequence[str], seeds: int, split: str
    ) -> None:
        self.dataset, self.out, self.variant = dataset, out, variant
        self.settings, self.seeds, self.split = list(settings), seeds, split

    def tasks(self, name: str, captions: int | None = None) -> list[ZeroShotTask]:
        """Train a recipe with each seed, or open existing runs.

        Args:
            name: name of the recipe.
            captions: number of captions per training image; None for all.
        """
        tasks = []
        for seed in range(self.seeds):
            folder, settings = f"{name}-{self.variant}-{seed}", [f"training.seed={seed}"]
            if captions is not None:
                folder += f"-captions{captions}"
                settings.append(f"batches.captions_per_image={captions}")
            recipe = recipes.get(name, self.variant).with_overrides([*settings, *self.settings])
            run: Run = train(recipe, self.dataset, self.out / "runs" / folder)
            tasks.append(ZeroShotTask(run, self.dataset, self.split))
        return tasks


def summary(metrics: Sequence[ZeroShotMetrics | CurvePoint]) -> dict[str, Any]:
    """Return means and deviations over the seeds, in percent."""
    top1, precision = [m.top1 for m in metrics], [m.average_precision for m in metrics]
    return {
        "texts": metrics[0].texts,
        "top1": statistics.fmean(top1),
        "top1_deviation": statistics.pstdev(top1),
        "average_precision": statistics.fmean(precision),
        "average_precision_deviation": statistics.pstdev(precision),
    }


def point(points: Sequence[CurvePoint]) -> dict[str, Any]:
    """Return the means over the seeds of one point of a curve; deviations are over samples of texts."""
    means = summary(points)
    means["top1_deviation"] = statistics.fmean(point.top1_deviation for point in points)
    means["average_precision_deviation"] = statistics.fmean(point.average_precision_deviation for point in points)
    return means


def print_table(measured: dict[str, dict[str, Any]], encoders: Sequence[str], top: int) -> None:
    """Print the table of encoders and objectives, like tables 1 and 2 of the paper."""
    header, rows = ["encoder"], {encoder: [encoder] for encoder in encoders}
    for name, title in (("top1", "top-1"), ("average_precision", f"AP@{top}")):
        for objective in OBJECTIVES:
            if objective not in measured[encoders[0]]:
                continue
            header.append(f"{title} {objective.upper()}")
            for encoder in encoders:
                rows[encoder].append(f"{measured[encoder][objective][name]:.1f}")
    print(f"\n{table(header, list(rows.values()))}")


def print_series(title: str, heads: Sequence[str], rows: dict[str, list[dict[str, Any]]]) -> None:
    """Print top-1 and AP@50 per encoder over the values in `heads`, with non-zero deviations."""
    for name, label in (("top1", "top-1"), ("average_precision", "AP@50")):
        cells = []
        for encoder, values in rows.items():
            cells.append([encoder, *(_with_deviation(value, name) for value in values)])
        print(f"\n{title}, {label} of DS-SJE\n{table(['encoder', *heads], cells)}")


def _with_deviation(value: dict[str, Any], name: str) -> str:
    deviation = value[f"{name}_deviation"]
    return f"{value[name]:.1f} ± {deviation:.1f}" if deviation else f"{value[name]:.1f}"


def check(arguments: argparse.Namespace) -> None:
    """Check the arguments before any work.

    Raises:
        InvalidArgumentError: for an invalid value, or curves without the objective `ds`.
    """
    for encoder in arguments.encoders:
        if encoder not in ENCODERS:
            raise unknown_name("encoders", encoder, ENCODERS)
    if arguments.seeds < 1:
        raise invalid_argument("seeds", arguments.seeds, "an integer >= 1")
    if arguments.split == "train":
        raise invalid_argument("split", arguments.split, "one that was not trained on")
    for share in arguments.typos:
        if not 0 <= share <= 1:
            raise invalid_argument("typos", share, "shares from 0 to 1")
    for count in arguments.sentences:
        if count < 1:
            raise invalid_argument("sentences", count, "integers >= 1")
    if (arguments.sentences or arguments.curve or arguments.typos) and "ds" not in arguments.objectives:
        raise invalid_argument("objectives", arguments.objectives, "a list with ds", "The curves show DS-SJE.")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train and measure all requested models; return the results as JSON values."""
    check(arguments)
    data = arguments.data or flowers(arguments.out)
    dataset = StoredDataset.open(data)
    dataset.split(arguments.split)
    encoders = list(arguments.encoders)
    if dataset.annotation("attributes") is None and "attributes" in encoders:
        print("the dataset has no attributes: that row is left out")
        encoders.remove("attributes")
    if not encoders:
        raise DataError(f"{dataset.path} has no attributes, and no other encoder is asked for.")
    runs = Runs(dataset, arguments.out, arguments.variant, arguments.set, arguments.seeds, arguments.split)
    measured: dict[str, dict[str, Any]] = {encoder: {} for encoder in encoders}
    trained: dict[str, list[ZeroShotTask]] = {}
    every: list[ZeroShotMetrics] = []
    for encoder in encoders:
        for objective in arguments.objectives:
            tasks = runs.tasks(f"{objective}-sje-{encoder}")
            metrics = [task.measure() for task in tasks]
            every += metrics
            measured[encoder][objective] = summary(metrics)
            if objective == "ds" and encoder not in WITHOUT_TEXT:
                trained[encoder] = tasks
    first = every[0]
    result: dict[str, Any] = {"dataset": dataset.name, "split": arguments.split, "table": measured}
    result |= {name: getattr(first, name) for name in ("classes", "images", "chance")}
    print_table(measured, encoders, first.top)
    print(
        f"percent, mean over {arguments.seeds} seed(s); {first.classes} classes, {first.images} images; "
        f"chance {first.chance:.1f}, AP@{first.top} at most {first.average_precision_limit:.1f}"
    )
    if arguments.sentences:
        result["sentences"] = _sentences(runs, list(trained), arguments.sentences)
    if arguments.curve:
        result["curve"] = _curve(trained)
    if arguments.typos:
        result["typos"] = _typos(trained, arguments.typos)
    return result


def _sentences(runs: Runs, encoders: list[str], counts: Sequence[int]) -> dict[str, Any]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for encoder in encoders:
        tasks = [runs.tasks(f"ds-sje-{encoder}", count) for count in counts]
        rows[encoder] = [summary([task.measure() for task in of_count]) for of_count in tasks]
    print_series("Captions a training image", [str(count) for count in counts], rows)
    return {"captions_per_image": list(counts), "measured": rows}


def _curve(trained: dict[str, list[ZeroShotTask]]) -> dict[str, Any]:
    rows: dict[str, list[dict[str, Any]]] = {}
    heads: list[str] = []
    for encoder, tasks in trained.items():
        curves = [task.measure(curve=True).curve for task in tasks]
        heads = [str(of_point.to_json()["texts"]) for of_point in curves[0]]
        rows[encoder] = [point(group) for group in zip(*curves, strict=True)]
    print_series("Texts a class in the test", heads, rows)
    return {"texts_per_class": heads, "measured": rows}


def _typos(trained: dict[str, list[ZeroShotTask]], shares: Sequence[float]) -> dict[str, Any]:
    # The mean over hundreds of texts hides typing errors, so the result for one text per class is shown too.
    shares = (0.0, *shares)
    one: dict[str, list[dict[str, Any]]] = {}
    every: dict[str, list[dict[str, Any]]] = {}
    for encoder, tasks in trained.items():
        curves = [[task.measure(corrupt=share, curve=True).curve for task in tasks] for share in shares]
        one[encoder] = [point([curve[0] for curve in of_share]) for of_share in curves]
        every[encoder] = [point([curve[-1] for curve in of_share]) for of_share in curves]
    heads = [f"{share:.0%}" for share in shares]
    print_series("Characters with a typing error, one text a class", heads, one)
    print_series("Characters with a typing error, all texts", heads, every)
    return {"shares": list(shares), "one_text": one, "all_texts": every}


def main(argv: list[str] | None = None) -> int:
    """Run the pipeline and return the exit status."""
    parser = parser_of("zero_shot", __doc__)
    parser.add_argument("--data", type=Path, help="a dataset with classes and features (synthetic flowers)")
    parser.add_argument("--out", type=Path, default=Path("zero_shot"), help="where everything goes (%(default)s)")
    parser.add_argument(
        "--encoders", nargs="+", default=list(ENCODERS), metavar="E", help=f"(all) {', '.join(ENCODERS)}"
    )
    parser.add_argument("--objectives", nargs="+", choices=OBJECTIVES, default=list(OBJECTIVES))
    parser.add_argument("--variant", default="released", help="of the recipes: released or paper (%(default)s)")
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
    return main_of("zero_shot", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    result = measure(arguments)
    if arguments.json:
        write_json(arguments.json, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())

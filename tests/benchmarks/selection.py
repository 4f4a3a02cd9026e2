"""How much selection flatters: recall of the epoch that is best on other images, and of the epoch that is best itself.

    python -m tests.benchmarks.selection --data DATASET [--recipe vsepp --variant tuned] [--seeds 0 1 2]
        [--held-out 1000] [--set FIELD=VALUE] [--json FILE]

The dataset has features, see `vsemb features`. For each seed, images of the training split are held out at random, and
the recipe trains on the others. Every epoch is measured on the held-out images and on the validation split:

    measured once    recall sum on validation in the epoch that is best on the held-out images
    selected         recall sum on validation in the epoch that is best there, as `vsemb train` selects it
    flattered by     their difference

Finished seeds of the JSON file are not measured again.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from tests.benchmarks.subsets import Reduced, Subset, embedded, epochs_of
from vsemb import recipes
from vsemb.data.store import StoredDataset
from vsemb.evaluation import evaluate_retrieval
from vsemb.files import read_json, write_json
from vsemb.printing import table
from vsemb.recipes.retrieval import Retrieval

_SUMS = ("held out", "measured once", "selected", "flattered by")


def divided(dataset: StoredDataset, held_out: int, seed: int) -> tuple[Reduced, Subset]:
    """Return the dataset without some training images, and these."""
    split = dataset.split("train")
    order, every = np.random.default_rng(seed).permutation(len(split)), np.ones(len(split.captions), bool)
    others, rest = (Subset(split, np.sort(rows), every) for rows in np.split(order, [held_out]))
    return Reduced(dataset, rest), others


def trained(dataset: StoredDataset, recipe: Retrieval, held_out: int) -> list[dict[str, Any]]:
    """Train a recipe without some images, and measure every epoch on them and on the validation split."""
    rest, others = divided(dataset, held_out, recipe.training.seed)
    epochs: list[dict[str, Any]] = []
    for job, model in epochs_of(rest, recipe):
        parts = {"held out": others, "val": dataset.split("val")}
        metrics = {
            name: evaluate_retrieval(*embedded(model, job, part), model.similarity) for name, part in parts.items()
        }
        epochs.append({name: measured.recall_sum for name, measured in metrics.items()})
        print(len(epochs), epochs[-1], flush=True)
        best = int(np.argmax([each["held out"] for each in epochs]))
        if recipe.training.patience is not None and len(epochs) - 1 - best >= recipe.training.patience:
            break
    return epochs


def summarized(epochs: list[dict[str, Any]]) -> dict[str, float]:
    """Compare the two ways to select an epoch.

    Example:

    >>> summarized([{"held out": 3.0, "val": 1.0}, {"held out": 2.0, "val": 4.0}])
    {'held out': 3.0, 'measured once': 1.0, 'selected': 4.0, 'flattered by': 3.0}
    """
    best = max(epochs, key=lambda each: each["held out"])
    selected = max(each["val"] for each in epochs)
    sums = (best["held out"], best["val"], selected, selected - best["val"])
    return dict(zip(_SUMS, sums, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--recipe", default="vsepp")
    parser.add_argument("--variant", default="tuned")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--held-out", type=int, default=1000)
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    dataset = StoredDataset.open(options.data)
    rows = read_json(options.json) if options.json and options.json.exists() else []
    for seed in options.seeds:
        if seed in [row["seed"] for row in rows]:
            continue
        keras.utils.set_random_seed(seed)
        recipe = recipes.get(options.recipe, options.variant)
        recipe = recipe.with_overrides([f"training.seed={seed}", *options.changes])
        epochs = trained(dataset, recipe, options.held_out)
        rows.append({"seed": seed, "epochs": epochs, **summarized(epochs)})
        if options.json:
            write_json(options.json, rows)
        keras.backend.clear_session()
    lines = [[str(row["seed"]), str(len(row["epochs"])), *(f"{row[name]:.1f}" for name in _SUMS)] for row in rows]
    lines.append(["mean", "", *(f"{np.mean([row[name] for row in rows]):.1f}" for name in _SUMS)])
    print(table(["seed", "epochs", *_SUMS], lines))


if __name__ == "__main__":
    main()

"""Recall after training on captions of which some belong to other images (noisy correspondence).

    python -m tests.benchmarks.noisy_captions --data DATASET [--recipe vsepp --variant tuned] [--shuffled 0 0.2 0.5]
        [--seeds 0] [--set FIELD=VALUE] [--json FILE]

The dataset has features, see `vsemb features`. A share of the training captions is chosen at random, and these are
exchanged among their images, as in Huang et al. 2021. The validation split stays as it is. Each row is the epoch with
the best recall sum there. With `--set pairs=small-loss`, the share that is dropped is the share that was shuffled,
unless `--set pairs.dropped=SHARE` names another.

Finished rows of the JSON file are not measured again.
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
from vsemb.data.store import Split, StoredDataset
from vsemb.evaluation import evaluate_retrieval
from vsemb.files import read_json, write_json
from vsemb.printing import table
from vsemb.recipes.retrieval import Retrieval


def shuffled(split: Split, share: float, seed: int) -> Subset:
    """Return a split of which a share of the captions is exchanged among their images.

    A chosen caption goes to the image of the next chosen one, in a random order.
    """
    subset = Subset(split, np.arange(len(split)), np.ones(len(split.captions), bool))
    generator = np.random.default_rng(seed)
    chosen = generator.permutation(len(subset.captions))[: round(share * len(subset.captions))]
    captions = np.array(subset.captions, object)
    captions[chosen] = captions[np.roll(chosen, 1)]
    subset.captions = captions.tolist()
    return subset


def best_epoch(dataset: Any, recipe: Retrieval) -> dict[str, Any]:
    """Train a recipe, and return the recalls of the best epoch on the validation split, in percent."""
    best: dict[str, Any] = {"recall_sum": 0.0}
    for epoch, (job, model) in enumerate(epochs_of(dataset, recipe)):
        found = evaluate_retrieval(*embedded(model, job, dataset.split("val")), model.similarity)
        print(epoch + 1, round(found.recall_sum, 1), flush=True)
        if found.recall_sum > best["recall_sum"]:
            sides = {"i2t": found.image_to_text["R@1"], "t2i": found.text_to_image["R@1"]}
            best = {"epoch": epoch + 1, "recall_sum": found.recall_sum, **sides}
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--recipe", default="vsepp")
    parser.add_argument("--variant", default="tuned")
    parser.add_argument("--shuffled", type=float, nargs="+", default=[0.0, 0.2, 0.5])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    dataset = StoredDataset.open(options.data)
    rows = read_json(options.json) if options.json and options.json.exists() else []
    for share in options.shuffled:
        for seed in options.seeds:
            if (share, seed) in [(row["shuffled"], row["seed"]) for row in rows]:
                continue
            keras.utils.set_random_seed(seed)
            changes = [f"training.seed={seed}", *options.changes]
            if "pairs=small-loss" in changes and not any(change.startswith("pairs.dropped=") for change in changes):
                changes.append(f"pairs.dropped={share}")
            recipe = recipes.get(options.recipe, options.variant).with_overrides(changes)
            best = best_epoch(Reduced(dataset, shuffled(dataset.split("train"), share, seed)), recipe)
            rows.append({"shuffled": share, "seed": seed, **best})
            if options.json:
                write_json(options.json, rows)
            keras.backend.clear_session()
    columns = ("i2t", "t2i", "recall_sum")
    lines = [[f"{row['shuffled']:.0%}", str(row["seed"]), *(f"{row[name]:.1f}" for name in columns)] for row in rows]
    print(table(["shuffled", "seed", "I→T R@1", "T→I R@1", "recall sum"], lines))


if __name__ == "__main__":
    main()

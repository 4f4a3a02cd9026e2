"""Words that training never saw: recall of the captions that contain them, for each way to read words.

    python -m tests.benchmarks.unseen_words --data DATASET [--sizes 500 1500 6000] [--seeds 0 1 2] [--words 200]
        [--recipe vsepp --variant tuned] [--only words-1 ngrams] [--set FIELD=VALUE] [--json FILE]

The dataset has features, see `vsemb features`. For each size and seed, training images are drawn, and 200 words that
occur in their captions and in those of the validation split. Captions that contain one of these words are removed from
training. Every configuration trains on the captions that are left, for the epochs of the recipe, and its last
epoch is measured on the whole validation split:

    unseen R@1, R@5, R@10   captions with one of the 200 words find their image, in percent
    without own R@10        captions with any word that training did not see, removed or not
    recall sum              of all captions and images, in both directions

A held-out word occurs at most once in 500 training captions (at least 5 times are allowed), so that few captions are
removed. Finished rows of the JSON file are not measured again.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from tests.benchmarks.subsets import Reduced, Subset, embedded, epochs_of
from vsemb import recipes
from vsemb.data.store import StoredDataset
from vsemb.evaluation import evaluate_retrieval, retrieval_ranks
from vsemb.files import read_json, write_json
from vsemb.printing import table
from vsemb.text.normalize import words_of
from vsemb.text.vocabulary import count_words

#: Name of a configuration -> changes of the recipe.
CONFIGURATIONS = {
    "words-1": ("text.tokenizer=words", "text.tokenizer.min_count=1"),
    "words-2": ("text.tokenizer=words", "text.tokenizer.min_count=2"),
    "words-4": ("text.tokenizer=words", "text.tokenizer.min_count=4"),
    "ngrams": ("text.tokenizer=ngrams",),
    "ngrams-4": ("text.tokenizer=ngrams", "text.tokenizer.min_count=4"),
    "bpe": ("text.tokenizer=bpe",),
    "sentencepiece": ("text.tokenizer=sentencepiece",),
}
_MEASURES = ("unseen R@1", "unseen R@5", "unseen R@10", "without own R@10", "recall sum")


def held_out(dataset: StoredDataset, size: int, count: int, seed: int) -> tuple[Reduced, set[str]]:
    """Draws training images and words, and removes the captions that contain the words.

    Returns:
        The dataset and the words.
    """
    generator = np.random.default_rng(seed)
    split = dataset.split("train")
    rows = np.sort(generator.permutation(len(split))[:size])
    drawn = Subset(split, rows, np.ones(len(split.captions), bool))
    limit = max(5, len(drawn.captions) // 500)
    validation = count_words(dataset.split("val").captions)
    seen = count_words(drawn.captions)
    candidates = sorted(word for word, number in seen.items() if number <= limit and word in validation)
    words = set(generator.choice(candidates, count, replace=False).tolist())
    kept = np.array([words.isdisjoint(said) for said in words_of(split.captions)])
    return Reduced(dataset, Subset(split, rows, kept)), words


def measured(dataset: Any, words: set[str], recipe: Any) -> dict[str, float]:
    """Trains a recipe and measures it on the validation split."""
    started = time.perf_counter()
    *_, (job, model) = epochs_of(dataset, recipe)
    seconds = time.perf_counter() - started
    val = job.val
    images, texts, ids, owners = embedded(model, job, val)
    whole = evaluate_retrieval(images, texts, ids, owners, model.similarity)
    _, ranks = retrieval_ranks(images, texts, ids, owners, model.similarity)
    trained = set(count_words(dataset.split("train").captions))
    said = [set(each) for each in words_of(val.captions)]
    chosen = np.array([bool(each & words) for each in said])
    without = np.array([bool(each - trained) for each in said])
    return {
        **{f"unseen R@{k}": 100 * float((ranks[chosen] < k).mean()) for k in (1, 5, 10)},
        "without own R@10": 100 * float((ranks[without] < 10).mean()),
        "recall sum": whole.recall_sum,
        "unseen captions": int(chosen.sum()),
        "captions without own": int(without.sum()),
        "training captions": len(dataset.split("train").captions),
        "seconds": seconds,
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """Writes the means over seeds and, in brackets, the smallest and largest value."""
    lines = []
    for key in dict.fromkeys((row["size"], row["configuration"]) for row in rows):
        own = [row for row in rows if (row["size"], row["configuration"]) == key]
        cells = [[row[measure] for row in own] for measure in _MEASURES]
        shown = [f"{np.mean(cell):.1f} ({min(cell):.1f} to {max(cell):.1f})" for cell in cells]
        lines.append([str(key[0]), key[1], str(len(own)), *shown])
    return table(["images", "configuration", "seeds", *_MEASURES], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 1500, 6000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--words", type=int, default=200)
    parser.add_argument("--recipe", default="vsepp")
    parser.add_argument("--variant", default="tuned")
    parser.add_argument("--only", nargs="+", choices=CONFIGURATIONS, default=list(CONFIGURATIONS))
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    dataset = StoredDataset.open(options.data)
    rows = read_json(options.json) if options.json and options.json.exists() else []
    done = {(row["size"], row["seed"], row["configuration"]) for row in rows}
    for size in options.sizes:
        for seed in options.seeds:
            reduced, words = held_out(dataset, size, options.words, seed)
            for name in options.only:
                if (size, seed, name) in done:
                    continue
                keras.utils.set_random_seed(seed)
                changes = [*CONFIGURATIONS[name], f"training.seed={seed}", *options.changes]
                recipe = recipes.get(options.recipe, options.variant).with_overrides(changes)
                row = {"size": size, "seed": seed, "configuration": name, **measured(reduced, words, recipe)}
                rows.append(row)
                print(row, flush=True)
                if options.json:
                    write_json(options.json, rows)
                keras.backend.clear_session()
    print(summary(rows))


if __name__ == "__main__":
    main()

"""Trains recipes of each kind on one device and on two, in one process; a program, for `test_devices`.

    python -m tests.runs.both_ways DATASETS.json OUT

A process holds a single strategy, and logical devices are made before anything else of TensorFlow, so all
trainings are done here. OUT gets a run `CASE/one` and a run `CASE/two` of each case.
"""

from __future__ import annotations

import json
import sys
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.tiny import tiny
from vsemb import registry
from vsemb.parts import Part, fields_of, rebuilt

# Each replica draws its own dropout. Adam makes a step of a gradient that is all rounding; SGD does not, and
# at a low rate hardest negatives and maxima do not turn what is rounded into another training.
_PLAIN = ("optimizer=sgd", "optimizer.learning_rate=0.001", "batches.size=8")
_DROPOUTS = ("dropout", "word_dropout", "bag_dropout")


@dataclass(frozen=True)
class Case:
    """A training.

    Attributes:
        recipe: and, after a colon, its variant.
        data: which dataset.
        settings: beside those that make it small.
        beside: the input of the training, and the name of the run that it takes.
    """

    recipe: str
    data: str = "scenes"
    settings: tuple[str, ...] = ()
    beside: tuple[str, str] | None = None


_LANGUAGE = ("optimizer.learning_rate=0.05", "model.context=2", "model.dim=16")
# One of each kind of batch, of state and of model; `tests.models` compares steps of every loss.
_CASES = {
    "hardest-negatives": Case("vsepp:tuned"),
    "hubs": Case("vsepp:tuned", settings=("hub_bank=10",)),
    # Numbers enough for the compiled way to score, see `vsemb.ops.order`.
    "order": Case("order-embedding:paper", settings=("embedding_dim=300", "batches.size=32")),
    "sampled-negatives": Case("kiros2014:paper"),
    "sigmoid-in-a-ring": Case("sigmoid:default", settings=("loss.block_size=4",)),
    "chunks": Case("contrastive:default", settings=("chunk_size=2",)),
    "trees": Case("tree-twin:m1", "trees"),
    "regions": Case("dvsa:paper", "regions", ("optimizer.learning_rate=0.0001",)),
    # Chaotic where all cosines of a word are near 0: on one device, 0.001 and 0.001000001 are 1 % apart after an epoch.
    "cross-attention": Case("dvsa:cross-attention", "regions", ("optimizer.learning_rate=0.00001",)),
    "classes": Case("ds-sje-word-cnn-rnn:released", "flowers"),
    "entailment": Case("entailment:order", "entailment"),
    "captions": Case("multimodal-rnn:tuned"),
    "sc-nlm": Case("sc-nlm:adam", "tagged", (*_LANGUAGE, "model.structure=1"), beside=("encoder", "kiros_run")),
}
#: Those of the systems that are there.
CASES = {name: case for name, case in _CASES.items() if case.recipe.split(":")[0] in registry.entries("recipes")}


def recipe_of(case: Case, stopwords: str) -> Any:
    """A recipe that is small and without chance."""
    from vsemb import recipes

    def plain(part: Part) -> Part:
        names = fields_of(type(part))
        changes: dict[str, Any] = {name: 0.0 for name in _DROPOUTS if name in names}
        if "stopwords" in names:
            changes["stopwords"] = stopwords
        return replace(part, **changes)

    return rebuilt(tiny(recipes.get(*case.recipe.split(":")), *_PLAIN, *case.settings), plain)


def train_case(case: Case, paths: dict[str, str], out: Path, strategy: Any) -> None:
    """Trains a case on a strategy."""
    from vsemb.runs.run import Run
    from vsemb.runs.train import train

    inputs = {} if case.beside is None else {case.beside[0]: Run.open(paths[case.beside[1]])}
    train(recipe_of(case, paths["stopwords"]), paths[case.data], out, inputs=inputs, strategy=strategy)


def main() -> None:
    """Trains all cases whose dataset is there, both ways."""
    from vsemb.training.strategies import open_distribution

    paths, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    two = open_distribution("mirrored", 2)
    for name, case in CASES.items():
        if case.data not in paths:
            continue
        try:
            for devices, strategy in (("one", "none"), ("two", two)):
                train_case(case, paths, out / name / devices, strategy)
        except Exception:
            (out / name).mkdir(parents=True, exist_ok=True)
            (out / name / "failed.txt").write_text(traceback.format_exc())


if __name__ == "__main__":
    main()

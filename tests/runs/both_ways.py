"""Trains every kind of recipe on one device and on two, in one process; a program, for `test_devices`.

    python -m tests.runs.both_ways DATASETS.json OUT

A process holds a single strategy, and logical devices are made before anything else of TensorFlow, so all
trainings are done here. OUT gets a run `CASE/one` and a run `CASE/two` of each case.
"""

from __future__ import annotations

import json
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import TINY, TINY_CAPTIONS, TINY_LANGUAGE

# Each replica draws its own dropout. Adam makes a step of a gradient that is all rounding; SGD does not, and
# at a low rate hardest negatives and maxima do not turn what is rounded into another training.
_PLAIN = ("optimizer.name=sgd", "optimizer.learning_rate=0.001", "optimizer.schedule=constant")
_PLAIN += ("optimizer.lazy=false", "training.epochs=2", "batches.size=8")
_DROPOUTS = ("text.word_dropout", "text.embedding_dropout", "text.dropout", "text.bag_dropout")
_DROPOUTS += ("image.dropout", "caption.dropout")


@dataclass(frozen=True)
class Case:
    """A training.

    Attributes:
        recipe: and, after a colon, its variant.
        data: which dataset.
        settings: beside those that make it small.
        beside: the argument of the training, and the dataset's name of the run that it takes.
    """

    recipe: str
    data: str = "scenes"
    settings: tuple[str, ...] = ()
    beside: tuple[str, str] | None = None


CASES = {
    "hardest-negatives": Case("vsepp:tuned", settings=("loss.warmup_epochs=0",)),
    # Numbers enough for the compiled way to score, see `vsemb.ops.order`.
    "order": Case("order-embedding:paper", settings=("embedding_dim=300", "batches.size=32")),
    "sampled-negatives": Case("kiros2014:paper"),
    "softmax": Case("contrastive:default"),
    "softmax-in-blocks": Case("contrastive:default", settings=("loss.block_size=4",)),
    "transformer": Case("contrastive:transformer", settings=("text.layers=1", "text.heads=2")),
    "sigmoid": Case("sigmoid:default"),
    "sigmoid-in-a-ring": Case("sigmoid:default", settings=("loss.block_size=4",)),
    "chunks": Case("contrastive:default", settings=("training.chunk_size=2",)),
    "trees": Case("tree-twin:m1", "trees"),
    "regions": Case("dvsa:paper", "regions", ("optimizer.learning_rate=0.0001",)),
    "cross-attention": Case("dvsa:cross-attention", "regions"),
    "classes": Case("ds-sje-word-cnn-rnn:released", "flowers"),
    "attributes": Case("da-sje-attributes:released", "flowers"),
    "entailment": Case("entailment:order", "entailment"),
    "captions": Case("multimodal-rnn:tuned"),
    "captions-of-regions": Case("multimodal-rnn-regions:tuned", "regions", beside=("alignment", "region_run")),
    "log-bilinear": Case("log-bilinear:adam", "tagged"),
    "multiplicative": Case("multiplicative:adam", "tagged", beside=("encoder", "kiros_run")),
    "sc-nlm": Case("sc-nlm:adam", "tagged", ("caption.structure=1",), beside=("encoder", "kiros_run")),
}


def settings_of(recipe: Any, case: Case, stopwords: str) -> list[str]:
    """What makes a recipe small and without chance."""
    small: dict[str, Any] = {"captions": TINY_CAPTIONS, "language": TINY_LANGUAGE}
    known = [*small.get(recipe.task, TINY), *_PLAIN]
    if recipe.task == "language":
        known.append("optimizer.learning_rate=0.05")
        if recipe.name != "sc-nlm":
            known.remove("caption.candidates=12")
    if recipe.name in ("multiplicative", "sc-nlm"):
        known.append(f"caption.stopwords={stopwords}")
    known += [f"{name}=0" for name in _DROPOUTS]
    return [*known, *case.settings]


def train(case: Case, paths: dict[str, str], out: Path, strategy: Any) -> None:
    """Trains a case on a strategy."""
    from vsemb import recipes
    from vsemb.data.store import Dataset
    from vsemb.runs.run import Run
    from vsemb.runs.train import train as train_pairs
    from vsemb.systems.captions.caption_run import train_captions
    from vsemb.systems.entailment.data import EntailmentData
    from vsemb.systems.entailment.run import train_entailment
    from vsemb.systems.language.language_run import train_language

    recipe = recipes.get(*case.recipe.split(":"))
    recipe = recipe.with_overrides(settings_of(recipe, case, paths["stopwords"]))
    ways: dict[str, Any] = {"captions": train_captions, "language": train_language}
    ways |= {"entailment": train_entailment, "retrieval": train_pairs}
    opened = (EntailmentData if recipe.task == "entailment" else Dataset).open(paths[case.data])
    beside = {} if case.beside is None else {case.beside[0]: Run.open(paths[case.beside[1]])}
    ways[recipe.task](recipe, opened, out, strategy=strategy, **beside)


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
                train(case, paths, out / name / devices, strategy)
        except Exception:
            (out / name).mkdir(parents=True, exist_ok=True)
            (out / name / "failed.txt").write_text(traceback.format_exc())


if __name__ == "__main__":
    main()

"""WordNet hypernymy: order-embeddings beside four baselines (Vendrov et al. 2016, section 3, table 1).

    python -m pipelines.wordnet_hypernymy [--wordnet DIR] [--json FILE] [--out DIR]

| paper | symbol | where |
| --- | --- | --- |
| equation 2 | E(x, y) = ||max(0, y - x)||² | `vsemb/ops/order.py` |
| equation 4 | sum of E(u, v) + max(0, margin - E(u', v')) | `vsemb/losses/max_margin.py` |
| section 3.1 | (u', v'), one end drawn anew | `vsemb/systems/hypernymy/wordnet.py`, `corrupt` |
| section 3.1 | f, a non-negative vector a concept | `vsemb/systems/hypernymy/model.py`, `HypernymModel` |
| section 3.2 | transitive closure, 4,000 + 4,000 held out | `wordnet.py` and `pairs.py` beside it |
| section 3.3 | Adam 0.01, 500 + 500 pairs a batch, early stopping | `vsemb/systems/hypernymy/training.py` |
| table 1 | accuracy at the threshold fitted on dev | `vsemb/systems/hypernymy/metrics.py` |

Deviations from the paper, and what undoes them:

- Pairs: the paper's 838,073 edges count an ancestor once for every path to it, so that one test edge in five
  also stands in train. Here each pair counts once. `--edges paths` counts paths.
- Corrupted pairs: a seventh of the paper's are true, since everything under "entity" is an entity. Here true
  ones are drawn again: on dev and test those of the whole closure, in training those that follow from the
  training pairs, so that nothing of dev and test leaks. `--negatives any` keeps them.
- Adam moves the vectors of a batch's concepts alone. `--adam dense` moves all.
- Vectors begin normally distributed, with a deviation chosen on dev; the paper does not state its own.
- Bilinear: the score u'Wv goes through softplus(-score), since equation 4 needs an energy with a least value.
- Symmetric: the margin (on dev) fits a distance that is at most 1.
- word2gauss: the same loss, batches and corrupted pairs as the other models instead of the authors' program.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsemb.errors import VsembError

if TYPE_CHECKING:
    import numpy as np

    from vsemb.systems.hypernymy.metrics import PairMetrics, Reconstruction
    from vsemb.systems.hypernymy.model import HypernymModel
    from vsemb.systems.hypernymy.wordnet import PairSet, PairSplit, WordNet

CLOSURE = "closure"


@dataclass(frozen=True)
class Setting:
    """How one row of the table is trained; chosen on the development pairs.

    Attributes:
        paper: the accuracy of table 1, in percent.
        epochs: at most so many; early stopping keeps the best.
        scale: the standard deviation of the vectors before training.
        learning_rate: of Adam.
        decay: whether the learning rate falls linearly to 0.
        margin: of the loss; None for the comparison's own.
    """

    paper: float
    epochs: int = 50
    scale: float = 0.7
    learning_rate: float = 0.01
    decay: bool = False
    margin: float | None = None


SETTINGS = {
    CLOSURE: Setting(88.2),
    "gaussian": Setting(86.6, scale=0.2),
    "symmetric": Setting(84.2, margin=0.1),
    "bilinear": Setting(86.3, scale=0.1),
    "order": Setting(90.6),
}

PATIENCE = 10  # epochs without a better dev accuracy
PROJECTED = 2000  # concepts in the tables for TensorBoard's projector
_SEEDS = {"dev": 1, "test": 2}  # of the corrupted pairs, beside --seed


@dataclass(frozen=True)
class Task:
    """WordNet's pairs, split and labelled.

    Attributes:
        wordnet: the concepts and direct edges.
        closure: (pairs, 2) every pair once.
        split: the true pairs of train, dev and test.
        dev: (pairs, labels), true and corrupted.
        test: (pairs, labels).
        known: what training must not draw as corrupted; None for nothing.
        true_among_corrupted: the share of the corrupted test pairs that are true after all.
    """

    wordnet: WordNet
    closure: np.ndarray
    split: PairSplit
    dev: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    known: PairSet | None
    true_among_corrupted: float


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    name: str
    pairs: PairMetrics
    edges: Reconstruction
    seconds: float
    epochs: int = 0
    seconds_per_epoch: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the row as `--json` writes it."""
        return {
            "model": self.name,
            **self.pairs.to_json(),
            **self.edges.to_json(),
            **{key: getattr(self, key) for key in ("epochs", "seconds_per_epoch", "seconds")},
            "paper_accuracy": SETTINGS[self.name].paper / 100,
        }


def make_task(wordnet: WordNet, edges: str, negatives: str, held_out: int, seed: int) -> Task:
    """Builds the closure, the split and the corrupted pairs."""
    import numpy as np

    from vsemb.systems.hypernymy.wordnet import PairSet, labelled_pairs, split_pairs, transitive_closure

    concepts = len(wordnet.names)
    closure = transitive_closure(wordnet.edges)
    rows = transitive_closure(wordnet.edges, paths=True) if edges == "paths" else closure
    split = split_pairs(rows, held_out=held_out, seed=seed)
    whole = PairSet(closure, concepts)
    known = filtered = None
    if negatives == "filtered":
        filtered = whole
        known = PairSet(transitive_closure(np.unique(split.train, axis=0)), concepts)
    dev, test = (
        labelled_pairs(getattr(split, part), concepts, (seed, number), filtered) for part, number in _SEEDS.items()
    )
    share = float(np.mean(whole.contains(test[0][test[1] == 0])))
    return Task(wordnet, closure, split, dev, test, known, share)


def closure_row(task: Task) -> Row:
    """Measures the baseline that learns nothing: true is what follows from train and dev."""
    import numpy as np

    from vsemb.systems.hypernymy.metrics import (
        closure_errors,
        evaluate_pairs,
        membership_energies,
        reconstruct,
    )
    from vsemb.systems.hypernymy.wordnet import transitive_closure

    started, concepts = time.perf_counter(), len(task.wordnet.names)
    known = np.unique(np.concatenate([task.split.train, task.split.dev]), axis=0)
    # All of dev would follow from itself: its threshold is fitted on what follows from train alone.
    of_dev = closure_errors(task.split.train, task.dev[0], concepts)
    pairs = evaluate_pairs(of_dev, task.dev[1], closure_errors(known, task.test[0], concepts), task.test[1])
    inferred = membership_energies(transitive_closure(known), concepts)
    edges = reconstruct(inferred, task.wordnet.edges, task.closure, concepts, name=f"{CLOSURE}, ranking")
    return Row(CLOSURE, pairs, edges, time.perf_counter() - started)


def trained_row(task: Task, name: str, adam: str, epochs: int | None, seed: int) -> tuple[Row, HypernymModel]:
    """Trains and measures one model."""
    import numpy as np

    from vsemb.systems.hypernymy.metrics import evaluate_pairs, pair_energies, reconstruct
    from vsemb.systems.hypernymy.model import HypernymModel
    from vsemb.systems.hypernymy.training import train_hypernymy

    setting, started, concepts = SETTINGS[name], time.perf_counter(), len(task.wordnet.names)
    model = HypernymModel(concepts, comparison=name, scale=setting.scale, seed=seed)
    history = train_hypernymy(
        model,
        task.split.train,
        *task.dev,
        known=task.known,
        epochs=epochs or setting.epochs,
        learning_rate=setting.learning_rate,
        decay=setting.decay,
        adam=adam,
        margin=setting.margin,
        patience=PATIENCE,
        seed=seed,
        name=f"{name}, training",
    )
    of_dev, of_test = (pair_energies(model, pairs) for pairs, _ in (task.dev, task.test))
    pairs = evaluate_pairs(of_dev, task.dev[1], of_test, task.test[1])
    edges = reconstruct(
        lambda queries: model.energies_to_all(queries).numpy(),
        task.wordnet.edges,
        task.closure,
        concepts,
        name=f"{name}, ranking",
    )
    seconds = time.perf_counter() - started
    return Row(name, pairs, edges, seconds, len(history.loss), float(np.median(history.seconds))), model


def results_table(rows: Sequence[Row]) -> str:
    """Lays the rows out beside the paper's accuracies."""
    from vsemb.commands import table

    lines = []
    for row in rows:
        percent = [100 * value for value in (row.pairs.average_precision, row.pairs.roc_auc)]
        numbers = [100 * row.pairs.accuracy, SETTINGS[row.name].paper, *percent, row.edges.mean_rank]
        trained = [str(row.epochs), f"{row.seconds_per_epoch:.2f}"] if row.epochs else ["", ""]
        cells = [f"{number:.1f}" for number in numbers] + [f"{row.edges.mean_average_precision:.3f}"]
        lines.append([row.name, *cells, *trained, f"{row.seconds:.0f}"])
    header = ["", "accuracy", "paper", "AP", "AUC", "mean rank", "MAP", "epochs", "s/epoch", "seconds"]
    return table(header, lines)


def save_vectors(out: Path, wordnet: WordNet, model: HypernymModel) -> None:
    """Writes the vectors, whole and as tables of the most general concepts for TensorBoard's projector."""
    import numpy as np

    from vsemb.files import replacing_directory
    from vsemb.systems.hypernymy.wordnet import transitive_closure

    vectors = np.abs(np.asarray(model.vectors))
    below = np.bincount(transitive_closure(wordnet.edges)[:, 1], minlength=len(vectors))
    general = np.argsort(-below, kind="stable")[:PROJECTED]
    with replacing_directory(out) as folder:
        np.savez_compressed(folder / "vectors.npz", names=np.array(wordnet.names), vectors=vectors)
        np.savetxt(folder / "vectors.tsv", vectors[general], fmt="%.4f", delimiter="\t")
        lines = [f"{wordnet.names[concept]}\t{below[concept]}" for concept in general]
        text = "\n".join(["concept\tconcepts below", *lines, ""])
        (folder / "metadata.tsv").write_text(text, encoding="utf-8")


def run(arguments: argparse.Namespace) -> None:
    """Runs the whole comparison and prints its table."""
    from vsemb.data.readers.wordnet import find_wordnet
    from vsemb.errors import invalid_argument
    from vsemb.files import write_json
    from vsemb.systems.hypernymy.wordnet import read_wordnet

    if arguments.out and "order" not in arguments.models:
        raise invalid_argument("--out", str(arguments.out), "used with the model order, whose vectors it keeps")
    if arguments.epochs is not None and arguments.epochs < 1:
        raise invalid_argument("--epochs", arguments.epochs, "an integer >= 1")
    if arguments.seed < 0:
        raise invalid_argument("--seed", arguments.seed, "an integer >= 0")
    if arguments.out and arguments.out.exists() and (not arguments.out.is_dir() or any(arguments.out.iterdir())):
        raise invalid_argument("--out", str(arguments.out), "a folder that is new or empty")
    started = time.perf_counter()
    wordnet = read_wordnet(find_wordnet(arguments.wordnet))
    one_thread()
    task = make_task(wordnet, arguments.edges, arguments.negatives, arguments.held_out, arguments.seed)
    print(
        f"{len(wordnet.names):,} concepts, {len(wordnet.edges):,} direct edges, {len(task.closure):,} in "
        f"their closure; {len(task.split.train):,} / {len(task.split.dev):,} / {len(task.split.test):,} to "
        f"train, dev, test ({arguments.edges} edges, {arguments.negatives} negatives)",
        flush=True,
    )
    rows, order = [], None
    for name in arguments.models:
        if name == CLOSURE:
            rows.append(closure_row(task))
        else:
            row, model = trained_row(task, name, arguments.adam, arguments.epochs, arguments.seed)
            rows.append(row)
            order = model if name == "order" else order
        print(f"{name}: {100 * rows[-1].pairs.accuracy:.1f} %, {rows[-1].seconds:.0f} s", file=sys.stderr)
    seconds = time.perf_counter() - started
    print(f"\n{results_table(rows)}\n\n{seconds:.0f} s in all.")
    if task.true_among_corrupted:
        print(
            f"Of the corrupted test pairs {100 * task.true_among_corrupted:.1f} % are true, so that a model "
            f"that knew everything would have an accuracy of {100 - 50 * task.true_among_corrupted:.1f}."
        )
    if arguments.json:
        stored = {key: getattr(arguments, key) for key in ("edges", "negatives", "adam", "held_out", "seed")}
        stored |= {
            "concepts": len(wordnet.names),
            "direct_edges": len(wordnet.edges),
            "closure": len(task.closure),
            "train": len(task.split.train),
            "true_among_corrupted": task.true_among_corrupted,
            "seconds": seconds,
            "rows": [row.to_json() for row in rows],
        }
        write_json(arguments.json, stored)

    if arguments.out and order is not None:
        save_vectors(arguments.out, wordnet, order)


def one_thread() -> None:
    """Keeps TensorFlow to one thread: the steps are small, and a second thread makes them slower."""
    import tensorflow as tf

    # Refused when this process has computed something before: then it is slower and otherwise the same.
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the pipeline's arguments."""
    result = argparse.ArgumentParser(
        prog="python -m pipelines.wordnet_hypernymy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = result.add_argument
    add("--wordnet", type=Path, metavar="DIR", help="folder with data.noun ($WNHOME/dict, /usr/share/wordnet)")
    add("--edges", choices=("unique", "paths"), default="unique", help="what the closure counts (%(default)s)")
    add("--negatives", choices=("filtered", "any"), default="filtered", help="corrupted pairs (%(default)s)")
    add("--adam", choices=("lazy", "dense"), default="lazy", help="what moves in a step (%(default)s)")
    add("--epochs", type=int, metavar="N", help="at most so many, instead of each model's own number")
    add("--held-out", type=int, default=4000, metavar="N", help="pairs in dev, and in test (%(default)s)")
    add("--seed", type=int, default=0, metavar="N", help="of split, corruption, vectors (%(default)s)")
    add("--models", nargs="+", choices=list(SETTINGS), default=list(SETTINGS), help="rows of the table (all)")
    add("--json", type=Path, metavar="FILE", help="also write the table to FILE as JSON")
    add("--out", type=Path, metavar="DIR", help="also write the order-embeddings to a new folder DIR")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the pipeline; returns 0, or 1 when it failed and one line on stderr says why."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    arguments = parser().parse_args(argv)
    try:
        run(arguments)
    except VsembError as error:
        print(f"wordnet_hypernymy: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("wordnet_hypernymy: interrupted.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

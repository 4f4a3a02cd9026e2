"""Compare order-embeddings with four baselines on WordNet hypernymy (Vendrov et al. 2016, section 3, table 1).

    python -m pipelines.wordnet_hypernymy [--wordnet DIR] [--seeds N] [--json FILE] [--out DIR]

| paper | content | code |
| --- | --- | --- |
| equation 2 | E(x, y) = ||max(0, y - x)||² | `vsemb/ops/order.py` |
| equation 4 | sum of E(u, v) + max(0, margin - E(u', v')) | `vsemb/losses/max_margin.py` |
| section 3.1 | (u', v'), one end drawn again | `pipelines/hypernymy/wordnet.py`, `corrupt` |
| section 3.1 | f, a non-negative vector per concept | `pipelines/hypernymy/model.py`, `HypernymModel` |
| section 3.2 | transitive closure | `pipelines/hypernymy/wordnet.py`, `transitive_closure` |
| section 3.2 | 4,000 + 4,000 pairs held out | `pipelines/hypernymy/wordnet.py`, `split_pairs` |
| section 3.3 | Adam 0.01, 500 + 500 pairs per batch, early stopping | `pipelines/hypernymy/training.py` |
| table 1 | accuracy at the threshold fitted on dev | `pipelines/hypernymy/metrics.py` |

Deviations from the paper, and options to undo them:

- Pairs: the paper's 838,073 edges count an ancestor once per path, so that one test edge in five is also in train. Here
  each pair counts once. `--edges paths` counts paths.
- Corrupted pairs: a seventh of the paper's corrupted pairs are true, because all concepts below "entity" are entities.
  Here a corrupted pair that is true is drawn again. On dev and test, a pair is true if it is in the whole closure. In
  training, only the closure of the training pairs is used, so that dev and test do not leak. `--negatives any` keeps
  true pairs.
- Adam updates only the vectors of the concepts in a batch. `--adam dense` updates all.
- Vectors are initialized from a normal distribution with a deviation selected on dev; the paper does not state it.
- Bilinear: the energy is softplus(-score) of the score u'Wv, because equation 4 requires an energy with a minimum.
- Concepts: WordNet 3.0 has 82,115 noun concepts and 837,888 edges, counted once per path. The paper has 82,192 and
  838,073, and does not name its version of WordNet.
- Symmetric: vectors are compared by their absolute values, as in the order model. The paper does not say whether its
  symmetric vectors are non-negative.
- Symmetric: the distance is at most 1. Its margin is selected on dev.
- Cone: the paper has no hyperbolic entailment cones (Ganea et al. 2018, as in MERU). `--models cone` measures them.
  Loss, batches and corrupted pairs are the same.
- word2gauss: loss, batches and corrupted pairs are the same as for the other models. The paper uses its authors'
  program.
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

from pipelines.running import main_of, parser_of

if TYPE_CHECKING:
    import numpy as np

    from pipelines.hypernymy.metrics import PairMetrics, Reconstruction
    from pipelines.hypernymy.model import HypernymModel
    from pipelines.hypernymy.wordnet import PairSet, PairSplit, WordNet

CLOSURE = "closure"


@dataclass(frozen=True)
class Setting:
    """Training settings of one row of the table, selected on the development pairs.

    Attributes:
        paper: accuracy in table 1, in percent; None for a row that the table does not have.
        epochs: maximum number of epochs; early stopping keeps the best one.
        scale: standard deviation of the initial vectors.
        learning_rate: learning rate of Adam.
        decay: whether the learning rate decreases linearly to 0.
        margin: margin of the loss; None for the default of the comparison.
    """

    paper: float | None
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
    "cone": Setting(None, scale=0.1),
}

PATIENCE = 10  # Epochs without a better dev accuracy.
PROJECTED = 2000  # Concepts in the tables for TensorBoard's projector.
_DEV, _TEST = 1, 2  # Seeds of the corrupted pairs, in addition to the run's.


@dataclass(frozen=True)
class Task:
    """Split and labelled pairs of WordNet.

    Attributes:
        wordnet: concepts and direct edges.
        closure: (pairs, 2), every pair once.
        split: true pairs of train, dev and test.
        dev: (pairs, labels), true and corrupted.
        test: (pairs, labels), true and corrupted.
        known: pairs that training must not draw as corrupted; None to allow all.
        true_among_corrupted: share of true pairs among the corrupted test pairs.
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
    """Row of the table."""

    name: str
    pairs: PairMetrics
    edges: Reconstruction
    seconds: float
    epochs: int = 0
    seconds_per_epoch: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the row for `--json`."""
        paper = SETTINGS[self.name].paper
        return {
            "model": self.name,
            **self.pairs.to_json(),
            **self.edges.to_json(),
            **{key: getattr(self, key) for key in ("epochs", "seconds_per_epoch", "seconds")},
            "paper_accuracy": None if paper is None else paper / 100,
        }


def make_task(wordnet: WordNet, edges: str, negatives: str, held_out: int, seed: int) -> Task:
    """Build the closure, the split and the corrupted pairs."""
    import numpy as np

    from pipelines.hypernymy.wordnet import PairSet, labelled_pairs, split_pairs, transitive_closure

    concepts = len(wordnet.names)
    closure = transitive_closure(wordnet.edges)
    rows = transitive_closure(wordnet.edges, paths=True) if edges == "paths" else closure
    split = split_pairs(rows, held_out=held_out, seed=seed)
    whole = PairSet(closure, concepts)
    known = filtered = None
    if negatives == "filtered":
        filtered = whole
        known = PairSet(transitive_closure(np.unique(split.train, axis=0)), concepts)
    dev = labelled_pairs(split.dev, concepts, (seed, _DEV), filtered)
    test = labelled_pairs(split.test, concepts, (seed, _TEST), filtered)
    share = float(np.mean(whole.contains(test[0][test[1] == 0])))
    return Task(wordnet, closure, split, dev, test, known, share)


def closure_row(task: Task) -> Row:
    """Measure the baseline without training: pairs in the closure of train and dev are true."""
    import numpy as np

    from pipelines.hypernymy.metrics import closure_errors, evaluate_pairs, membership_energies, reconstruct
    from pipelines.hypernymy.wordnet import transitive_closure

    started, concepts = time.perf_counter(), len(task.wordnet.names)
    known = np.unique(np.concatenate([task.split.train, task.split.dev]), axis=0)
    # Dev would imply all of its own pairs, so its threshold is fitted on the closure of train only.
    of_dev = closure_errors(task.split.train, task.dev[0], concepts)
    pairs = evaluate_pairs(of_dev, task.dev[1], closure_errors(known, task.test[0], concepts), task.test[1])
    inferred = membership_energies(transitive_closure(known), concepts)
    edges = reconstruct(inferred, task.wordnet.edges, task.closure, name=f"{CLOSURE}, ranking")
    return Row(CLOSURE, pairs, edges, time.perf_counter() - started)


def trained_row(task: Task, name: str, adam: str, epochs: int | None, seed: int) -> tuple[Row, HypernymModel]:
    """Train and measure one model."""
    import numpy as np

    from pipelines.hypernymy.metrics import evaluate_pairs, pair_energies, reconstruct
    from pipelines.hypernymy.model import HypernymModel
    from pipelines.hypernymy.training import train_hypernymy

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
    (dev_pairs, dev_labels), (test_pairs, test_labels) = task.dev, task.test
    dev_energies, test_energies = pair_energies(model, dev_pairs), pair_energies(model, test_pairs)
    pairs = evaluate_pairs(dev_energies, dev_labels, test_energies, test_labels)
    edges = reconstruct(
        lambda queries: model.energies_to_all(queries).numpy(),
        task.wordnet.edges,
        task.closure,
        name=f"{name}, ranking",
    )
    seconds = time.perf_counter() - started
    return Row(name, pairs, edges, seconds, len(history.loss), float(np.median(history.seconds))), model


def results_table(rows: Sequence[Row]) -> str:
    """Return the table of the rows with the paper's accuracies."""
    from vsemb.printing import table

    lines = []
    for row in rows:
        measured = row.pairs
        paper = SETTINGS[row.name].paper
        cells = [f"{100 * measured.accuracy:.1f}", "" if paper is None else f"{paper:.1f}"]
        more = (100 * measured.average_precision, 100 * measured.roc_auc, row.edges.mean_rank)
        cells += [f"{number:.1f}" for number in more]
        cells.append(f"{row.edges.mean_average_precision:.3f}")
        trained = [str(row.epochs), f"{row.seconds_per_epoch:.2f}"] if row.epochs else ["", ""]
        lines.append([row.name, *cells, *trained, f"{row.seconds:.0f}"])
    header = ["", "accuracy", "paper", "AP", "AUC", "mean rank", "MAP", "epochs", "s/epoch", "seconds"]
    return table(header, lines)


def save_vectors(out: Path, wordnet: WordNet, model: HypernymModel) -> None:
    """Write all vectors, and tables of the most general concepts for TensorBoard's projector."""
    import numpy as np

    from pipelines.hypernymy.wordnet import transitive_closure
    from vsemb.files import replacing_directory

    vectors = np.abs(np.asarray(model.vectors))
    below = np.bincount(transitive_closure(wordnet.edges)[:, 1], minlength=len(vectors))
    general = np.argsort(-below, kind="stable")[:PROJECTED]
    with replacing_directory(out) as folder:
        np.savez_compressed(folder / "vectors.npz", names=np.array(wordnet.names), vectors=vectors)
        np.savetxt(folder / "vectors.tsv", vectors[general], fmt="%.4f", delimiter="\t")
        lines = [f"{wordnet.names[concept]}\t{below[concept]}" for concept in general]
        text = "\n".join(["concept\tconcepts below", *lines, ""])
        (folder / "metadata.tsv").write_text(text, encoding="utf-8")


def run(arguments: argparse.Namespace) -> int:
    """Run the comparison, print its table, and return the exit status."""
    from pipelines.hypernymy.wordnet import read_wordnet
    from vsemb.console import say
    from vsemb.data.readers.wordnet import find_wordnet
    from vsemb.errors import invalid_argument
    from vsemb.files import write_json
    from vsemb.runs.seeds import over_seeds

    if arguments.out and "order" not in arguments.models:
        raise invalid_argument("--out", str(arguments.out), "used with the model order, whose vectors it keeps")
    if arguments.epochs is not None and arguments.epochs < 1:
        raise invalid_argument("--epochs", arguments.epochs, "an integer >= 1")
    if arguments.seeds < 1:
        raise invalid_argument("--seeds", arguments.seeds, "an integer >= 1")
    if arguments.out and arguments.out.exists() and (not arguments.out.is_dir() or any(arguments.out.iterdir())):
        raise invalid_argument("--out", str(arguments.out), "a folder that is new or empty")
    started = time.perf_counter()
    wordnet = read_wordnet(find_wordnet(arguments.wordnet), say if arguments.skip_bad_lines else None)
    one_thread()
    print(f"{len(wordnet.names):,} concepts, {len(wordnet.edges):,} direct edges", flush=True)
    stored = {}
    for seed in range(arguments.seeds):
        stored[f"seed-{seed}"], order = comparison(wordnet, arguments, seed)
        if seed == 0 and arguments.out and order is not None:
            save_vectors(arguments.out, wordnet, order)
    values = stored["seed-0"]
    if arguments.seeds > 1:
        measured = over_seeds({name: _measures(of_seed["rows"]) for name, of_seed in stored.items()})
        print(f"\n{measured.text}")
        values = {**measured.values, "runs": stored}
    print(f"\n{time.perf_counter() - started:.0f} s in all.")
    if arguments.json:
        write_json(arguments.json, values)
    return 0


def comparison(
    wordnet: WordNet, arguments: argparse.Namespace, seed: int
) -> tuple[dict[str, Any], HypernymModel | None]:
    """Draw split, corrupted pairs and vectors with a seed, measure all rows, and print them.

    Returns:
        (JSON values, the order-embeddings; None if they were not asked for)
    """
    task = make_task(wordnet, arguments.edges, arguments.negatives, arguments.held_out, seed)
    print(
        f"seed {seed}: {len(task.closure):,} pairs in the closure; {len(task.split.train):,} / {len(task.split.dev):,} "
        f"/ {len(task.split.test):,} to train, dev, test ({arguments.edges} edges, {arguments.negatives} negatives)",
        flush=True,
    )
    rows, order = [], None
    for name in arguments.models:
        if name == CLOSURE:
            rows.append(closure_row(task))
        else:
            row, model = trained_row(task, name, arguments.adam, arguments.epochs, seed)
            rows.append(row)
            if name == "order":
                order = model
        print(f"{name}: {100 * rows[-1].pairs.accuracy:.1f} %, {rows[-1].seconds:.0f} s", file=sys.stderr)
    print(f"\n{results_table(rows)}")
    if task.true_among_corrupted:
        print(
            f"Of the corrupted test pairs {100 * task.true_among_corrupted:.1f} % are true, so that a model "
            f"that knew everything would have an accuracy of {100 - 50 * task.true_among_corrupted:.1f}."
        )
    stored = {key: getattr(arguments, key) for key in ("edges", "negatives", "adam", "held_out")}
    stored |= {
        "seed": seed,
        "concepts": len(wordnet.names),
        "direct_edges": len(wordnet.edges),
        "closure": len(task.closure),
        "train": len(task.split.train),
        "true_among_corrupted": task.true_among_corrupted,
        "rows": [row.to_json() for row in rows],
    }
    return stored, order


def _measures(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the measures of a comparison by model and name, in the units of `results_table`."""
    measures = {}
    for row in rows:
        model = row["model"]
        measures[f"{model} accuracy, %"] = 100 * row["accuracy"]
        measures[f"{model} AP, %"] = 100 * row["average_precision"]
        measures[f"{model} AUC, %"] = 100 * row["roc_auc"]
        measures[f"{model} mean rank"] = row["mean_rank"]
        measures[f"{model} MAP"] = row["mean_average_precision"]
    return measures


def one_thread() -> None:
    """Limit TensorFlow to one thread, because a second thread makes the small steps slower."""
    import tensorflow as tf

    # TensorFlow raises an error after its first operation; the run is then slower but the same.
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the pipeline's arguments."""
    result = parser_of("wordnet_hypernymy", __doc__)
    add = result.add_argument
    add("--wordnet", type=Path, metavar="DIR", help="folder with data.noun ($WNHOME/dict, /usr/share/wordnet)")
    add("--skip-bad-lines", action="store_true", help="leave out malformed lines of data.noun, and list them")
    add("--edges", choices=("unique", "paths"), default="unique", help="what the closure counts (%(default)s)")
    add("--negatives", choices=("filtered", "any"), default="filtered", help="corrupted pairs (%(default)s)")
    add("--adam", choices=("lazy", "dense"), default="lazy", help="what moves in a step (%(default)s)")
    add("--epochs", type=int, metavar="N", help="at most so many, instead of each model's own number")
    add("--held-out", type=int, default=4000, metavar="N", help="pairs in dev, and in test (%(default)s)")
    add("--seeds", type=int, default=1, metavar="N", help="draw split, corruption, vectors N times (%(default)s)")
    of_paper = [name for name, setting in SETTINGS.items() if setting.paper is not None]
    add("--models", nargs="+", choices=list(SETTINGS), default=of_paper, help="rows of the table (the paper's)")
    add("--json", type=Path, metavar="FILE", help="also write the table to FILE as JSON")
    add("--out", type=Path, metavar="DIR", help="also write the order-embeddings of seed 0 to a new folder DIR")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Run the pipeline; return 0, or 1 after an error with one line on stderr."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    arguments = parser().parse_args(argv)
    return main_of("wordnet_hypernymy", lambda: run(arguments), resumes=False)


if __name__ == "__main__":
    sys.exit(main())

"""Training steps of the Tree-LSTM encoder, in steps of Keras' LSTM of the same width over the same captions.

    python -m tests.benchmarks.trees [--conllu FILE] [--units 150 300 600] [--threads 1] [--json FILE]

A step is forward and backward: word vectors, states, the state of the root or of the last word. Captions
are those of a CoNLL-U file, or random trees of the same shape as captions' (about 12 words, 61 % leaves, 3.1
heads above the deepest word), in batches of similar lengths. Rows: the encoder with two slots a side, the
child-sum variant, the short reference implementation without the gradient of its own, and the schedule
alone. All of them take turns on each batch, and medians are compared.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from tests.benchmarks.timing import median_seconds
from vsemb.encoders import RecurrentSentenceEncoder, WordEmbedding
from vsemb.files import write_json
from vsemb.printing import table
from vsemb.systems.trees import tree_lstm as trees
from vsemb.systems.trees.tree_lstm import TreeLSTMEncoder

WORDS, WORD_DIM = 8000, 300
_SENTENCES = 6400  # cut into batches of similar lengths

#: How often a random word's head is any word before it instead of one that is a head already.
_ANY_HEAD = 0.6


def read_heads(path: str) -> Iterator[list[int]]:
    """The heads of each sentence of a CoNLL-U file, plain or .gz."""
    opener: Callable[..., Any] = gzip.open if Path(path).suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for filled, sentence in itertools.groupby(lines, key=lambda line: bool(line.strip())):
            if filled:
                rows = [line.split("\t") for line in sentence if not line.startswith("#")]
                yield [int(row[6]) for row in rows if row[0].isdigit()]


def random_heads(count: int) -> Iterator[list[int]]:
    """Trees with the lengths, the depth and the share of leaves of captions, in any order of words."""
    generator = np.random.default_rng(1)
    for length in np.clip(np.rint(generator.lognormal(2.42, 0.33, count)), 3, 40).astype(int):
        heads, inner = [-1], [0]
        for node in range(1, length):
            any_head = generator.random() < _ANY_HEAD
            head = int(generator.integers(node)) if any_head else inner[generator.integers(len(inner))]
            heads.append(head)
            inner += [] if head in inner else [head]
        order = generator.permutation(length)
        yield [int(order[heads[node]]) + 1 if heads[node] >= 0 else 0 for node in np.argsort(order)]


def batches(sentences: list[list[int]], size: int, count: int) -> list[tf.Tensor]:
    """Batches of random words with these heads, each (size, steps, 2) int32."""
    generator = np.random.default_rng(0)
    chosen = generator.permutation(len(sentences))[:_SENTENCES]
    chosen = chosen[np.argsort([len(sentences[i]) for i in chosen], kind="stable")]
    groups = chosen[: len(chosen) // size * size].reshape(-1, size)
    made = []
    for group in groups[generator.permutation(len(groups))[:count]]:
        ids = np.zeros((size, max(len(sentences[i]) for i in group), 2), np.int32)
        for row, i in enumerate(group):
            ids[row, : len(sentences[i]), 0] = generator.integers(2, WORDS, len(sentences[i]))
            ids[row, : len(sentences[i]), 1] = sentences[i]
        made.append(tf.constant(ids))
    return made


def training_step(encoder: keras.layers.Layer, column: int | None) -> Callable[[tf.Tensor], tf.Tensor]:
    """A compiled step of an encoder that reads one column of the ids, or all."""
    encoder.build((None, None) if column is not None else (None, None, 2))
    variables = [v.value for v in encoder.trainable_variables]

    @tf.function(input_signature=[tf.TensorSpec([None, None, 2], tf.int32)])
    def step(ids: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            read = ids if column is None else ids[..., column]
            total = tf.reduce_sum(encoder(read, training=True) ** 2)
        # A number that needs every gradient.
        return total + tf.add_n([tf.reduce_sum(g[..., :1]) for g in tape.gradient(total, variables)])

    return step


def reference_step(encoder: keras.layers.Layer) -> Callable[[tf.Tensor], tf.Tensor]:
    """The same step through `tree_lstm_states_reference`, traced at once."""
    import vsemb.systems.trees.tree_lstm as module

    fast = module.tree_lstm_states
    module.tree_lstm_states = trees.tree_lstm_states_reference
    try:
        step = training_step(encoder, None)
        step.get_concrete_function()
        return step
    finally:
        module.tree_lstm_states = fast


@tf.function(input_signature=[tf.TensorSpec([None, None, 2], tf.int32)])
def schedule(ids: tf.Tensor) -> tf.Tensor:
    """What is done for a batch before any state is computed, as a number that needs most of it."""
    from vsemb.systems.trees.levels import _schedule

    heads, mask, depth, slot = trees._shape(ids[..., 1], ids[..., 0] > 0, 2)
    plan = _schedule(heads, mask, depth, slot, 4)
    return sum(tf.reduce_sum(part) for part in vars(plan).values())


def seconds(units: int, data: list[tf.Tensor], rounds: int) -> dict[str, float]:
    """Median seconds of a step of each kind."""

    def words() -> WordEmbedding:
        return WordEmbedding(WORDS, WORD_DIM, train_words=False)

    def tree(**options: Any) -> TreeLSTMEncoder:
        return TreeLSTMEncoder(words(), units, units=units, **options)

    steps = {
        "lstm": training_step(RecurrentSentenceEncoder(words(), units, cell="lstm", units=units), 0),
        "tree_lstm": training_step(tree(), None),
        "child_sum": training_step(tree(children="sum"), None),
        "reference": reference_step(tree()),
        "schedule": schedule,
    }
    slow = steps.pop("reference")
    times: dict[str, list[float]] = {name: [] for name in steps}
    for round_number in range(rounds + 1):
        for ids in data:
            for name, step in steps.items():
                start = time.perf_counter()
                step(ids).numpy()
                if round_number:  # the first round traces
                    times[name].append(time.perf_counter() - start)
    medians = {name: float(np.median(values)) for name, values in times.items()}
    # By far the slowest: one batch, in steps of the LSTM over the same one.
    first = float(np.median(times["lstm"][:: len(data)]))
    medians["reference"] = median_seconds(lambda: slow(data[0]).numpy(), 1) * medians["lstm"] / first
    return medians


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conllu", metavar="FILE")
    parser.add_argument("--units", type=int, nargs="+", default=[150, 300, 600])
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="0 lets TensorFlow decide")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    sentences = list(read_heads(arguments.conllu) if arguments.conllu else random_heads(_SENTENCES))
    data = batches(sentences, arguments.batch_size, arguments.batches)
    report: dict[str, Any] = {"cores": os.cpu_count(), "threads": arguments.threads, "ratios_to_lstm": {}}
    lines = []
    for units in arguments.units:
        medians = seconds(units, data, arguments.rounds)
        kinds = ["tree_lstm", "child_sum", "reference", "schedule"]
        ratios = {name: round(medians[name] / medians["lstm"], 2) for name in kinds}
        report["ratios_to_lstm"][units] = ratios
        lines.append([str(units), f"{1e3 * medians['lstm']:.0f} ms", *map(str, ratios.values())])
    print(table(["units", "lstm", "tree-lstm", "child-sum", "reference", "schedule"], lines))
    if arguments.json:
        write_json(arguments.json, report)


if __name__ == "__main__":
    main()

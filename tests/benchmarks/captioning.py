"""Writing captions: beam search in graph beside the loop that calls the model, and SC-NLM's candidates.

    python -m tests.benchmarks.captioning [--images 1 16 64] [--beam 7] [--threads 1] [--json FILE]

A multimodal LSTM with random weights, of the size that the default recipe has on Flickr8k (512 units, 2,600
words), which never ends a sentence: every way writes 20 words. The peer is beam search as scripts write it,
one image at a time: a call of the model for each word, log-probabilities to NumPy, hypotheses in lists.
The limit is the time that the step's matrix products would take at the speed of one large product. Both are
ratios to the graph's time in the same run; CPU time of the process.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from tests.benchmarks.training import sgemm_gflops
from vsemb.encoders import ImageEncoder, WordEmbedding
from vsemb.files import write_json
from vsemb.printing import table
from vsemb.systems.captions.decoding import SearchOptions, beam_search
from vsemb.systems.captions.multimodal_rnn import MultimodalRNN

WORDS, UNITS, FEATURES, STEPS = 2600, 512, 2048, 20


def make_model() -> MultimodalRNN:
    """A model whose END is never likely."""
    keras.utils.set_random_seed(0)
    model = MultimodalRNN(
        ImageEncoder(4 * UNITS, use_bias=False), WordEmbedding(WORDS, UNITS), cell="lstm", units=UNITS
    )
    model.build({"image": (None, FEATURES), "text": (None, None)})
    bias = np.zeros(WORDS, np.float32)
    bias[0] = -1e3
    model.output_bias.assign(bias)
    return model


def loop(model: MultimodalRNN, images: np.ndarray, beam: int) -> list[list[int]]:
    """Beam search with hypotheses in Python lists, one image after another."""
    best = []
    for image in images:
        state = model.start({"image": tf.repeat(image[None], beam, axis=0)})
        hypotheses = [(0.0, [])] + [(-np.inf, [])] * (beam - 1)
        words = np.zeros(beam, np.int32)
        for _ in range(STEPS):
            log_probs, state = model.step(state, tf.constant(words))
            scores = np.array([score for score, _ in hypotheses])[:, None] + log_probs.numpy()
            scores[:, 1] = -np.inf
            chosen = np.argsort(-scores, axis=None)[:beam]
            rows, columns = np.unravel_index(chosen, scores.shape)
            hypotheses = [
                (scores[row, column], [*hypotheses[row][1], int(column)])
                for row, column in zip(rows, columns, strict=True)
            ]
            state = tf.nest.map_structure(lambda value, rows=rows: tf.gather(value, rows), state)
            words = columns.astype(np.int32)
        best.append(hypotheses[0][1])
    return best


def cpu_seconds(function: Callable[[], Any], rounds: int) -> float:
    """The median of the process' CPU time, after one unmeasured call."""
    function()
    times = []
    for _ in range(rounds):
        begun = time.process_time()
        function()
        times.append(time.process_time() - begun)
    return float(np.median(times))


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--beam", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    model, beam = make_model(), arguments.beam

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, FEATURES), tf.float32)])
    def search(images: tf.Tensor) -> tf.Tensor:
        state = model.start({"image": images})
        options = SearchOptions(beam=beam, max_words=STEPS, min_words=STEPS)
        return beam_search(model.step, state, options, rows=tf.shape(images)[0]).tokens

    # Of a step: the words' matrix, the recurrent one and the softmax, for each hypothesis.
    gflop = STEPS * beam * 2 * (UNITS * 4 * UNITS + UNITS * 4 * UNITS + UNITS * WORDS) / 1e9
    report: dict[str, Any] = {"beam": beam, "threads": arguments.threads, "sizes": []}
    lines = []
    for count in arguments.images:
        images = np.random.default_rng(count).normal(size=(count, FEATURES)).astype(np.float32)
        few = images[:4]
        if search(few).numpy()[:, 0].tolist() != loop(model, few, beam):
            raise SystemExit("The two ways write different captions.")
        graph = cpu_seconds(lambda images=images: search(images).numpy(), arguments.rounds)
        peer = cpu_seconds(lambda few=few: loop(model, few, beam), 3) / len(few) * count
        floor = gflop * count / sgemm_gflops(clock=time.process_time)
        row = {"images": count, "ms_per_image": 1e3 * graph / count}
        row |= {"loop_over_graph": peer / graph, "graph_over_limit": graph / floor}
        report["sizes"].append({name: round(value, 3) for name, value in row.items()})
        lines.append([str(count), f"{1e3 * graph / count:.1f}", f"{peer / graph:.1f}", f"{graph / floor:.2f}"])
    print(table(["images", "ms an image", "loop / graph", "graph / limit"], lines))
    if arguments.json:
        write_json(arguments.json, report)


if __name__ == "__main__":
    main()

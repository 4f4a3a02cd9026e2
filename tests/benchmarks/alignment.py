"""Scores of sets: all regions of all images against all words of all captions.

    python -m tests.benchmarks.alignment [--images 100 300 1000] [--dim 1000] [--threads 1] [--json FILE]

Five captions an image, 20 regions an image and 20 words a caption, each size in a process of its own. Every
row is a ratio to something measured in the same run: the time that the matrix product of all regions and all
words would take at the speed of one large product, and a loop over pairs in NumPy (a product of 20 x 20, a
maximum and a sum each), timed on some of the pairs. With `real lengths` captions have 5 to 20 words, about
10, and the rest of their rows is padding; the limit counts the words alone there. The training step is loss 9
of one batch, forward and backward; its limit is three products.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from tests.benchmarks.order import peak_bytes
from tests.benchmarks.timing import median_seconds
from tests.benchmarks.training import sgemm_gflops
from vsemb.evaluation import retrieval_ranks
from vsemb.files import write_json
from vsemb.losses import PairwiseRanking
from vsemb.printing import table
from vsemb.systems.regions.cross_attention import CrossAttention, cross_attention_scores
from vsemb.systems.regions.similarities import MaxSim, MultiVectorSimilarity, region_word_scores

REGIONS, WORDS, CAPTIONS = 20, 20, 5
_LOOP_IMAGES, _LOOP_TEXTS = 10, 500


def sets(rows: int, items: int, dim: int, seed: int) -> np.ndarray:
    """Random vectors, (rows, items, dim) float32."""
    return np.random.default_rng(seed).standard_normal((rows, items, dim), np.float32)


def real_lengths(words: np.ndarray) -> int:
    """Makes padding of the last words of each caption; returns how many words are left."""
    generator = np.random.default_rng(2)
    lengths = np.clip(np.rint(generator.lognormal(2.35, 0.33, len(words))), 5, WORDS).astype(int)
    words[np.arange(WORDS) >= lengths[:, None]] = 0
    return int(lengths.sum())


def loop_seconds(regions: np.ndarray, words: np.ndarray) -> float:
    """Seconds that a loop over all pairs takes, from some of them."""
    few, some = regions[:_LOOP_IMAGES], words[:_LOOP_TEXTS]

    def loop() -> None:
        for image in few:
            for text in some:
                (image @ text.T).max(axis=0).sum()

    return median_seconds(loop, 3) * len(regions) * len(words) / (len(few) * len(some))


def step_seconds(similarity: MultiVectorSimilarity, batch: int, dim: int) -> float:
    """Seconds of the loss of a batch in both directions, forward and backward."""
    regions, words = (tf.constant(np.asarray(similarity.normalize(sets(batch, 20, dim, seed)))) for seed in (3, 4))
    relation, loss = tf.eye(batch, dtype=tf.int32), PairwiseRanking(1.0)

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            tape.watch([regions, words])
            scores = similarity.scores(regions, words)
            total = loss(relation, scores) + loss(relation, tf.transpose(scores))
        return tape.gradient(total, [regions, words])

    return median_seconds(lambda: step()[0].numpy(), 7)


def timed(score: Callable[[], Any], images: int) -> dict[str, float]:
    """Seconds of a function: the median of three warm rounds, or of one cold round where it takes long."""
    if images <= 300:
        return {"seconds": median_seconds(score, 3)}
    start = time.perf_counter()
    score()
    return {"seconds": time.perf_counter() - start}


def measure(images: int, dim: int, threads: int, batch: int) -> dict[str, Any]:
    """All figures of one size; how many threads there are is decided once a process."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    regions, words = sets(images, REGIONS, dim, 0), sets(images * CAPTIONS, WORDS, dim, 1)
    # First, while nothing larger has been in memory.
    before = peak_bytes()
    ours = timed(lambda: region_word_scores(regions, words).numpy(), images)
    ours["gigabytes"] = (peak_bytes() - before) / 1e9
    gflops = sgemm_gflops()
    limit = 2 * images * REGIONS * len(words) * WORDS * dim / gflops / 1e9
    report: dict[str, Any] = {"sgemm_gflops": gflops, "limit": limit, "max_sim": ours}
    report["loop_over_pairs"] = {"seconds": loop_seconds(regions, words)}
    ids = np.arange(images)
    owners = np.repeat(ids, CAPTIONS)
    report["ranks_both_ways"] = timed(lambda: retrieval_ranks(regions, words, ids, owners, MaxSim()), images)
    unit = [np.asarray(CrossAttention().normalize(x)) for x in (regions, words)]
    for attend in ("regions", "words"):
        score = partial(cross_attention_scores, *unit, attend)
        report[f"cross_attention_{attend}"] = timed(lambda score=score: score().numpy(), images)
    left = real_lengths(words)
    report["max_sim_real_lengths"] = timed(lambda: region_word_scores(regions, words).numpy(), images)
    report["real_limit"] = limit * left / words[..., 0].size
    if batch:
        report["batch_limit"] = 3 * 2 * (batch * 20) ** 2 * dim / gflops / 1e9
        for name, similarity in (("max_sim", MaxSim()), ("cross_attention", CrossAttention())):
            report[f"{name}_batch"] = {"seconds": step_seconds(similarity, batch, dim)}
    return report


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[100, 300, 1000])
    parser.add_argument("--dim", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--threads", type=int, default=0, help="0 lets TensorFlow decide")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    reports, rows = {}, []
    for number, images in enumerate(arguments.images):
        batch = arguments.batch_size if number == len(arguments.images) - 1 else 0
        given = (images, arguments.dim, arguments.threads, batch)
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            report = reports[images] = pool.submit(measure, *given).result()
        name = f"{images} x {REGIONS} against {CAPTIONS * images} x {WORDS} x {arguments.dim}"
        rows.append([name, f"limit {report['limit']:.2f} s", "1.00", ""])
        for key, title, limit in (
            ("max_sim", "max-sim", "limit"),
            ("max_sim_real_lengths", "max-sim, real lengths", "real_limit"),
            ("ranks_both_ways", "ranks both ways", "limit"),
            ("cross_attention_regions", "cross-attention", "limit"),
            ("cross_attention_words", "cross-attention-image", "limit"),
            ("loop_over_pairs", "NumPy, loop over pairs", "limit"),
            ("max_sim_batch", f"step of a batch of {batch}, max-sim", "batch_limit"),
            ("cross_attention_batch", f"step of a batch of {batch}, cross-attention", "batch_limit"),
        ):
            if key in report:
                found = report[key]
                ratio = found["times_the_limit"] = found["seconds"] / report[limit]
                memory = f"{found['gigabytes']:.2f} GB" if "gigabytes" in found else ""
                rows.append([f"  {title}", f"{found['seconds']:.2f} s", f"{ratio:.2f}", memory])
    print(table(["", "time", "times the limit", "memory beyond the inputs"], rows))
    if arguments.json:
        write_json(arguments.json, {"cores": os.cpu_count(), "threads": arguments.threads, "sizes": reports})


if __name__ == "__main__":
    main()

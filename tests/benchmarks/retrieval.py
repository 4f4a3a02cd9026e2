"""Ranks both ways by cosine: a test set beside the loops of the papers' code and one matrix product.

    python -m tests.benchmarks.retrieval [--images 1250 2500 5000] [--dim 1024] [--threads 1] [--json FILE]

Five captions an image. The peer is how VSE++ evaluates (arXiv:1707.05612, its code's `i2t` and `t2i`): for
each image a product with all captions and a sort of all scores, for each caption a product with all images
and another sort; it is timed on some of the images. The floor is one product of all images and all captions
at the speed of one large product. Ranks must be equal, or nothing is reported. CPU time, in turns; each size
is in a process of its own, and the peer in another, with OpenBLAS' best kernels for this processor.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from tests.benchmarks.timing import (
    bytes_beyond,
    cpu_seconds,
    growth_rows,
    interleaved,
    left_out,
    own_process,
    print_rows,
    row,
    set_threads,
)
from vsemb.files import write_json

CAPTIONS = 5
LOOPS, FLOOR, MEMORY = "cosine ranks / papers' loops", "cosine ranks, in products", "cosine ranks, GB"
GROWTH = "cosine ranks, growth with pairs"


def embeddings(images: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors of images, and of captions around them: (n, dim) and (5 n, dim) float32."""
    generator = np.random.default_rng(0)
    found = generator.standard_normal((images, dim), np.float32)
    texts = np.repeat(found, CAPTIONS, axis=0)
    texts += 4 * generator.standard_normal(texts.shape, np.float32)
    for rows in (found, texts):
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return found, texts


_kept: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}


def papers_loops(images: int, dim: int, few: int) -> tuple[float, list[int], list[int]]:
    """CPU time for all images, from the first few; their ranks, and those of their captions."""
    if (images, dim) not in _kept:
        _kept[images, dim] = embeddings(images, dim)
    found, texts = _kept[images, dim]
    of_images, of_texts = [], []
    begun = time.process_time()
    for number in range(few):
        order = np.argsort(np.dot(found[number : number + 1], texts.T).flatten())[::-1]
        own = range(CAPTIONS * number, CAPTIONS * (number + 1))
        of_images.append(min(int(np.where(order == caption)[0][0]) for caption in own))
    for number in range(few):
        scores = np.dot(texts[CAPTIONS * number : CAPTIONS * (number + 1)], found.T)
        for line in scores:
            order = np.argsort(line)[::-1]
            of_texts.append(int(np.where(order == number)[0][0]))
    return (time.process_time() - begun) * images / few, of_images, of_texts


def measure(images: int, dim: int, threads: int, rounds: int, few: int) -> list[dict[str, Any]]:
    """The rows of one size."""
    from tests.benchmarks.training import sgemm_gflops
    from vsemb.evaluation import retrieval_ranks
    from vsemb.similarities import Cosine

    set_threads(threads)
    found, texts = embeddings(images, dim)
    ids = np.arange(images)

    def ranked(count: int = images) -> tuple[np.ndarray, np.ndarray]:
        rows, own = slice(count), slice(CAPTIONS * count)
        return retrieval_ranks(found[rows], texts[own], ids[rows], np.repeat(ids, CAPTIONS)[own], Cosine())

    ranked(min(images, 50))  # What a library takes once is not memory of a test set.
    memory = bytes_beyond(ranked)
    few = min(few, images)
    gflop = 2 * images * len(texts) * dim / 1e9
    with own_process(threads, peer=True) as pool:
        _, of_images, of_texts = pool.submit(papers_loops, images, dim, few).result()
        ours = ranked()
        # A product of one row and of a thousand differ in the last bits, which may turn a near tie.
        differing = sum(
            int(np.count_nonzero(np.abs(mine[: len(theirs)] - theirs) > 1))
            for mine, theirs in zip(ours, (of_images, of_texts), strict=True)
        )
        if differing:
            raise SystemExit(f"{differing} of {len(of_images) + len(of_texts)} ranks differ from the peer's.")
        seconds = interleaved(
            {
                "ours": lambda: cpu_seconds(ranked),
                "loops": lambda: pool.submit(papers_loops, images, dim, few).result()[0],
                "product": lambda: gflop / sgemm_gflops(clock=time.process_time),
            },
            rounds,
        )
    size = f"{images} x {len(texts)} x {dim}"
    rows = [
        row(LOOPS, size, seconds["loops"] / seconds["ours"], **seconds),
        row(FLOOR, size, seconds["ours"] / seconds["product"]),
    ]
    if memory is None:
        return [*rows, left_out(MEMORY, "only Linux tells the memory of a call")]
    return [*rows, row(MEMORY, size, memory / 1e9)]


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[1250, 2500, 5000])
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--few", type=int, default=100, help="images that the peer is timed on (%(default)s)")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    rows, seconds = [], []
    for images in arguments.images:
        given = (images, arguments.dim, arguments.threads, arguments.rounds, arguments.few)
        with own_process(arguments.threads) as pool:
            found = pool.submit(measure, *given).result()
        seconds.append(found[0]["ours"])
        rows += found
    rows += growth_rows(GROWTH, [CAPTIONS * images**2 for images in arguments.images], seconds)
    print_rows(rows)
    if arguments.json:
        write_json(arguments.json, {"threads": arguments.threads, "rows": rows})


if __name__ == "__main__":
    main()

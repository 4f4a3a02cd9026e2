"""Recall with fewer bytes per vector: `encode_texts(precision=…)`, and fewer dimensions by PCA.

    python -m tests.benchmarks.precision RUN [RUN …] [--data DATASET] [--split val] [--dims 256 128] [--peer]

For each run, captions and images of the split are embedded once and stored in several ways:

    float32, int8, ubinary   both sides as `encode_texts` and `encode_images` return them
    ubinary items            items as bits, queries as float32
    PCA k                    projected onto the k principal axes of the training embeddings of both sides, scaled to
                             unit length
    first k                  only the first k numbers, scaled to unit length
    int8 by ranges           with --peer: one range per dimension and side, from the training embeddings; a byte is a
                             256th part of it, as in sentence-transformers
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from vsemb.data.store import StoredDataset
from vsemb.evaluation import evaluate_retrieval
from vsemb.printing import table
from vsemb.quantization import Precision, quantize
from vsemb.runs.measure import embedded
from vsemb.runs.run import Run
from vsemb.similarities import Cosine

Sides = tuple[np.ndarray, np.ndarray]


def principal_axes(embeddings: np.ndarray, dim: int) -> np.ndarray:
    """Return the axes with the largest mean squares, (embedding dim, dim) float32."""
    return np.linalg.eigh(embeddings.T @ embeddings)[1][:, -dim:]


def by_ranges(embeddings: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """Return int8 codes of one range per dimension."""
    low, high = calibration.min(axis=0), calibration.max(axis=0)
    return np.clip(np.trunc((embeddings - low) / ((high - low) / 255) - 128), -128, 127).astype(np.int8)


def unit(embeddings: np.ndarray) -> np.ndarray:
    return embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)


def ways(sides: Sides, training: Sides, dims: list[int], peer: bool) -> Iterator[tuple[str, Sides, Sides]]:
    """Yield a name and, as queries and as items, images and texts."""
    for precision in get_args(Precision):
        if precision == "ubinary" and sides[0].shape[1] % 8:
            continue
        coded = quantize(sides[0], precision), quantize(sides[1], precision)
        yield precision, coded, coded
        if precision == "ubinary":
            yield "ubinary items", sides, coded
    if peer:
        ranged = by_ranges(sides[0], training[0]), by_ranges(sides[1], training[1])
        yield "int8 by ranges", ranged, ranged
    axes = principal_axes(np.concatenate(training), max(dims))
    for dim in dims:
        reduced = unit(sides[0] @ axes[:, -dim:]), unit(sides[1] @ axes[:, -dim:])
        yield f"PCA {dim}", reduced, reduced
        coded = quantize(reduced[0], "int8"), quantize(reduced[1], "int8")
        yield f"PCA {dim}, int8", coded, coded
        first = unit(sides[0][:, :dim]), unit(sides[1][:, :dim])
        yield f"first {dim}", first, first


def measured(run: Run, dataset: StoredDataset, split: str, dims: list[int], peer: bool) -> list[list[str]]:
    """Return a row per way to store the embeddings of a split."""
    images, texts, of_image = embedded(run, dataset, split)
    *training, _ = embedded(run, dataset, "train")
    ids = np.arange(len(images))
    rows = []
    for name, queries, items in ways((images, texts), (training[0], training[1]), dims, peer):
        # PCA mixes the members of an ensemble, so that the inner product remains.
        found_texts = evaluate_retrieval(queries[0], items[1], ids, of_image, Cosine()).image_to_text
        found_images = evaluate_retrieval(items[0], queries[1], ids, of_image, Cosine()).text_to_image
        recalls = [side[f"R@{k}"] for side in (found_texts, found_images) for k in (1, 5, 10)]
        values = [found_texts["R@1"], found_images["R@1"], sum(recalls)]
        rows.append([name, str(items[0][0].nbytes), *(f"{value:.1f}" for value in values)])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--split", default="val")
    parser.add_argument("--dims", nargs="+", type=int, default=[256, 128])
    parser.add_argument("--peer", action="store_true")
    options = parser.parse_args()
    for path in options.runs:
        run = Run.open(path, "retrieval")
        dataset = StoredDataset.open(options.data or run.info["data"])
        rows = measured(run, dataset, options.split, options.dims, options.peer)
        print(table([str(path), "bytes", "I→T R@1", "T→I R@1", "recall sum"], rows), flush=True)


if __name__ == "__main__":
    main()

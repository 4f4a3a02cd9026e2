"""An epoch of hypernymy in PyTorch: a sparse table and SparseAdam, which moves the rows of a batch alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.benchmarks.timing import cpu_seconds


def epoch(
    vectors: np.ndarray, true: np.ndarray, false: np.ndarray, margin: float, rate: float, batch: int
) -> Callable[[], dict[str, Any]]:
    """Returns what trains on all pairs, from these vectors on; with its time is the loss of the very first step."""
    table = torch.nn.Embedding.from_pretrained(torch.from_numpy(vectors.copy()), freeze=False, sparse=True)
    optimizer = torch.optim.SparseAdam(list(table.parameters()), lr=rate)
    right, wrong = torch.from_numpy(true.astype(np.int64)), torch.from_numpy(false.astype(np.int64))
    first: list[float] = []

    def energy(pairs: Any) -> Any:
        # Negative coordinates are folded, as order-embeddings' are.
        specific, general = table(pairs[:, 0]).abs(), table(pairs[:, 1]).abs()
        return (general - specific).clamp(min=0).pow(2).sum(1)

    def run() -> None:
        for start in range(0, len(true), batch):
            part = slice(start, start + batch)
            optimizer.zero_grad()
            loss = energy(right[part]).sum() + (margin - energy(wrong[part])).clamp(min=0).sum()
            loss.backward()
            optimizer.step()
            first.append(float(loss.detach()))
            del first[1:]

    return lambda: {"seconds": cpu_seconds(run), "first": first[0]}

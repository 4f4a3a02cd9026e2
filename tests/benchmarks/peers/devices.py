"""The models of `tests.benchmarks.jax_training` in PyTorch, on the GPU where there is one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.benchmarks.peers.vsepp import Towers, ranking

_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Contrastive(nn.Module):
    """Both towers of the recipe `contrastive`: a GRU in two directions, or a Transformer, and a linear image map."""

    def __init__(self, variant: str, words: int, word_dim: int, units: int, features: int, dim: int = 512) -> None:
        super().__init__()
        self.transformer = variant == "transformer"
        self.table = nn.Embedding(words, word_dim, padding_idx=0)
        if self.transformer:
            options: dict[str, Any] = {"dropout": 0.1, "activation": "gelu", "batch_first": True, "norm_first": True}
            block = nn.TransformerEncoderLayer(units, 4, 4 * units, **options)
            self.places = nn.Parameter(0.02 * torch.randn(64, units))
            self.blocks = nn.TransformerEncoder(block, 2, norm=nn.LayerNorm(units), enable_nested_tensor=False)
        else:
            self.recurrent = nn.GRU(word_dim, units, batch_first=True, bidirectional=True)
        self.text = nn.Linear(units if self.transformer else 2 * units, dim)
        self.image = nn.Linear(features, dim)
        self.scale = nn.Parameter(torch.tensor(1 / 0.07).log())

    def forward(self, ids: Any, lengths: Any, images: Any) -> tuple[Any, Any]:
        """Returns unit vectors of texts and images; captions are sorted by length, longest first."""
        mask = (ids != 0)[:, :, None]
        if self.transformer:
            states = self.blocks(self.table(ids) + self.places[: ids.shape[1]], src_key_padding_mask=~mask[:, :, 0])
        else:
            packed = pack_padded_sequence(self.table(ids), lengths, batch_first=True)
            states, _ = pad_packed_sequence(self.recurrent(packed)[0], batch_first=True, total_length=ids.shape[1])
            states = sum(states.chunk(2, 2)) / 2
        pooled = (states * mask).sum(1) / mask.sum(1)
        if not self.transformer:
            pooled = torch.cat([pooled, states.masked_fill(~mask, -torch.inf).max(1).values], 1)
        return normalize(self.text(pooled), dim=1), normalize(self.image(images), dim=1)


def epoch(
    recipe: str,
    variant: str,
    words: int,
    word_dim: int,
    units: int,
    features: np.ndarray,
    bfloat16: bool = False,
    compiled: bool = False,
) -> Callable[..., dict[str, Any]]:
    """Returns what trains on batches of captions, each batch sorted by length, longest first.

    Its arguments are `ids` (batches, size, longest) padded with 0, `lengths` and `rows` of features, both
    (batches, size). It returns elapsed seconds, and the peak of the GPU's memory in bytes, 0 without a GPU.
    """
    torch.manual_seed(0)
    own = recipe == "contrastive"
    size = features.shape[1]
    model: Any = (
        Contrastive(variant, words, word_dim, units, size) if own else Towers(variant, words, word_dim, size)
    ).to(_DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    forward = torch.compile(model) if compiled else model
    images = torch.from_numpy(features)

    def step(ids: Any, lengths: Any, rows: Any) -> None:
        optimizer.zero_grad()
        with torch.autocast(_DEVICE, dtype=torch.bfloat16, enabled=bfloat16):
            texts, found = forward(ids.to(_DEVICE), lengths, images[rows].to(_DEVICE))
        scores = found.float() @ texts.float().T
        if own:
            scores, targets = model.scale.exp() * scores, torch.arange(len(scores), device=_DEVICE)
            loss = (cross_entropy(scores, targets) + cross_entropy(scores.T, targets)) / 2
        else:
            loss = ranking(scores, hardest=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()

    def call(ids: np.ndarray, lengths: np.ndarray, rows: np.ndarray) -> dict[str, Any]:
        batches = [
            (torch.from_numpy(padded[:, : length[0]].copy()), torch.from_numpy(length), torch.from_numpy(chosen))
            for padded, length, chosen in zip(ids, lengths, rows, strict=True)
        ]
        if _DEVICE == "cuda":
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
        begun = time.perf_counter()
        for batch in batches:
            step(*batch)
        if _DEVICE == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "bytes": torch.cuda.max_memory_allocated() if _DEVICE == "cuda" else 0}

    return call

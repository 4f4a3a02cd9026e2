"""The text towers of the recipe `vsepp` with a linear image map, in PyTorch; a part of `training.py`.

Written as VSE++'s code has it (arXiv:1707.05612): captions of a batch packed by length, so that no step is
spent on padding; Adam, and gradients clipped to a global norm of 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

Batch = tuple[np.ndarray, np.ndarray, np.ndarray]


class Towers(nn.Module):
    """Both towers of a variant, `"paper"` (GRU 1024) or `"tuned"` (two GRUs of 256, and a bag of words)."""

    def __init__(self, variant: str, words: int, word_dim: int, features: int) -> None:
        super().__init__()
        self.tuned = variant == "tuned"
        dim = 512 if self.tuned else 1024
        self.table = nn.Embedding(words, word_dim, padding_idx=0)
        self.recurrent = nn.GRU(word_dim, 256 if self.tuned else dim, batch_first=True, bidirectional=self.tuned)
        self.image = nn.Linear(features, dim)
        if self.tuned:
            self.projection = nn.Linear(1024, dim)
            self.bag = nn.Embedding(words, dim, padding_idx=0)
            self.rarity = nn.Embedding(words, 1, padding_idx=0)
            self.gain = nn.Parameter(torch.ones(()))
            self.dropouts = nn.ModuleDict(
                {name: nn.Dropout(p) for name, p in (("words", 0.2), ("text", 0.3), ("image", 0.5))}
            )

    def forward(self, ids: Any, lengths: Any, images: Any) -> tuple[Any, Any]:
        """Returns unit vectors of texts and images; captions are sorted by length, longest first."""
        if not self.tuned:
            packed = pack_padded_sequence(self.table(ids), lengths, batch_first=True)
            _, last = self.recurrent(packed)
            return normalize(last[-1], dim=1), normalize(self.image(images), dim=1)
        unknown = (torch.rand(ids.shape) < 0.15) & (ids != 0)
        packed = pack_padded_sequence(
            self.dropouts["words"](self.table(ids.masked_fill(unknown, 1))), lengths, batch_first=True
        )
        states, _ = pad_packed_sequence(self.recurrent(packed)[0], batch_first=True)
        mask = (ids[:, : states.shape[1]] != 0)[:, :, None]
        mean = (states * mask).sum(1) / mask.sum(1)
        greatest = states.masked_fill(~mask, -torch.inf).max(1).values
        sequence = self.projection(self.dropouts["text"](torch.cat([mean, greatest], 1)))
        weights = nn.functional.dropout(self.rarity(ids).detach(), 0.4)
        bag = (self.bag(ids) * weights).sum(1)
        text = normalize(sequence, dim=1) + self.gain * normalize(bag, dim=1)
        return normalize(text, dim=1), normalize(self.image(self.dropouts["image"](images)), dim=1)


def ranking(scores: Any, hardest: bool) -> Any:
    """The hinge with margin 0.2 in both directions, over the hardest negative or the sum of all."""
    positive = scores.diag()
    same = torch.eye(len(scores), dtype=torch.bool)
    loss: Any = 0.0
    for rows in (scores, scores.T):
        cost = (0.2 + rows - positive[:, None]).clamp(min=0).masked_fill(same, 0)
        loss = loss + (cost.max(1).values.mean() if hardest else cost.sum())
    return loss


def make_epoch(
    variant: str, words: int, word_dim: int, features: int, *, bfloat16: bool = False, compiled: bool = False
) -> Callable[[Sequence[Batch]], None]:
    """Returns what trains on batches of (ids, lengths, images), captions sorted by length, longest first."""
    torch.manual_seed(0)
    model: Any = Towers(variant, words, word_dim, features)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    forward = torch.compile(model) if compiled else model
    targets = None

    def epoch(batches: Sequence[Batch]) -> None:
        nonlocal targets
        for ids, lengths, images in batches:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
                texts, found = forward(*(torch.from_numpy(part) for part in (ids, lengths, images)))
            scores = found.float() @ texts.float().T
            loss = ranking(scores, hardest=variant == "tuned")
            if variant == "tuned":
                targets = torch.arange(len(ids)) if targets is None else targets
                for rows in (scores, scores.T):
                    loss = loss + nn.functional.cross_entropy(rows / 0.05, targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()

    return epoch

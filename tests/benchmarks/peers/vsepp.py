"""The text towers of the recipe `vsepp` with a linear image map, in PyTorch: training, encoding and loading.

Written as VSE++'s code has it (arXiv:1707.05612): captions of a batch packed by length, so that no step is
spent on padding; Adam, and gradients clipped to a global norm of 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.benchmarks.peers.words import split
from tests.benchmarks.timing import cpu_seconds


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
        read = ids
        if self.training:
            read = ids.masked_fill((torch.rand(ids.shape) < 0.15) & (ids != 0), 1)
        packed = pack_padded_sequence(self.dropouts["words"](self.table(read)), lengths, batch_first=True)
        states, _ = pad_packed_sequence(self.recurrent(packed)[0], batch_first=True)
        mask = (ids[:, : states.shape[1]] != 0)[:, :, None]
        mean = (states * mask).sum(1) / mask.sum(1)
        greatest = states.masked_fill(~mask, -torch.inf).max(1).values
        sequence = self.projection(self.dropouts["text"](torch.cat([mean, greatest], 1)))
        weights = nn.functional.dropout(self.rarity(ids).detach(), 0.4, self.training)
        bag = (self.bag(ids) * weights).sum(1)
        text = normalize(sequence, dim=1) + self.gain * normalize(bag, dim=1)
        return normalize(text, dim=1), normalize(self.image(self.dropouts["image"](images)), dim=1)


def ranking(scores: Any, hardest: bool) -> Any:
    """The hinge with margin 0.2 in both directions, over the hardest negative or the sum of all."""
    positive = scores.diag()
    same = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    loss: Any = 0.0
    for rows in (scores, scores.T):
        cost = (0.2 + rows - positive[:, None]).clamp(min=0).masked_fill(same, 0)
        loss = loss + (cost.max(1).values.mean() if hardest else cost.sum())
    return loss


def epoch(
    variant: str, words: int, word_dim: int, features: np.ndarray, bfloat16: bool = False, compiled: bool = False
) -> Callable[..., dict[str, Any]]:
    """Returns what trains on batches of captions, each batch sorted by length, longest first.

    Its arguments are `ids` (batches, size, longest) padded with 0, `lengths` and `rows` of features, both
    (batches, size).
    """
    torch.manual_seed(0)
    model: Any = Towers(variant, words, word_dim, features.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    forward = torch.compile(model) if compiled else model

    def train(batches: list[tuple[Any, ...]]) -> None:
        targets = torch.arange(len(batches[0][0]))
        for ids, lengths, images in batches:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
                texts, found = forward(ids, lengths, images)
            scores = found.float() @ texts.float().T
            loss = ranking(scores, hardest=variant == "tuned")
            if variant == "tuned":
                for rows in (scores, scores.T):
                    loss = loss + nn.functional.cross_entropy(rows / 0.05, targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()

    def call(ids: np.ndarray, lengths: np.ndarray, rows: np.ndarray) -> dict[str, Any]:
        batches = [
            tuple(torch.from_numpy(part) for part in (padded[:, : length[0]].copy(), length, features[chosen]))
            for padded, length, chosen in zip(ids, lengths, rows, strict=True)
        ]
        return {"seconds": cpu_seconds(lambda: train(batches))}

    return call


def encoder(variant: str, words: np.ndarray, word_dim: int, **weights: Any) -> Callable[..., dict[str, Any]]:
    """Returns what encodes texts to unit vectors `calls` times: seconds per call, and the embeddings.

    The weights of the text tower are given by their names in `Towers`.
    """
    known = {word: number for number, word in enumerate(words.tolist(), 2)}
    towers = Towers(variant, len(known) + 2, word_dim, 1).eval()
    towers.image = nn.Identity()
    towers.load_state_dict({name: torch.as_tensor(values) for name, values in weights.items()})

    def encode(texts: list[str]) -> np.ndarray:
        ids = [[known.get(word, 1) for word in text.lower().split()] for text in texts]
        order = sorted(range(len(ids)), key=lambda place: -len(ids[place]))
        padded = np.zeros((len(ids), len(ids[order[0]])), np.int64)
        for place, number in enumerate(order):
            padded[place, : len(ids[number])] = ids[number]
        lengths = torch.tensor([len(ids[number]) for number in order])
        with torch.inference_mode():
            found, _ = towers(torch.from_numpy(padded), lengths, torch.ones(len(ids), 1))
        embeddings = np.empty(found.shape, np.float32)
        embeddings[order] = found.numpy()
        return embeddings

    def call(texts: np.ndarray, calls: int) -> dict[str, Any]:
        some = texts.tolist()
        return {"seconds": cpu_seconds(lambda: encode(some), calls), "embeddings": encode(some)}

    return call


def loader(features: np.ndarray, texts: np.ndarray, words: np.ndarray, batch: int) -> Callable[[], dict[str, Any]]:
    """Returns what runs an epoch of the loader of VSE++'s code: one caption at a time, tokenized by NLTK."""
    captions, known = texts.tolist(), {word: number for number, word in enumerate(words.tolist(), 2)}
    each = len(captions) // len(features)

    class Captions(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(captions)

        def __getitem__(self, number: int) -> tuple[Any, Any]:
            ids = [known.get(word, 1) for word in split(captions[number].lower())]
            return torch.Tensor(features[number // each]), torch.Tensor(ids)

    def collate(pairs: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        pairs.sort(key=lambda pair: len(pair[1]), reverse=True)
        padded = torch.zeros(len(pairs), len(pairs[0][1])).long()
        for place, (_, ids) in enumerate(pairs):
            padded[place, : len(ids)] = ids
        return torch.stack([image for image, _ in pairs]), padded

    batches = torch.utils.data.DataLoader(Captions(), batch, shuffle=True, collate_fn=collate, drop_last=True)
    return lambda: {"seconds": cpu_seconds(lambda: sum(1 for _ in batches))}

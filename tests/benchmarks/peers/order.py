"""Order violations in PyTorch as VSE++'s code has them (arXiv:1707.05612, its `order_sim`): all pairs expanded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.benchmarks.timing import CONSECUTIVE, cpu_seconds


def expanded(images: Any, texts: Any) -> Any:
    """Scores (images, texts); the root that VSE++ takes is left out."""
    shape = (len(texts), *images.shape)
    over = texts.unsqueeze(1).expand(shape) - images.unsqueeze(0).expand(shape)
    return over.clamp(min=0).pow(2).sum(2).t()


def scores(images: np.ndarray, texts: np.ndarray) -> Callable[[], dict[str, Any]]:
    """Returns what scores all pairs."""
    pairs = torch.from_numpy(images), torch.from_numpy(texts)
    return lambda: {"seconds": cpu_seconds(lambda: expanded(*pairs)), "scores": expanded(*pairs).numpy()}


def loss(images: np.ndarray, texts: np.ndarray) -> Callable[[], dict[str, Any]]:
    """Returns what computes a ranking loss forward and backward, with the gradient of the images."""
    points = [torch.from_numpy(each).requires_grad_() for each in (images, texts)]

    def step() -> np.ndarray:
        energies = expanded(*points)
        own = energies.diag()
        hinges = (0.05 + own[:, None] - energies).relu() + (0.05 + own[None] - energies).relu()
        return torch.autograd.grad(hinges.sum(), points)[0].numpy()

    return lambda: {"seconds": cpu_seconds(step, CONSECUTIVE), "gradient": step()}

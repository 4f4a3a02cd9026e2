"""Losses.

Row-wise ones read (queries, candidates) relations and scores and give one value per query, see `InBatchLoss`;
`MaxMargin` reads labels and energies of pairs, `NextWordCrossEntropy` sentences and scores of their words.
"""

from __future__ import annotations

import inspect
from typing import Any

from vsemb.errors import unknown_name
from vsemb.losses.combined import CombinedLoss
from vsemb.losses.contrastive import InfoNCE
from vsemb.losses.in_batch import InBatchLoss
from vsemb.losses.ranking import PairwiseRanking
from vsemb.losses.sigmoid import SigmoidLoss

__all__ = [
    "CombinedLoss",
    "InfoNCE",
    "PairwiseRanking",
    "InBatchLoss",
    "SigmoidLoss",
    "get",
]

LOSSES: dict[str, type[InBatchLoss]]

_LOSSES: dict[str, type[InBatchLoss]] = {
    "ranking": PairwiseRanking,
    "infonce": InfoNCE,
    "sigmoid": SigmoidLoss,
}


def _losses() -> dict[str, type[InBatchLoss]]:
    # A loss of a system imports this room's base class, so it is imported when asked for.
    from vsemb.systems.zero_shot.structured_loss import StructuredJointEmbedding

    return {**_LOSSES, "structured": StructuredJointEmbedding}


def __getattr__(name: str) -> Any:
    if name == "LOSSES":
        return _losses()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def get(name: str, **arguments: Any) -> InBatchLoss:
    """Builds a loss by name.

    Args:
        name: `"ranking"` (`PairwiseRanking`), `"infonce"` (`InfoNCE`), `"sigmoid"` (`SigmoidLoss`) or
            `"structured"` (`StructuredJointEmbedding`).
        **arguments: constructor arguments; those the loss does not know are an error.

    Raises:
        InvalidArgumentError: for an unknown name or argument.

    Example:

    >>> get("ranking", margin=0.2).margin
    0.2
    """
    losses = _losses()
    if name not in losses:
        raise unknown_name("loss", name, losses)
    known = inspect.signature(losses[name]).parameters
    for argument in arguments:
        if argument not in known:
            raise unknown_name(f"argument of loss {name!r}", argument, known)
    return losses[name](**arguments)

"""Losses.

Row-wise ones read (queries, candidates) relations and scores and give one value per query, see `RowLoss`;
`MaxMargin` reads labels and energies of pairs, `NextWordCrossEntropy` sentences and scores of their words.
"""

from __future__ import annotations

import inspect
from typing import Any

from vsemb.errors import unknown_name
from vsemb.losses.combined import CombinedLoss
from vsemb.losses.contrastive import InfoNCE
from vsemb.losses.max_margin import MaxMargin
from vsemb.losses.next_word import NextWordCrossEntropy
from vsemb.losses.ranking import PairwiseRanking
from vsemb.losses.row import RowLoss
from vsemb.losses.sigmoid import SigmoidLoss
from vsemb.losses.structured import StructuredJointEmbedding

__all__ = [
    "CombinedLoss",
    "InfoNCE",
    "MaxMargin",
    "NextWordCrossEntropy",
    "PairwiseRanking",
    "RowLoss",
    "SigmoidLoss",
    "StructuredJointEmbedding",
    "get",
]

LOSSES: dict[str, type[RowLoss]] = {
    "ranking": PairwiseRanking,
    "infonce": InfoNCE,
    "sigmoid": SigmoidLoss,
    "structured": StructuredJointEmbedding,
}


def get(name: str, **arguments: Any) -> RowLoss:
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
    if name not in LOSSES:
        raise unknown_name("loss", name, LOSSES)
    known = inspect.signature(LOSSES[name]).parameters
    for argument in arguments:
        if argument not in known:
            raise unknown_name(f"argument of loss {name!r}", argument, known)
    return LOSSES[name](**arguments)

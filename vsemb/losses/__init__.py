"""Losses over the candidates of a batch. A loss takes labels, scores and a mask, and returns one value per query."""

from __future__ import annotations

import keras

from vsemb.errors import invalid_argument
from vsemb.losses.contrastive import InfoNCE, SigmoidLoss
from vsemb.losses.in_batch import CombinedLoss, InBatchLoss, KerasLoss
from vsemb.losses.ranking import PairwiseRanking
from vsemb.losses.small_loss import SmallLoss
from vsemb.registry import find_part

__all__ = ["CombinedLoss", "InBatchLoss", "InfoNCE", "KerasLoss", "PairwiseRanking", "SigmoidLoss", "SmallLoss", "get"]


def get(identifier: str | keras.losses.Loss) -> InBatchLoss:
    """Return an in-batch loss: by its kind with default fields, or from any Keras loss.

    Args:
        identifier: a kind such as `"ranking"`, an `InBatchLoss`, or a Keras loss of (labels, scores).

    Raises:
        InvalidArgumentError: for an unknown kind, or another type.

    Example:

    >>> get("ranking").margin
    0.2
    """
    if isinstance(identifier, InBatchLoss):
        return identifier
    if isinstance(identifier, keras.losses.Loss):
        return KerasLoss(identifier)
    if not isinstance(identifier, str) or _in_keras(identifier):
        fix = "For example: loss=keras.losses.CategoricalCrossentropy(from_logits=True)."
        allowed = "a kind such as 'ranking', or a keras.losses.Loss of (labels, scores), with its arguments"
        raise invalid_argument("loss", identifier, allowed, fix)
    return find_part("loss", identifier, "loss")().build(steps_per_epoch=1)


def _in_keras(name: str) -> bool:
    # Its losses by name read probabilities.
    try:
        return keras.losses.get(name) is not None
    except ValueError:
        return False

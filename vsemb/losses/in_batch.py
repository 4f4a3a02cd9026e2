"""Base of the losses over the candidates of a batch, their combinations and parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import keras
from keras import ops

from vsemb.configured import Configured
from vsemb.errors import invalid_argument, one_line
from vsemb.ops.replicas import rows_of_replicas
from vsemb.parts import Count, NonNegative, Part

Tensor = Any

#: Queries and candidates that a Keras loss is tried with.
_TRIED = 3


class InBatchLoss(Configured, keras.losses.Loss):
    """Base of the losses over one row of candidates per query.

    `DualEncoder` applies a loss to the scores and to their transpose, and adds the two directions, as the ranking
    losses of the papers do. CLIP and SigLIP average them: pass `DualEncoder(image_weight=0.5, text_weight=0.5)`. The
    recipes have the weights of their papers.

    Args:
        reduction: reduction over queries: `"sum"` or `"mean"`; None for `default_reduction`.
        name: name of the loss; None for that of the class.

    Call args of every subclass:
        labels: (queries, candidates), 1 for the query's own pair and 0 for negatives. Each row has a 1; losses over
            classes also have 1 for the query's own class, in a later column.
        scores: (queries, candidates) float, higher is better.
        mask: (queries, candidates) bool, false for candidates to ignore; None to use all.

    Returns:
        One value per query from `call`; a scalar from calling the loss.
    """

    #: Name of the default reduction, the one the source of the loss uses.
    default_reduction = "sum"

    #: Whether the candidates are classes and not items, see `vsemb.models.in_batch.class_labels`.
    over_classes = False

    #: Whether the loss of a query is a sum of terms that depend on one candidate each. Candidates may then come
    #: in parts, and a matrix of scores and its transpose have the same sum of losses.
    additive = False

    #: Whether the loss has terms of the embeddings themselves, see `of_items`.
    over_items = False

    #: The number of finished optimizer steps: an int, a variable, or None outside training.
    step: Any = None

    def __init__(self, *, reduction: str | None = None, name: str | None = None) -> None:
        super().__init__(name or type(self).__name__, reduction or self.default_reduction, dtype="float32")

    def __call__(self, labels: Tensor, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the loss of all queries, reduced."""
        values = self.call(ops.convert_to_tensor(labels), ops.convert_to_tensor(scores, "float32"), mask)
        return self.reduced(ops.sum(values), sum(rows_of_replicas(ops.shape(values)[0])))

    def call(self, labels: Tensor, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Compute the loss of each query, (queries,)."""
        raise NotImplementedError

    def of_items(self, images: Tensor, texts: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Compute further terms of the loss from embeddings, for losses with `over_items`.

        Args:
            images: (images, regions, dim), the sets of all replicas.
            texts: (texts, words, dim), this replica's sets.
            labels: (texts, images), 1 for the text's own pair and 0 for negatives.
            mask: (texts, images) bool, false for images to ignore.

        Returns:
            (texts,) one value per text.
        """
        raise NotImplementedError

    def bind_step(self, step: Any) -> None:
        """Set the optimizer's step counter, for losses that change with it."""
        self.step = step

    def collapsed_query(self, candidates: int) -> float:
        """Return the loss of one query if all embeddings are equal; NaN if it is not known.

        Args:
            candidates: number of candidates per query.
        """
        return math.nan

    def collapsed_value(self, queries: int, candidates: int) -> float:
        """Return the loss of both directions if all embeddings are equal; NaN if it is not known.

        Args:
            queries: number of queries per direction.
            candidates: number of candidates per query.
        """
        return 2 * self.collapsed_query(candidates) * (queries if self.reduction == "sum" else 1)

    def reduced(self, total: Tensor, queries: Tensor) -> Tensor:
        """Reduce a sum over queries.

        Args:
            total: scalar, the sum of the losses of this replica's queries.
            queries: number of queries of all replicas; the sum of what they return is then the mean over all.
        """
        if self.reduction == "sum":
            return total
        return total / ops.cast(queries, total.dtype)


class ItemLoss(InBatchLoss):
    """Base of the losses that have terms of the embeddings alone, see `InBatchLoss.of_items`.

    They do not rank, so they are used in a `CombinedLoss`.
    """

    over_items = True

    def call(self, labels: Tensor, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return 0 for each query: the loss does not depend on the scores of pairs."""
        return ops.zeros_like(scores[:, 0])


@keras.saving.register_keras_serializable("vsemb")
class KerasLoss(InBatchLoss):
    """Use any Keras loss of (labels, scores) over the batch, such as `CategoricalCrossentropy(from_logits=True)`.

    `DualEncoder.compile` wraps such a loss by itself.

    Args:
        loss: the Keras loss, with one value per row. Its reduction is kept; no reduction is a sum.
        masked_score: the score of candidates to ignore, at which a negative costs nothing: very low for
            cross entropies of logits and hinges, 0 for squared errors.

    Raises:
        InvalidArgumentError: for a loss that does not take labels and scores of one shape, such as the sparse cross
            entropies, that reads probabilities, or gives one value for all rows.

    Example: this is `InfoNCE`.

    >>> loss = KerasLoss(keras.losses.CategoricalCrossentropy(from_logits=True))
    >>> round(float(loss([[1, 0], [0, 1]], [[0.5, 0.5], [0.1, 0.1]])), 4)
    0.6931
    """

    def __init__(self, loss: keras.losses.Loss, masked_score: float = -1e9) -> None:
        sums = loss.reduction in (None, "none", "sum")
        super().__init__(reduction="sum" if sums else "mean", name=loss.name)
        self.keep_arguments(locals())
        if loss.get_config().get("from_logits") is False:
            raise invalid_argument(
                "loss",
                f"{type(loss).__name__}(from_logits=False)",
                "a loss of scores, not of probabilities",
                "Pass from_logits=True.",
            )
        reason = f"This one gives a single value for all {_TRIED} queries."
        try:
            values = loss.call(ops.eye(_TRIED), ops.zeros((_TRIED, _TRIED)))
        except Exception as error:  # Each loss has its own way to refuse.
            values, reason = None, one_line(error, 200)
        if values is None or not len(values.shape):
            allowed = "a Keras loss of (labels, scores), both (queries, candidates), with a value for each query"
            raise invalid_argument("loss", type(loss).__name__, allowed, reason)

    def call(self, labels: Tensor, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        scores = ops.convert_to_tensor(scores)
        scores = scores if mask is None else ops.where(mask, scores, self.masked_score)
        return self.loss.call(ops.cast(labels, scores.dtype), scores)


@keras.saving.register_keras_serializable("vsemb")
class CombinedLoss(InBatchLoss):
    """Add in-batch losses on the same scores, with weights.

    When to use it: hinges on the hardest negatives improve recall at 1, and InfoNCE has gradients from the first step
    without a warm-up. Their sum is slightly better than each of them.

    Args:
        losses: the losses; their own reductions are not used.
        weights: a number for each loss.
        **kwargs: arguments of `InBatchLoss`.

    Raises:
        InvalidArgumentError: for an empty list of losses, or another number of weights.

    Example: the ranking loss of this pair is 0.1 (see `PairwiseRanking`), twice that is 0.2.

    >>> from vsemb.losses import PairwiseRanking
    >>> loss = CombinedLoss([PairwiseRanking(0.2)], [2.0], reduction="sum")
    >>> round(float(loss([[1, 0], [0, 1]], [[0.9, 0.8], [0.2, 0.5]])), 6)
    0.2
    """

    default_reduction = "mean"

    def __init__(self, losses: Sequence[InBatchLoss], weights: Sequence[float], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        if not losses or len(losses) != len(weights):
            raise invalid_argument("weights", list(weights), f"a number for each of {len(losses)} losses (>= 1)")
        self.losses = list(losses)
        self.weights = list(weights)
        self.additive = all(loss.additive for loss in losses)
        self.over_items = any(loss.over_items for loss in losses)

    def bind_step(self, step: Any) -> None:
        super().bind_step(step)
        for loss in self.losses:
            loss.bind_step(step)

    def call(self, labels: Tensor, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        parts = [w * loss.call(labels, scores, mask) for w, loss in zip(self.weights, self.losses, strict=True)]
        return sum(parts[1:], parts[0])

    def of_items(self, images: Tensor, texts: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        parts = zip(self.weights, self.losses, strict=True)
        return sum(w * loss.of_items(images, texts, labels, mask) for w, loss in parts if loss.over_items)

    def collapsed_query(self, candidates: int) -> float:
        return sum(w * loss.collapsed_query(candidates) for w, loss in zip(self.weights, self.losses, strict=True))


def positive_scores(labels: Tensor, scores: Tensor) -> Tensor:
    """Return each query's score with its own pair, the first positive of the row, (queries, 1)."""
    own = ops.expand_dims(ops.argmax(ops.equal(labels, 1), axis=1), 1)
    return ops.take_along_axis(scores, own, axis=1)


def own_items(images: Tensor, labels: Tensor) -> Tensor:
    """Return the image of each text, (texts, ...), from all images and labels, see `InBatchLoss.of_items`."""
    own = ops.argmax(ops.cast(ops.equal(labels, 1), "int32"), axis=1)
    # The product makes the gradient dense, as gathering over replicas needs it: that of `take` is a list of rows.
    return ops.take(1.0 * images, own, axis=0)


def is_negative(labels: Tensor, mask: Tensor | None) -> Tensor:
    """Return (queries, candidates) bool, true where a candidate is a negative."""
    negative = ops.equal(labels, 0)
    return negative if mask is None else ops.logical_and(negative, mask)


@dataclass(frozen=True)
class LossPart(Part, family="loss"):
    """A loss over the candidates in a batch; base of the family `loss`.

    Attributes:
        image_weight: weight of the direction whose queries are images.
        text_weight: weight of the direction whose queries are texts.
        block_size: number of queries whose scores are in memory at a time; null for all. The loss does not change.
        reduction: reduction over queries: `sum` or `mean`; null for the default of the loss.

    Class attributes:
        over_classes: whether the candidates are classes, see `InBatchLoss.over_classes`.
        accepts: the type of embeddings, see `vsemb.similarities.Similarity.accepts`; None for all.
        similarities: kinds of the similarities whose embeddings it reads; empty for all.
    """

    over_classes: ClassVar[bool] = False
    accepts: ClassVar[str | None] = None
    similarities: ClassVar[tuple[str, ...]] = ()

    image_weight: NonNegative = 1.0
    text_weight: NonNegative = 1.0
    block_size: Count | None = None
    reduction: Literal["sum", "mean"] | None = None

    def check(self) -> None:
        if not self.image_weight + self.text_weight > 0:
            received = (self.image_weight, self.text_weight)
            raise invalid_argument("image_weight, text_weight", received, "numbers >= 0, one of them > 0")

    def build(self, steps_per_epoch: int) -> InBatchLoss:
        """Build the Keras loss.

        Args:
            steps_per_epoch: for fields that count epochs.
        """
        raise NotImplementedError

    def logit_scale(self) -> tuple[float, float | None] | None:
        """Return the initial values of a learned temperature and bias; None if they are not learned."""
        return None

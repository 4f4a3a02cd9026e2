"""The loss of a batch whose pairs are each other's candidates, whole or a block of queries at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from keras import ops

from vsemb.errors import invalid_argument
from vsemb.losses import InBatchLoss
from vsemb.models.logit_scale import LogitScale
from vsemb.ops.chunks import sum_in_blocks
from vsemb.ops.labels import class_labels, pair_labels
from vsemb.ops.replicas import gather_across_replicas, global_row_numbers, replica_count
from vsemb.ops.ring import sum_over_ring
from vsemb.similarities import Similarity

Tensor = Any


@dataclasses.dataclass(frozen=True)
class InBatchObjective:
    """A row-wise loss in both directions, with candidates from all replicas.

    Attributes:
        row_loss: the loss of a query.
        similarity: what scores.
        logit_scale: scales the scores; None: nothing does.
        image_weight: weight of the direction whose queries are images.
        text_weight: weight of the direction whose queries are texts.
        block_size: how many queries are scored at a time; None: all.
    """

    row_loss: InBatchLoss
    similarity: Similarity
    logit_scale: LogitScale | None
    image_weight: float
    text_weight: float
    block_size: int | None

    def __call__(self, x: Mapping[str, Tensor], y_pred: Mapping[str, Tensor], training: bool = True) -> Tensor:
        """Returns the loss of a batch, a scalar.

        Args:
            x: inputs of `DualEncoder`.
            y_pred: its outputs for them.
            training: whether a gradient is going to be asked for.

        Raises:
            InvalidArgumentError: if `x` has classes together with negatives or with ids of texts.
        """
        images, texts, ids = paired(x, y_pred)
        negatives = {}
        for side in ("image", "text"):
            if f"negative_{side}" in y_pred:
                negatives[side] = (y_pred[f"negative_{side}"], x[f"negative_{side}_id"])
        if negatives and self.row_loss.over_classes:
            raise invalid_argument("x", sorted(x), f"no negatives of their own with {self.row_loss.name}")
        if self.block_size is not None:
            return self._in_blocks(images, texts, ids, negatives, training)
        return self._at_once(images, texts, ids, negatives)

    def _at_once(self, images: Tensor, texts: Tensor, ids: Tensor, negatives: Mapping[str, Any]) -> Tensor:
        own = global_row_numbers(ops.shape(ids)[0])
        all_ids = gather_across_replicas(ids)
        labels = pair_labels(ids, all_ids, own, gather_across_replicas(own))
        scale = self._scale()
        to_texts = self._scores(images, gather_across_replicas(texts), True, scale)  # (n, all n)
        if replica_count() == 1:
            to_images = ops.transpose(to_texts)
        else:
            to_images = self._scores(texts, gather_across_replicas(images), False, scale)
        loss: Tensor = 0.0
        for weight, queries, scores, from_images in (
            (self.image_weight, images, to_texts, True),
            (self.text_weight, texts, to_images, False),
        ):
            if weight:
                more = [gather_across_replicas(x) for x in negatives.get("text" if from_images else "image", ())]
                rows = self._rows(labels, scores, ids, all_ids, queries, more, from_images, scale)
                loss = loss + weight * self.row_loss(*rows)
        return loss

    def _in_blocks(
        self, images: Tensor, texts: Tensor, ids: Tensor, negatives: Mapping[str, Any], training: bool
    ) -> Tensor:
        """The same from few rows of scores at a time, each direction by itself.

        An additive loss needs one direction, since both are one sum, unless each has its own negatives; and
        under a strategy it meets the replicas' candidates one replica after the other.
        """
        directions = [(self.image_weight, images, texts, True), (self.text_weight, texts, images, False)]
        if self.row_loss.additive and not negatives:
            directions = [(self.image_weight + self.text_weight, images, texts, True)]
        loss: Tensor = 0.0
        for weight, queries, candidates, from_images in directions:
            if weight:
                more = negatives.get("text" if from_images else "image", ())
                total = self._sum_of_blocks(queries, candidates, ids, more, from_images, training)
                loss = loss + weight * self.row_loss.reduced(total, ops.shape(ids)[0])
        return loss

    def _sum_of_blocks(
        self,
        queries: Tensor,
        candidates: Tensor,
        ids: Tensor,
        negatives: Sequence[Tensor],
        from_images: bool,
        training: bool,
    ) -> Tensor:
        assert self.block_size is not None
        size, count = self.block_size, ops.shape(ids)[0]
        own = global_row_numbers(count)
        all_ids, all_own = gather_across_replicas(ids), gather_across_replicas(own)
        scale = self._scale()

        def of_block(rows: Sequence[Tensor], whole: Sequence[Tensor]) -> Tensor:
            (some, some_ids, some_own), (others, other_ids, other_own, *rest) = rows, whole
            more, scale = rest[: len(negatives)], rest[len(negatives) :]
            labels = pair_labels(some_ids, other_ids, some_own, other_own)
            scores = self._scores(some, others, from_images, scale)
            found = self._rows(labels, scores, some_ids, other_ids, some, more, from_images, scale)
            return ops.sum(self.row_loss.call(*found))

        if not self.row_loss.additive or replica_count() == 1:
            more = [gather_across_replicas(x) for x in negatives]
            whole = [gather_across_replicas(candidates), all_ids, all_own, *more, *scale]
            return sum_in_blocks(of_block, [queries, ids, own], whole, size, gradient=training)
        negative_ids = [gather_across_replicas(x) for x in negatives[1:]]

        def of_turn(passed: Sequence[Tensor], turn: int, kept: Sequence[Tensor]) -> Tensor:
            (others, *more), (mine, *scale) = passed, kept
            known = [x[turn * count : (turn + 1) * count] for x in (all_ids, all_own)]
            for each in negative_ids:
                rows = ops.shape(negatives[0])[0]
                more.append(each[turn * rows : (turn + 1) * rows])
            return sum_in_blocks(of_block, [mine, ids, own], [others, *known, *more, *scale], size)

        return sum_over_ring(of_turn, [candidates, *negatives[:1]], [queries, *scale])

    def _scale(self) -> list[Tensor]:
        return [] if self.logit_scale is None else self.logit_scale.parameters()

    def _scores(self, queries: Tensor, candidates: Tensor, from_images: bool, scale: Sequence[Tensor]) -> Tensor:
        """Scores queries, images or else texts, with candidates of the other kind: (queries, candidates)."""
        if from_images:
            scores = self.similarity.scores(queries, candidates)
        else:
            scores = ops.transpose(self.similarity.scores(candidates, queries))
        return LogitScale.scaled(scores, *scale) if scale else scores

    def _rows(
        self,
        labels: tuple[Tensor, Tensor],
        scores: Tensor,
        ids: Tensor,
        all_ids: Tensor,
        queries: Tensor,
        negatives: Sequence[Tensor],
        from_images: bool,
        scale: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Makes of queries and the batch what the loss reads: classes, or sampled negatives in its place."""
        if self.row_loss.over_classes:
            return class_labels(labels[0], scores, ids, all_ids)
        if not negatives:
            return labels[0], scores, labels[1]
        embeddings, negative_ids = negatives
        same = ops.equal(ops.expand_dims(ids, 1), ops.expand_dims(negative_ids, 0))
        own, more = labels[0], ops.zeros_like(same, dtype=labels[0].dtype)
        mask = ops.concatenate([ops.equal(own, 1), ops.logical_not(same)], axis=1)
        more_scores = self._scores(queries, embeddings, from_images, scale)
        return ops.concatenate([own, more], axis=1), ops.concatenate([scores, more_scores], axis=1), mask


def paired(x: Mapping[str, Tensor], y_pred: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Lines images up with texts: one row a text where there are several texts an image.

    Args:
        x: inputs of `DualEncoder`.
        y_pred: its outputs for them.

    Returns:
        The images' embeddings and the texts', (n, ...), and the ids that say who is nobody's negative, (n,):
        those of classes where there are some.

    Raises:
        InvalidArgumentError: if `x` has classes together with negatives or ids of their own for the texts.
    """
    images, texts, ids = y_pred["image"], y_pred["text"], x["image_id"]
    if "class_id" in x:
        if {"text_image_id", "negative_text", "negative_image"} & set(x):
            allowed = "no text_image_id, negative_text or negative_image beside class_id"
            raise invalid_argument("x", sorted(x), allowed)
        return images, texts, x["class_id"]
    if "text_image_id" not in x:
        return images, texts, ids
    text_ids = x["text_image_id"]
    matches = ops.equal(ops.expand_dims(text_ids, 1), ops.expand_dims(ids, 0))
    row = ops.argmax(ops.cast(matches, "int32"), axis=1)
    return ops.take(images, row, axis=0), texts, text_ids

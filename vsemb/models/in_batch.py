"""The loss of a batch whose pairs are each other's candidates, whole or a block of queries at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from keras import ops

from vsemb.errors import invalid_argument
from vsemb.losses import InBatchLoss
from vsemb.models.logit_scale import LogitScale
from vsemb.ops.chunks import sum_in_blocks
from vsemb.ops.labels import class_labels, pair_labels
from vsemb.ops.replicas import gather_across_replicas, global_row_numbers, replica_count, sum_over_ring
from vsemb.similarities import Similarity

Tensor = Any


class Direction(NamedTuple):
    """Queries of one kind with their candidates of the other.

    Attributes:
        weight: of its loss.
        queries: (n, ...) embeddings of this replica.
        candidates: (n, ...) embeddings of the queries' own pairs.
        negatives: embeddings (m, ...) and ids (m,) of sampled negatives; nothing for those of the batch.
        from_images: whether the queries are images.
    """

    weight: float
    queries: Tensor
    candidates: Tensor
    negatives: Sequence[Tensor]
    from_images: bool


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
        sampled = {
            side: (y_pred[f"negative_{side}"], x[f"negative_{side}_id"])
            for side in ("image", "text")
            if f"negative_{side}" in y_pred
        }
        if sampled and self.row_loss.over_classes:
            raise invalid_argument("x", sorted(x), f"no negatives of their own with {type(self.row_loss).__name__}")
        directions = [
            Direction(self.image_weight, images, texts, sampled.get("text", ()), True),
            Direction(self.text_weight, texts, images, sampled.get("image", ()), False),
        ]
        if self.block_size is None:
            totals = self._at_once(directions, ids)
        else:
            if self.row_loss.additive and not sampled:
                # Both directions are one sum.
                directions = [directions[0]._replace(weight=self.image_weight + self.text_weight)]
            totals = ((each.weight, self._in_blocks(each, ids, training)) for each in directions if each.weight)
        return sum(weight * self.row_loss.reduced(total, ops.shape(ids)[0]) for weight, total in totals)

    def _at_once(self, directions: Sequence[Direction], ids: Tensor) -> Iterator[tuple[float, Tensor]]:
        """Yields the weight of each direction and the sum of its queries' losses."""
        own = global_row_numbers(ops.shape(ids)[0])
        all_ids = gather_across_replicas(ids)
        labels = pair_labels(ids, all_ids, own, gather_across_replicas(own))
        scale = self._scale()
        scores: Tensor = None
        for each in directions:
            if scores is None or replica_count() > 1:
                scores = self._scores(each, gather_across_replicas(each.candidates), scale)  # (n, all n)
            else:
                scores = ops.transpose(scores)
            if each.weight:
                negatives = [gather_across_replicas(x) for x in each.negatives]
                yield each.weight, self._total(each, ids, all_ids, labels, scores, negatives, scale)

    def _in_blocks(self, direction: Direction, ids: Tensor, training: bool) -> Tensor:
        """Returns the sum of the queries' losses from few rows of scores at a time.

        An additive loss meets the replicas' candidates one replica after the other.
        """
        assert self.block_size is not None
        size, count = self.block_size, ops.shape(ids)[0]
        own = global_row_numbers(count)
        all_ids, all_own = gather_across_replicas(ids), gather_across_replicas(own)
        scale, sampled = self._scale(), direction.negatives

        def of_block(rows: Sequence[Tensor], whole: Sequence[Tensor]) -> Tensor:
            (queries, some_ids, some_own), (others, other_ids, other_own, *rest) = rows, whole
            some = direction._replace(queries=queries)
            negatives, scale = rest[: len(sampled)], rest[len(sampled) :]
            labels = pair_labels(some_ids, other_ids, some_own, other_own)
            scores = self._scores(some, others, scale)
            return self._total(some, some_ids, other_ids, labels, scores, negatives, scale)

        if not self.row_loss.additive or replica_count() == 1:
            negatives = [gather_across_replicas(x) for x in sampled]
            whole = [gather_across_replicas(direction.candidates), all_ids, all_own, *negatives, *scale]
            return sum_in_blocks(of_block, [direction.queries, ids, own], whole, size, gradient=training)
        negative_ids = [gather_across_replicas(x) for x in sampled[1:]]

        def of_turn(passed: Sequence[Tensor], turn: int, kept: Sequence[Tensor]) -> Tensor:
            (others, *negatives), (mine, *scale) = passed, kept
            known = [x[turn * count : (turn + 1) * count] for x in (all_ids, all_own)]
            for each in negative_ids:
                rows = ops.shape(sampled[0])[0]
                negatives.append(each[turn * rows : (turn + 1) * rows])
            return sum_in_blocks(of_block, [mine, ids, own], [others, *known, *negatives, *scale], size)

        return sum_over_ring(of_turn, [direction.candidates, *sampled[:1]], [direction.queries, *scale])

    def _scale(self) -> list[Tensor]:
        return [] if self.logit_scale is None else self.logit_scale.parameters()

    def _scores(self, direction: Direction, candidates: Tensor, scale: Sequence[Tensor]) -> Tensor:
        """Scores the queries with candidates: (queries, candidates)."""
        if direction.from_images:
            scores = self.similarity.scores(direction.queries, candidates)
        else:
            scores = ops.transpose(self.similarity.scores(candidates, direction.queries))
        return LogitScale.scaled(scores, *scale) if scale else scores

    def _total(
        self,
        direction: Direction,
        ids: Tensor,
        all_ids: Tensor,
        labels: tuple[Tensor, Tensor],
        scores: Tensor,
        negatives: Sequence[Tensor],
        scale: Sequence[Tensor],
    ) -> Tensor:
        """Adds up the losses of queries with the candidates of the batch, with classes or with sampled negatives."""
        own, mask = labels
        if self.row_loss.over_classes:
            own, scores, mask = class_labels(own, scores, ids, all_ids)
        elif negatives:
            embeddings, negative_ids = negatives
            same = ops.equal(ops.expand_dims(ids, 1), ops.expand_dims(negative_ids, 0))
            mask = ops.concatenate([ops.equal(own, 1), ops.logical_not(same)], axis=1)
            own = ops.concatenate([own, ops.zeros_like(same, dtype=own.dtype)], axis=1)
            scores = ops.concatenate([scores, self._scores(direction, embeddings, scale)], axis=1)
        return ops.sum(self.row_loss.call(own, scores, mask))


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

"""The loss of a batch whose pairs are each other's candidates: labels, scaled scores, all at once or in blocks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from vsemb.configured import Configured
from vsemb.errors import invalid_argument
from vsemb.losses import InBatchLoss
from vsemb.ops.backend import holds_strings, require_rows
from vsemb.ops.chunks import sum_in_blocks
from vsemb.ops.replicas import (
    gather_across_replicas,
    global_row_numbers,
    padded_to_longest,
    replica_count,
    rows_of_replicas,
    sum_over_ring,
)
from vsemb.parts import Finite, Positive
from vsemb.similarities import Similarity

Tensor = Any

#: Score of candidates to ignore, as metrics read it.
IGNORED = -1e9
#: Input of `DualEncoder` -> inputs that it needs beside it.
_NEEDS = {
    "text_image_id": {"image_id"},
    "negative_image": {"image_id", "negative_image_id"},
    "negative_text": {"image_id", "negative_text_id"},
}
_IDS = {"image_id", "class_id", "text_image_id", "negative_image_id", "negative_text_id"}
#: Inputs that `DualEncoder` reads.
INPUTS = (
    *("image", "text", "image_id", "text_image_id", "class_id"),
    *("negative_image", "negative_image_id", "negative_text", "negative_text_id"),
)


class Direction(NamedTuple):
    """Queries of one kind with their candidates of the other.

    Attributes:
        weight: weight of the direction's loss.
        queries: (n, ...) embeddings of this replica.
        candidates: (n, ...) embeddings of the queries' own pairs.
        negatives: embeddings (m, ...) and ids (m,) of sampled negatives; empty for in-batch negatives.
        from_images: whether the queries are images.
    """

    weight: float
    queries: Tensor
    candidates: Tensor
    negatives: Sequence[Tensor]
    from_images: bool


@dataclasses.dataclass(frozen=True)
class InBatchObjective:
    """An in-batch loss in both directions, with candidates from all replicas.

    Attributes:
        row_loss: the loss of a query.
        similarity: the similarity of images and texts.
        logit_scale: the learned temperature; None for scores as they are.
        image_weight: weight of the direction whose queries are images.
        text_weight: weight of the direction whose queries are texts.
        block_size: queries that are scored at a time; None for all.
    """

    row_loss: InBatchLoss
    similarity: Similarity
    logit_scale: LogitScale | None
    image_weight: float
    text_weight: float
    block_size: int | None

    def __call__(self, x: Mapping[str, Tensor], y_pred: Mapping[str, Tensor], training: bool = True) -> Tensor:
        """Compute the loss of a batch, a scalar.

        Args:
            x: inputs of `DualEncoder`.
            y_pred: its outputs for them.
            training: whether a gradient will be computed.

        Raises:
            InvalidArgumentError: if `x` has classes together with negatives or with ids of texts.
        """
        pairs = paired(x, y_pred)
        sampled = {
            side: (_sets_alike(y_pred[f"negative_{side}"]), x[f"negative_{side}_id"])
            for side in ("image", "text")
            if f"negative_{side}" in y_pred
        }
        if sampled and self.row_loss.over_classes:
            raise invalid_argument("x", sorted(x), f"without negatives of its own with {type(self.row_loss).__name__}")
        directions = [
            Direction(self.image_weight, pairs.images, pairs.texts, sampled.get("text", ()), True),
            Direction(self.text_weight, pairs.texts, pairs.images, sampled.get("image", ()), False),
        ]
        if self.block_size is None:
            totals = self._at_once(directions, pairs)
        else:
            if self.row_loss.additive and not sampled:
                # Both directions are one sum.
                directions = [directions[0]._replace(weight=self.image_weight + self.text_weight)]
            totals = self._in_blocks(directions, pairs, training)
        queries = sum(pairs.counts)
        loss = sum(weight * self.row_loss.reduced(total, queries) for weight, total in totals)
        if not self.row_loss.over_items:
            return loss
        values = self.row_loss.of_items(gather_across_replicas(pairs.images), pairs.texts, *pairs.labels())
        return loss + self.row_loss.reduced(ops.sum(values), queries)

    def labels_and_scores(self, x: Mapping[str, Tensor], y_pred: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the arguments of Keras metrics: the pairs of a batch with images as queries, then with texts.

        Args:
            x: inputs of `DualEncoder`.
            y_pred: its outputs for them.

        Returns:
            labels: (2 x pairs, candidates) float32, 1 for the query's own pair and 0 for others.
            scores: (2 x pairs, candidates) float32, very low for candidates to ignore.
        """
        pairs, scale = paired(x, y_pred), self._scale()
        labels, mask = pairs.labels()
        directions = (
            Direction(1.0, pairs.images, pairs.texts, (), True),
            Direction(1.0, pairs.texts, pairs.images, (), False),
        )
        scores = []
        for direction in directions:
            candidates = gather_across_replicas(direction.candidates)
            scores.append(ops.where(mask, self._scores(direction, candidates, scale), IGNORED))
        return ops.cast(ops.concatenate([labels, labels]), "float32"), ops.concatenate(scores)

    def _at_once(self, directions: Sequence[Direction], pairs: Pairs) -> Iterator[tuple[float, Tensor]]:
        """Yield the weight of each direction and the sum of its queries' losses."""
        labels, scale = pairs.labels(), self._scale()
        scores: Tensor = None
        for direction in directions:
            if scores is None or replica_count() > 1:
                scores = self._scores(direction, gather_across_replicas(direction.candidates), scale)  # (n, all n)
            else:
                scores = ops.transpose(scores)
            if direction.weight:
                negatives = [gather_across_replicas(x) for x in direction.negatives]
                total = self._total(direction, pairs.ids, pairs.all_ids, labels, scores, negatives, scale)
                yield direction.weight, total

    def _in_blocks(
        self, directions: Sequence[Direction], pairs: Pairs, training: bool
    ) -> Iterator[tuple[float, Tensor]]:
        """Yield the weight of each direction and the sum of its queries' losses, without the matrix of all scores."""
        for direction in directions:
            if direction.weight:
                yield direction.weight, self._total_in_blocks(direction, pairs, training)

    def _total_in_blocks(self, direction: Direction, pairs: Pairs, training: bool) -> Tensor:
        """Return the sum of the queries' losses from few rows of scores at a time.

        An additive loss meets the replicas' candidates one replica after the other.
        """
        assert self.block_size is not None
        size, ids, own, all_ids, all_own = self.block_size, pairs.ids, pairs.own, pairs.all_ids, pairs.all_own
        scale, sampled = self._scale(), direction.negatives

        def of_block(rows: Sequence[Tensor], whole: Sequence[Tensor]) -> Tensor:
            queries, query_ids, query_pairs = rows
            candidates, candidate_ids, candidate_pairs, *rest = whole
            block = direction._replace(queries=queries)
            negatives, scale = rest[: len(sampled)], rest[len(sampled) :]
            labels = pair_labels(query_ids, candidate_ids, query_pairs, candidate_pairs)
            scores = self._scores(block, candidates, scale)
            return self._total(block, query_ids, candidate_ids, labels, scores, negatives, scale)

        if not self.row_loss.additive or replica_count() == 1:
            negatives = [gather_across_replicas(x) for x in sampled]
            whole = [gather_across_replicas(direction.candidates), all_ids, all_own, *negatives, *scale]
            return sum_in_blocks(of_block, [direction.queries, ids, own], whole, size, gradient=training)
        turns = _turns(pairs.counts)
        negative_ids, negative_turns = [gather_across_replicas(x) for x in sampled[1:]], turns
        if sampled:
            negative_turns = _turns(rows_of_replicas(ops.shape(sampled[0])[0]))

        def of_turn(passed: Sequence[Tensor], turn: int, kept: Sequence[Tensor]) -> Tensor:
            candidates, *negatives = passed
            queries, *scale = kept
            rows = turns[turn]
            negatives += [x[negative_turns[turn]] for x in negative_ids]
            whole = [candidates, all_ids[rows], all_own[rows], *negatives, *scale]
            return sum_in_blocks(of_block, [queries, ids, own], whole, size)

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
        """Add up the losses of queries with the candidates of the batch, with classes or with sampled negatives."""
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


def check_pairs(x: Any) -> None:
    """Check that a batch has everything that a loss over pairs reads.

    Args:
        x: inputs of `DualEncoder`, or their specification.

    Raises:
        InvalidArgumentError: naming what must be there, or the shape or type of an input.
    """
    names = set(x) if isinstance(x, Mapping) else set()
    wanted = {"image", "text"}.union(*(needs for name, needs in _NEEDS.items() if name in names))
    if not wanted <= names:
        received = sorted(names) or type(x).__name__
        row = "row: {'image': row['photo'], 'text': row['title']}" if names else "image, text: (image, text)"
        fix = f"Map your dataset to such batches: dataset.map(lambda {row})."
        raise invalid_argument("x", received, f"a dictionary with {', '.join(sorted(wanted))}", fix)
    for name in filter(names.__contains__, INPUTS):
        shape, strings = x[name].shape, holds_strings(x[name])
        if getattr(shape, "rank", 0) is None:
            fix = f"Set the shape of a row: tf.ensure_shape(row['{name}'], …)."
            raise invalid_argument(name, "a tensor of unknown rank", "a tensor of known rank", fix)
        if name in _IDS:
            if len(shape) != 1 or "float" in str(x[name].dtype):
                received = f"{_dtype(x[name])} {tuple(shape)}"
                fix = f"Flatten and cast them: tf.cast(tf.reshape(row['{name}'], [-1]), tf.int64)."
                raise invalid_argument(name, received, "one integer per row, int64 (n,)", fix)
        elif len(shape) == 0 or (len(shape) == 1) != strings:
            allowed = "one string per row, (n,)" if strings else "a batch of rows, (n, …)"
            fix = "Batch the dataset: dataset.batch(64)." if len(shape) < 2 else "Give each string a row of its own."
            raise invalid_argument(name, f"{_dtype(x[name])} {tuple(shape)}", allowed, fix)

    for name, of in _rows_of(names).items():
        rows, expected = x[name].shape[0], x[of].shape[0]
        if None not in (rows, expected) and rows != expected:
            raise invalid_argument(name, f"{rows} rows", f"as many rows as `{of}`, {expected}")


def _rows_of(names: Collection[str]) -> dict[str, str]:
    """Return the inputs of a batch, each with another that has as many rows."""
    texts = "text_image_id" if "text_image_id" in names else "image"
    pairs = {"text": texts, "image_id": "image", "class_id": "image"}
    pairs |= {"negative_image_id": "negative_image", "negative_text_id": "negative_text"}
    return {name: of for name, of in pairs.items() if {name, of} <= set(names)}


def _dtype(values: Any) -> str:
    return getattr(values.dtype, "name", str(values.dtype))


class Pairs(NamedTuple):
    """The pairs of a batch on this replica, and the ids of the pairs on all replicas.

    Attributes:
        images: (n, ...) embeddings of images, one row per pair.
        texts: (n, ...) embeddings of texts.
        ids: (n,) ids that mask false negatives: `class_id` if the batch has it, and the pairs' own numbers if it has
            no ids.
        counts: number of pairs on each replica.
        own: (n,) int32, positions of the pairs in `all_ids`.
        all_ids: (pairs of all replicas,) their ids.
        all_own: (pairs of all replicas,) int32, their numbers.
    """

    images: Tensor
    texts: Tensor
    ids: Tensor
    counts: Sequence[Any]
    own: Tensor
    all_ids: Tensor
    all_own: Tensor

    def labels(self) -> tuple[Tensor, Tensor]:
        """Label the candidates of all replicas, see `pair_labels`."""
        return pair_labels(self.ids, self.all_ids, self.own, self.all_own)


def paired(x: Mapping[str, Tensor], y_pred: Mapping[str, Tensor]) -> Pairs:
    """Line images up with texts: one row per text where an image has several.

    Args:
        x: inputs of `DualEncoder`.
        y_pred: its outputs for them.

    Raises:
        InvalidArgumentError: if `x` has `class_id` together with negatives or `text_image_id`, or images and texts are
            embedded into different sizes.
    """
    images, texts = y_pred["image"], y_pred["text"]
    if len(images.shape) != len(texts.shape):
        sizes = (tuple(images.shape), tuple(texts.shape))
        fix = "Put a PixelEncoder around a network of pixels, or pool its output."
        raise invalid_argument("image_encoder, text_encoder", sizes, "layers that embed a row as (dim,)", fix)
    if images.shape[-1] != texts.shape[-1]:
        sizes = (images.shape[-1], texts.shape[-1])
        fix = "Give both the same size."
        raise invalid_argument("image_encoder, text_encoder", sizes, "layers that embed into one size", fix)
    if "class_id" in x and {"text_image_id", "negative_text", "negative_image"} & set(x):
        allowed = "no text_image_id, negative_text or negative_image beside class_id"
        raise invalid_argument("x", sorted(x), allowed)
    images, texts = _sets_alike(images), _sets_alike(texts)
    tensors = {**x, **y_pred}
    for name, of in _rows_of(tensors).items():
        rows, expected = ops.shape(tensors[name])[0], ops.shape(tensors[of])[0]
        if isinstance(rows, int) and isinstance(expected, int) and rows == expected:
            continue
        images = require_rows(images, ops.equal(rows, expected), f"`{name}` must have as many rows as `{of}`", rows)
    if "text_image_id" in x:
        ids = x["text_image_id"]
        # A batch is divided by rows, so the image of a text may be on another replica.
        images, image_ids = gather_across_replicas(images), gather_across_replicas(x["image_id"])
        matches = ops.equal(ops.expand_dims(ids, 1), ops.expand_dims(image_ids, 0))
        known = ops.any(matches, axis=1)
        images = require_rows(images, known, "`text_image_id` must be an `image_id` of the batch", ids)
        # The product makes the gradient dense, as gathering needs it: that of `take` is a list of rows.
        images = ops.take(1.0 * images, ops.argmax(ops.cast(matches, "int32"), axis=1), axis=0)
    else:
        ids = x.get("class_id", x.get("image_id"))
    counts = rows_of_replicas(ops.shape(texts)[0])
    own, all_own = global_row_numbers(counts), ops.arange(sum(counts), dtype="int32")
    if ids is None:
        return Pairs(images, texts, own, counts, own, all_own, all_own)
    return Pairs(images, texts, ids, counts, own, gather_across_replicas(ids), all_own)


def _sets_alike(embeddings: Tensor) -> Tensor:
    return padded_to_longest(embeddings) if len(embeddings.shape) == 3 else embeddings


def _turns(counts: Sequence[Any]) -> list[slice]:
    """Return the rows of each replica among those of all."""
    ends = [sum(counts[: number + 1]) for number in range(len(counts))]
    return [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]


@keras.saving.register_keras_serializable("vsemb")
class LogitScale(Configured, keras.layers.Layer):
    """Multiply scores by a learned factor, 1 / temperature (CLIP, arXiv:2103.00020, section 2.5).

    The layer acts in training only, since a positive factor does not change a ranking. The logarithm of the factor
    is learned, and clipped, as in CLIP.

    Args:
        initial: initial factor; CLIP: 1 / 0.07.
        maximum: largest factor; CLIP: 100.
        bias: initial value of a learned number added to the scaled scores, for `SigmoidLoss` (SigLIP,
            arXiv:2303.15343, section 3.2: -10, with a factor of 10); None for no bias.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        scores: any shape, float32.

    Returns:
        The scaled scores.

    Raises:
        InvalidArgumentError: for a maximum <= 0, an initial factor outside (0, maximum], or an infinite bias.

    Example:

    >>> round(float(LogitScale(initial=10.0)(ops.ones(()))), 3)
    10.0
    """

    def __init__(
        self, initial: float = 1 / 0.07, maximum: Positive = 100.0, bias: Finite | None = None, **kwargs: Any
    ) -> None:
        super().__init__(dtype="float32", **{k: v for k, v in kwargs.items() if k != "dtype"})
        self.keep_arguments(locals())
        if not 0 < initial <= maximum:
            raise invalid_argument("initial", initial, f"a number > 0 and <= maximum={maximum}")

    def build(self, input_shape: Any = None) -> None:
        # A bound on the variable and not only in `call`, whose gradient would be 0 beyond it, for ever.
        self.log_scale = self.add_weight(
            shape=(),
            initializer=keras.initializers.Constant(math.log(self.initial)),
            constraint=lambda value: ops.minimum(value, math.log(self.maximum)),
            name="log_scale",
        )
        self.learned_bias: Any = None
        if self.bias is not None:
            self.learned_bias = self.add_weight(
                shape=(), initializer=keras.initializers.Constant(self.bias), name="bias"
            )

    def parameters(self) -> list[Tensor]:
        """Return the arguments of `scaled` beside the scores, with gradients: the factor and, if any, the bias."""
        factor = ops.exp(ops.minimum(self.log_scale, math.log(self.maximum)))
        return [factor] if self.learned_bias is None else [factor, 1.0 * self.learned_bias]

    @staticmethod
    def scaled(scores: Tensor, factor: Tensor, bias: Tensor | float = 0.0) -> Tensor:
        """Scale scores by the values of `parameters`; a function of tensors alone."""
        return scores * factor + bias

    def call(self, scores: Tensor) -> Tensor:
        return self.scaled(scores, *self.parameters())


def pair_labels(
    query_ids: Tensor, candidate_ids: Tensor, query_pairs: Tensor, candidate_pairs: Tensor
) -> tuple[Tensor, Tensor]:
    """Label the candidates of each query by id.

    A query's own pair is its positive. Another candidate with the same id, such as a second caption of the same image,
    is masked, since it would be a false negative. All others are negatives.

    Args:
        query_ids: (queries,) int64, the id of the image behind each query.
        candidate_ids: (candidates,) int64, the id of the image behind each candidate.
        query_pairs: (queries,) integer, the number of the pair a query belongs to.
        candidate_pairs: (candidates,) integer, the number of the pair of each candidate; -1, or another number
            that no query has, for a candidate without a query.

    Returns:
        labels: (queries, candidates) int32, 1 for the own pair and 0 for others.
        mask: (queries, candidates) bool, false for candidates to ignore.

    Example: rows 0 and 1 show the same image.

    >>> ids, pairs = ops.convert_to_tensor([7, 7, 8]), ops.arange(3)
    >>> labels, mask = pair_labels(ids, ids, pairs, pairs)
    >>> labels.numpy().tolist(), mask.numpy().astype(int).tolist()
    ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[1, 0, 1], [0, 1, 1], [1, 1, 1]])
    """
    same = ops.equal(ops.expand_dims(query_ids, 1), ops.expand_dims(candidate_ids, 0))
    own = ops.logical_and(same, ops.equal(ops.expand_dims(query_pairs, 1), ops.expand_dims(candidate_pairs, 0)))
    return ops.cast(own, "int32"), ops.logical_or(own, ops.logical_not(same))


def class_labels(
    labels: Tensor, scores: Tensor, query_classes: Tensor, candidate_classes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Replace the candidates of each query by its own pair and the classes of the items.

    The score of a class is the mean score of its items in the batch, which estimates the expectation in Reed et al.
    2016, equations 6 and 7.

    Args:
        labels: (queries, candidates), where 1 marks each query's own pair.
        scores: (queries, candidates) float.
        query_classes: (queries,) int64.
        candidate_classes: (candidates,) int64.

    Returns:
        labels: (queries, 1 + candidates) int32: 1 in the first column, the own pair, and for the query's own class; 0
            for other classes.
        scores: (queries, 1 + candidates): the score of the own pair, then the scores of the classes.
        mask: (queries, 1 + candidates) bool, false for an item whose class stands in an earlier column already.

    Example: items 0 and 2 are of class 7, so the mean of 4 and 1 stands for it.

    >>> classes, own = ops.convert_to_tensor([7, 8, 7]), ops.convert_to_tensor([[1, 0, 0]])
    >>> labels, values, mask = class_labels(own, ops.convert_to_tensor([[4.0, 3.0, 1.0]]), classes[:1], classes)
    >>> labels.numpy().tolist(), values.numpy().tolist(), mask.numpy().tolist()
    ([[1, 1, 0, 1]], [[4.0, 2.5, 3.0, 2.5]], [[True, True, True, False]])
    """
    same = ops.equal(ops.expand_dims(candidate_classes, 1), ops.expand_dims(candidate_classes, 0))
    members = ops.cast(same, scores.dtype)
    means = ops.matmul(scores, members) / ops.sum(members, axis=0)  # (queries, candidates)
    numbers = ops.arange(ops.shape(candidate_classes)[0], dtype="int32")
    first = ops.equal(ops.cast(ops.argmax(ops.cast(same, "int32"), axis=1), "int32"), numbers)
    own_class = ops.equal(ops.expand_dims(query_classes, 1), ops.expand_dims(candidate_classes, 0))
    own = ops.sum(ops.where(ops.equal(labels, 1), scores, 0.0), axis=1, keepdims=True)
    ones = ops.ones_like(own, dtype="int32")
    labels = ops.concatenate([ones, ops.cast(own_class, "int32")], axis=1)
    mask = ops.concatenate([ops.cast(ones, "bool"), ops.logical_or(ops.zeros_like(own_class), first)], axis=1)
    return labels, ops.concatenate([own, means], axis=1), mask

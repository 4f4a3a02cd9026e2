"""A corpus inside a SavedModel: exact search in graph among up to a million items.

A server needs no separate index, and items and queries are always embedded with the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vsemb.errors import invalid_argument, unknown_name
from vsemb.ops.tensorflow import tf
from vsemb.searching.index import EACH, FEWEST, KINDS, SearchIndex, items_are_images
from vsemb.similarities import Similarity

#: Maximum number of items of a corpus; larger ones need a separate index.
MOST_ITEMS = 1_000_000
#: Maximum number of results per query.
MOST_RESULTS = 1_000
# Floats held at a time: 128 MiB.
_BLOCK = 1 << 25


@dataclass(frozen=True, eq=False)
class Corpus:
    """Searchable items and their search in graph.

    The embeddings are a variable, because constants of a graph are limited to 2 GB.

    Attributes:
        embeddings: (n, dim) float32 in the geometry of the model's similarity.
        ids: (n,) int64, id of the image of each item.
        keys: n names.
        kind: kind of the items, `"image"` or `"text"`.

    Raises:
        InvalidArgumentError: for no items, more than `MOST_ITEMS`, or arguments of different lengths.

    Example:

    >>> from vsemb.similarities import Cosine
    >>> corpus = Corpus(np.eye(3, dtype=np.float32), np.array([7, 8, 9]), ["a", "b", "c"])
    >>> queries, valid = tf.constant([[0.0, 0.8, 0.6]]), tf.constant([True])
    >>> results = corpus.search(queries, valid, tf.constant([2]), Cosine(), query_kind="text")
    >>> results["ids"].numpy().tolist()
    [[8, 9]]
    """

    embeddings: np.ndarray
    ids: np.ndarray
    keys: list[str]
    kind: str = "image"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown_name("kind", self.kind, KINDS)
        if not 1 <= len(self.embeddings) <= MOST_ITEMS:
            fix = "For more items, make an index: vsemb index"
            allowed = f"1 to {MOST_ITEMS:,} items inside a SavedModel"
            raise invalid_argument("embeddings", np.shape(self.embeddings), allowed, fix)
        if self.embeddings.ndim != 2 or not len(self.embeddings) == len(self.ids) == len(self.keys):
            received = (np.shape(self.embeddings), np.shape(self.ids), len(self.keys))
            raise invalid_argument("embeddings, ids, keys", received, "shapes (n, dim), (n,) and n")

    @classmethod
    def of(cls, index: SearchIndex) -> Corpus:
        """Make a corpus of the items of an index."""
        embeddings, ids = np.asarray(index.embeddings, np.float32), np.asarray(index.ids, np.int64)
        return cls(embeddings, ids, list(index.keys), index.source.kind)

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def _variables(self) -> tuple[tf.Variable, tf.Variable, tf.Variable]:
        # Created outside the traced function, once for both signatures.
        with tf.init_scope(), tf.device("CPU:0"):
            return (
                tf.Variable(np.ascontiguousarray(self.embeddings, np.float32), trainable=False),
                tf.Variable(np.asarray(self.ids, np.int64), trainable=False),
                tf.Variable([key.encode() for key in self.keys], trainable=False),
            )

    def search(
        self, queries: tf.Tensor, valid: tf.Tensor, k: tf.Tensor, similarity: Similarity, query_kind: str
    ) -> dict[str, tf.Tensor]:
        """Find the best items for each query, in graph.

        The search is exact, except for similarities whose candidates come from inner products, such as orders. These
        are scored exactly for the items with the largest inner products, as many as an index with a backend uses, see
        `vsemb.searching.index`.

        Args:
            queries: (batch, dim) float32 embeddings.
            valid: (batch,) bool, the rows to search for.
            k: (batch,) int32, results per row, at most `MOST_RESULTS` and the number of items; a row with k < 1 is
                invalid. (1,) applies to all rows.
            similarity: the model's.
            query_kind: kind of the queries, `"image"` or `"text"`; see `SearchIndex.search`.

        Returns:
            `ids` int64, `scores` float32 and `keys` string, each (batch, largest k), best first, ties in the order of
            the items; -1, 0 and "" beyond a row's own k. `valid` bool (batch,).
        """
        given, rows = tf.shape(k)[0], tf.shape(valid)[0]
        fits = tf.debugging.Assert((given == 1) | (given == rows), ["k must have one row, or one per query."])
        with tf.control_dependencies([fits] if fits is not None else []):
            valid = valid & (k >= 1)
        k = tf.where(valid, tf.minimum(k, min(len(self), MOST_RESULTS)), 0)
        most = tf.reduce_max(tf.concat([k, [0]], axis=0))
        rows, scores = self._best(queries, most, similarity, query_kind)
        wanted = tf.range(most)[None, :] < k[:, None]
        _, ids, keys = self._variables
        return {
            "ids": tf.where(wanted, tf.gather(ids, rows), tf.constant(-1, tf.int64)),
            "scores": tf.where(wanted, scores, 0.0),
            "keys": tf.where(wanted, tf.gather(keys, rows), ""),
            "valid": valid,
        }

    def _best(
        self, queries: tf.Tensor, most: tf.Tensor, similarity: Similarity, query_kind: str
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return rows int32 and scores float32, (batch, most), computed in blocks of queries."""
        items, as_images = self._variables[0], items_are_images(self.kind, query_kind)
        inner, narrowed = similarity.inner_product, similarity.candidates_by_inner_product
        candidates = tf.minimum(tf.maximum(EACH * most, FEWEST), len(self)) if narrowed and not inner else most
        # Scores, or gathered embeddings for other similarities.
        compared = 0 if inner else candidates if narrowed else len(self)
        held = tf.maximum(len(self), compared * queries.shape[1])
        step = tf.maximum(1, _BLOCK // held)
        total = tf.shape(queries)[0]
        steps = tf.maximum(1, (total + step - 1) // step)

        def body(number: tf.Tensor, rows: tf.TensorArray, scores: tf.TensorArray) -> tuple[Any, ...]:
            here = queries[number * step : (number + 1) * step]
            if inner or narrowed:
                scored = tf.matmul(here, items, transpose_b=True)
            elif as_images:
                scored = tf.transpose(similarity.scores(tf.convert_to_tensor(items), here))
            else:
                scored = similarity.scores(here, tf.convert_to_tensor(items))
            best, nearest = tf.math.top_k(scored, candidates)
            if narrowed and not inner:
                nearest = tf.sort(nearest)  # The earlier of two equal items comes first.
                others, each = tf.gather(items, nearest), here[:, None]
                exact = similarity.pair_scores(*((others, each) if as_images else (each, others)))
                best, places = tf.math.top_k(exact, most)
                nearest = tf.gather(nearest, places, batch_dims=1)
            return number + 1, rows.write(number, nearest), scores.write(number, best)

        arrays = [
            tf.TensorArray(dtype, size=steps, infer_shape=False, element_shape=[None, None])
            for dtype in (tf.int32, tf.float32)
        ]
        _, nearest, best = tf.while_loop(
            lambda number, *_: number < steps, body, [tf.constant(0), *arrays], parallel_iterations=1
        )
        return nearest.concat(), best.concat()

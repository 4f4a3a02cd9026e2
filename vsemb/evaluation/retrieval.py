"""Image-sentence retrieval: recall at K, median and mean rank, in both directions.

The protocol is that of Hodosh et al. 2013, which Kiros et al. 2014 and later papers use. The rank of an image query is
the best rank of its captions, and a caption query has one correct image. The protocol of pairs uses one caption per
image, so both directions rank the same number of candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from itertools import product
from typing import Annotated, Any

import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from vsemb import similarities
from vsemb.errors import DataError, counted, invalid_argument
from vsemb.evaluation.rank_scan import scanned_ranks, worth_a_scan
from vsemb.hubs import correct_hubs
from vsemb.ops.backend import compiled
from vsemb.parts import Count, Whole, between, require
from vsemb.printing import table
from vsemb.quantization import dequantize
from vsemb.results import Result
from vsemb.similarities import Similarity
from vsemb.tables import html_table
from vsemb.text.coverage import Coverage, UnknownWords

# Values of K that are always measured; the recall sum is over these.
RECALLS = (1, 5, 10)
_BLOCK = 1000
# Maximum number of scores per tile, and of all tiles that are kept from the first pass to the second (256 MB).
_TILE, _KEPT = 1 << 23, 1 << 26
# Minimum number of scores for which the compiled count is faster, including compilation.
_COMPILED = 1 << 21

# Relative difference of scores of sets, sums of products of float32, that is due to rounding alone.
_ROUNDING = 4e-6

#: The message for scores that cannot be ranked.
NOT_FINITE = "Scores must be finite; got NaN or infinity. Check the features and the weights of the model."

#: Direction -> ranks of the queries of a fold, and the image of each query as its position in the fold.
_Ranked = dict[str, tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, repr=False)
class RetrievalMetrics(Result):
    """The result of `evaluate_retrieval`.

    Attributes:
        image_to_text: `R@1`, `R@5`, `R@10` and other requested recalls in percent, and `median_rank` and `mean_rank`,
            which start at 1.
        text_to_image: the same with captions as queries.
        images: number of images ranked; with folds, the number in the first fold.
        texts: number of captions ranked; with folds, the number in the first fold.
        recall_sum: sum of the recalls at 1, 5 and 10 in both directions; selects checkpoints.
        intervals_95: 95 % bootstrap intervals of both directions and of `recall_sum` in the same form, if requested.
        folds: the mean of the metrics of each fold, if requested.
        pairs: the metrics of the protocol with one caption per image, if requested.
        csls: the metrics with scores corrected for hubs, which are transductive, if requested.
        unknown: numbers of unknown words, and of texts without a known one, if they were counted.
        with_known_word: the metrics without queries that have no known word: texts, and images of such texts alone. All
            images and texts are candidates. None if there are no such texts, or no others.
        all_words_known: the metrics without queries that have an unknown word, likewise.

    Example:

        metrics = vsemb.evaluate("runs/vsepp", split="test")
        metrics.text_to_image["R@10"]
    """

    image_to_text: dict[str, float]
    text_to_image: dict[str, float]
    images: int
    texts: int
    recall_sum: float = field(init=False)
    intervals_95: dict[str, Any] | None = None
    folds: RetrievalMetrics | None = None
    pairs: RetrievalMetrics | None = None
    csls: RetrievalMetrics | None = None
    unknown: UnknownWords | None = None
    with_known_word: RetrievalMetrics | None = None
    all_words_known: RetrievalMetrics | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "recall_sum", _recall_sum(self.image_to_text, self.text_to_image))

    @property
    def values(self) -> dict[str, float]:
        """Every metric of both directions by a name of its own, as in `metrics.jsonl`: `i2t_R@1`, `t2i_median_rank`."""
        return _named(self.image_to_text, self.text_to_image, self.recall_sum)

    @property
    def intervals(self) -> dict[str, list[float]]:
        """The 95 % intervals by the names of `values`; empty if they were not requested."""
        bounds = self.intervals_95
        if bounds is None:
            return {}
        return _named(bounds["image_to_text"], bounds["text_to_image"], bounds["recall_sum"])

    @property
    def _tables(self) -> list[tuple[str, RetrievalMetrics]]:
        """The metrics and those of folds, pairs and others, each with a title."""
        titles = {
            "{0.images} images, {0.texts} texts": self,
            "mean over folds of {0.images} images": self.folds,
            "hubs corrected (CSLS, transductive)": self.csls,
            "{0.images} pairs, one text per image": self.pairs,
            "queries with a known word: {0.images} images, {0.texts} texts": self.with_known_word,
            "queries all words known: {0.images} images, {0.texts} texts": self.all_words_known,
        }
        return [(title.format(metrics), metrics) for title, metrics in titles.items() if metrics is not None]

    def _rows(self, title: str) -> list[list[str]]:
        """Return a table, its header first."""
        columns = list(self.image_to_text)
        sides = {"image_to_text": self.image_to_text, "text_to_image": self.text_to_image}
        rows = [[title, *(column.removesuffix("_rank") for column in columns)]]
        for name, values in sides.items():
            rows.append([name.replace("_to_", " → "), *(f"{values[column]:.1f}" for column in columns)])
            if self.intervals_95 is not None:
                bounds = self.intervals_95[name]
                rows.append(["  95 %", *("{:.1f}–{:.1f}".format(*bounds[column]) for column in columns)])
        padding = [""] * (len(columns) - 1)
        rows.append(["recall sum", f"{self.recall_sum:.1f}", *padding])
        if self.intervals_95 is not None:
            rows.append(["  95 %", "{:.1f}–{:.1f}".format(*self.intervals_95["recall_sum"]), *padding])
        return rows

    def __str__(self) -> str:
        rows: list[list[str]] = []
        for title, metrics in self._tables:
            table_rows = metrics._rows(title)
            rows += [[""] * len(table_rows[0]), *table_rows]
        return "\n".join([table(rows[1], rows[2:]), *self.notes])

    @property
    def notes(self) -> list[str]:
        """Lines about unknown words; empty if all are known."""
        return [] if self.unknown is None else self.unknown.notes

    def _repr_html_(self) -> str:
        tables = []
        for title, metrics in self._tables:
            header, *rows = metrics._rows("")
            tables.append(html_table(header, rows, f"{title}, R@K in %"))
        return "".join([*tables, *(f"<p>{escape(note)}</p>" for note in self.notes)])

    def to_json(self) -> dict[str, Any]:
        """Return the metrics as `vsemb evaluate --json` writes them, without metrics that were not requested."""
        return asdict(self, dict_factory=lambda items: {name: value for name, value in items if value is not None})


def retrieval_ranks(
    images: ArrayLike,
    texts: ArrayLike,
    image_ids: ArrayLike | None = None,
    text_image_ids: ArrayLike | None = None,
    similarity: str | Similarity = "cosine",
    block: int = _BLOCK,
) -> tuple[np.ndarray, np.ndarray]:
    """Rank in both directions, from tiles of scores: a block of images against a block of texts.

    The first pass takes the scores of texts with their own images, and the second counts the others that reach them.
    Equal embeddings must have equal scores, or ties would be broken by last bits. So inner products are summed in
    float64 and rounded to float32, because products of float32 depend on the place in a tile. Scores of sets that
    differ by rounding count as equal. For other similarities, all tiles have the same shape. Large numbers of inner
    products are ranked by `vsemb.evaluation.rank_scan` if that is faster.

    Args:
        images: (n, dim) embeddings, (n, items, dim) for a similarity of sets; an array or tensor.
        texts: (m, dim) embeddings, (m, items, dim) for a similarity of sets.
        image_ids: (n,) int64, distinct; None for 0 to n - 1.
        text_image_ids: (m,) int64, the id of the image of each text; None if text i describes image i.
        similarity: a kind such as `"cosine"`, or a `Similarity`. Embeddings are not normalized here.
        block: number of images scored at a time. A tile has at most 2^23 scores, and memory does not grow with the
            number of images or texts. If texts are in the order of their images, few tiles are computed twice.

    Returns:
        (n,) and (m,) int64 ranks from 0. A rank is the number of candidates other than the query's positives
        that score at least as high as its best positive. Ties count against the model, so equal scores give the
        worst rank.

    Raises:
        InvalidArgumentError: for embeddings or ids of another shape or type, an unknown similarity, and block < 1.
        DataError: for an empty set of images, an image without a text, a text without its image, or scores that are
            not finite.
    """
    require("block", block, Count)
    similarity = similarities.get(similarity)
    images, texts, image_ids, text_image_ids = _checked(images, texts, image_ids, text_image_ids, similarity)
    own = _own_images(image_ids, text_image_ids)
    height, width = tile_shape(len(images), len(texts), block)
    if similarity.inner_product and worth_a_scan(len(images), len(texts)):
        ranks = scanned_ranks(images, texts, own, height, width)
        if ranks is not None:
            return ranks
    score = scorer(similarity)

    def scored(row: int, column: int) -> Any:
        # The last tile has the size of the others, so it overlaps the tile before.
        top, left = min(row, len(images) - height), min(column, len(texts) - width)
        scores = score(images[top : top + height], texts[left : left + width])
        return scores[row - top :, column - left :]

    tiles = list(product(range(0, len(images), height), range(0, len(texts), width)))
    kept: dict[tuple[int, int], Any] = {}
    reached = np.empty(len(texts), np.float32)
    for row, column in tiles:
        row_of = own[column : column + width] - row
        mine = np.flatnonzero((row_of >= 0) & (row_of < height))
        if len(mine):
            scores = scored(row, column)
            places = ops.convert_to_tensor(row_of[mine] * scores.shape[1] + mine, "int32")
            reached[column + mine] = ops.convert_to_numpy(ops.take(ops.reshape(scores, (-1,)), places))
            if (len(kept) + 1) * height * width <= _KEPT:
                kept[row, column] = scores
    if not np.isfinite(reached).all():
        raise DataError(NOT_FINITE)
    best = np.full(len(images), -np.inf, np.float32)
    np.maximum.at(best, own, reached)
    if similarity.multi_vector:
        reached -= _ROUNDING * np.abs(reached)
        best -= _ROUNDING * np.abs(best)
    # Subtract positives: the image's texts that reach its best score, and the image of a text.
    of_images = -np.bincount(own[reached >= best[own]], minlength=len(images))
    of_texts = np.full(len(texts), -1, np.int64)
    for row, column in tiles:
        scores = kept.pop((row, column)) if (row, column) in kept else scored(row, column)
        rows, columns = slice(row, row + height), slice(column, column + width)
        in_rows, in_columns, broken = _count_reaching(scores, best[rows, None], reached[None, columns])
        if broken:
            raise DataError(NOT_FINITE)
        of_images[rows] += in_rows
        of_texts[columns] += in_columns
    return of_images, of_texts


def tile_shape(images: int, texts: int, block: int) -> tuple[int, int]:
    """Return the numbers of images and texts that are scored at a time: the fewest tiles of similar width."""
    height = min(block, images, _TILE)
    return height, -(-texts // -(-texts * height // _TILE))


def _own_images(image_ids: np.ndarray, text_image_ids: np.ndarray) -> np.ndarray:
    """Return the row of each text's image."""
    order = np.argsort(image_ids)
    return order[np.searchsorted(image_ids, text_image_ids, sorter=order)]


def scorer(similarity: Similarity) -> Callable[[np.ndarray, np.ndarray], Any]:
    """Return the function that scores arrays of embeddings: (n, ...) images and (m, ...) texts -> (n, m) float32."""
    if similarity.inner_product:
        return _inner_products
    if similarity.multi_vector:
        # It converts a few sets at a time to tensors by itself.
        return similarity.scores
    return lambda images, texts: similarity.scores(ops.convert_to_tensor(images), ops.convert_to_tensor(texts))


def _inner_products(images: np.ndarray, texts: np.ndarray) -> Any:
    with np.errstate(all="ignore"):  # Scores that are not finite are found later.
        scores = images.astype(np.float64) @ texts.T.astype(np.float64)
        return ops.convert_to_tensor(scores.astype(np.float32))


def _count_reaching(scores: Any, in_row: np.ndarray, in_column: np.ndarray) -> list[np.ndarray]:
    """Count the scores that reach the threshold of their row, and of their column; also return whether any is NaN."""
    count = _count_compiled if scores.shape[0] * scores.shape[1] >= _COMPILED else _count
    counts = count(scores, ops.convert_to_tensor(in_row), ops.convert_to_tensor(in_column))
    return list(map(ops.convert_to_numpy, counts))


def _count(scores: Any, in_row: Any, in_column: Any) -> tuple[Any, ...]:
    return (
        ops.sum(ops.cast(scores >= in_row, "int32"), axis=1),
        ops.sum(ops.cast(scores >= in_column, "int32"), axis=0),
        ops.any(ops.isnan(scores)),
    )


_count_compiled = compiled(_count)


def _checked(
    images: ArrayLike,
    texts: ArrayLike,
    image_ids: ArrayLike | None,
    text_image_ids: ArrayLike | None,
    similarity: Similarity,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the embeddings and the ids of images and texts as arrays."""
    images, texts = _embeddings("images", images, similarity), _embeddings("texts", texts, similarity)
    if images.shape[-1] != texts.shape[-1]:
        raise invalid_argument("texts", texts.shape, f"embeddings of the images' size, {images.shape[-1]}")
    image_ids = np.arange(len(images)) if image_ids is None else _ids("image_ids", image_ids)
    if text_image_ids is None:
        if len(texts) != len(images):
            allowed = f"the id of the image of each text, for {len(texts)} texts of {len(images)} images"
            raise invalid_argument("text_image_ids", None, allowed)
        text_image_ids = image_ids
    text_image_ids = _ids("text_image_ids", text_image_ids)
    _check(images, texts, image_ids, text_image_ids)
    return images, texts, image_ids, text_image_ids


def _embeddings(name: str, values: ArrayLike, similarity: Similarity) -> np.ndarray:
    rank = 3 if similarity.multi_vector else 2
    try:
        embeddings = np.asarray(values)
    except ValueError:  # Rows of different lengths.
        embeddings = np.empty(0, object)
    if embeddings.ndim != rank or embeddings.dtype.kind not in "fiu":
        shape = "(rows, items, dim)" if similarity.multi_vector else "(rows, dim)"
        raise invalid_argument(name, f"{embeddings.dtype} {embeddings.shape}", f"an array of numbers of shape {shape}")
    # Scores are compared with float32 numbers, so embeddings must be float32; float32 arrays are not copied.
    return dequantize(embeddings) if similarity.compares_directions else embeddings.astype(np.float32, copy=False)


def _ids(name: str, values: ArrayLike) -> np.ndarray:
    ids = np.asarray(values)
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
        fix = f"Pass the similarity by name: similarity={values!r}." if isinstance(values, str) else None
        raise invalid_argument(name, f"{ids.dtype} {ids.shape}", "an array of integers of shape (rows,)", fix)
    return ids


def _check(images: np.ndarray, texts: np.ndarray, image_ids: np.ndarray, text_image_ids: np.ndarray) -> None:
    if not len(images) or not len(texts):
        raise DataError(f"Retrieval must have images and texts; got {len(images)} and {len(texts)}.")
    if len(images) != len(image_ids) or len(texts) != len(text_image_ids):
        raise DataError(
            f"Embeddings and ids differ in number: {len(images)} images with {len(image_ids)} ids, "
            f"{len(texts)} texts with {len(text_image_ids)} ids."
        )
    if len(np.unique(image_ids)) != len(image_ids):
        raise DataError("The ids of the images are not distinct.")
    missing = np.setdiff1d(image_ids, text_image_ids)
    if len(missing):
        raise DataError(f"{counted(len(missing), 'image has', 'images have')} no text, e.g. id {missing[0]}.")
    missing = np.setdiff1d(text_image_ids, image_ids)
    if len(missing):
        raise DataError(f"The images lack {counted(len(missing), 'id')} that texts have, e.g. {missing[0]}.")


def rank_metrics(ranks: np.ndarray, recalls: Iterable[int] = RECALLS) -> dict[str, float]:
    """Summarize ranks from 0 as recalls in percent, median and mean rank from 1.

    The median is floor(median) + 1, as in the code of the papers: ranks 0, 1, 2, 3 give 2.

    Example:

    >>> rank_metrics(np.array([0, 1, 2, 3]), recalls=(1, 2))
    {'R@1': 25.0, 'R@2': 50.0, 'median_rank': 2, 'mean_rank': 2.5}
    """
    result: dict[str, float] = {f"R@{k}": 100.0 * float(np.mean(ranks < k)) for k in recalls}
    result["median_rank"] = math.floor(float(np.median(ranks))) + 1
    result["mean_rank"] = float(np.mean(ranks)) + 1
    return result


def _named(image_to_text: dict[str, Any], text_to_image: dict[str, Any], recall_sum: Any) -> dict[str, Any]:
    named = {f"i2t_{name}": value for name, value in image_to_text.items()}
    named |= {f"t2i_{name}": value for name, value in text_to_image.items()}
    return {**named, "recall_sum": recall_sum}


def _recall_sum(*sides: dict[str, float]) -> float:
    return sum(side[f"R@{k}"] for side in sides for k in RECALLS)


def check_protocol(
    images: int,
    similarity: Similarity,
    folds: int = 1,
    bootstrap: int = 0,
    recalls: Sequence[int] = RECALLS,
    pairs: int | None = None,
    csls: int | None = None,
) -> None:
    """Check options of `evaluate_retrieval` before images are embedded.

    Raises:
        InvalidArgumentError: see `evaluate_retrieval`.
    """
    up_to_images = Annotated[int, between(1, max(images, 1))]
    require("folds", folds, up_to_images)
    require("bootstrap", bootstrap, Whole)
    for k in recalls:
        require("recalls", k, Count)
    if len(set(recalls)) < len(recalls):
        raise invalid_argument("recalls", list(recalls), "distinct integers >= 1")
    require("pairs", pairs, up_to_images | None)
    require("csls", csls, up_to_images | None)
    if csls is not None and not similarity.inner_product:
        allowed = f"omitted for the similarity {similarity.kind}, which is not an inner product"
        raise invalid_argument("csls", csls, allowed)


def evaluate_retrieval(
    images: ArrayLike,
    texts: ArrayLike,
    image_ids: ArrayLike | None = None,
    text_image_ids: ArrayLike | None = None,
    similarity: str | Similarity = "cosine",
    *,
    folds: int = 1,
    bootstrap: int = 0,
    seed: int = 0,
    recalls: Sequence[int] = RECALLS,
    pairs: int | None = None,
    csls: int | None = None,
    coverage: Coverage | None = None,
) -> RetrievalMetrics:
    """Measure retrieval in both directions.

    Args:
        images: (n, dim) embeddings, (n, items, dim) for a similarity of sets; an array or tensor. For cosine similarity
            also int8 or packed bits, from `Model.encode_images` with another `precision`.
        texts: (m, dim) embeddings, (m, items, dim) for a similarity of sets.
        image_ids: (n,) int64, distinct; None for 0 to n - 1.
        text_image_ids: (m,) int64, the id of the image of each text; None if text i describes image i.
        similarity: a kind such as `"cosine"`, or a `Similarity`. Embeddings are normalized if they are not.
        folds: number of contiguous blocks of images; 1 for none. Each is also ranked separately with its texts, and all
            metrics, including medians, are averaged (COCO's "5 folds of 1K").
        bootstrap: number of bootstrap samples of images with their texts, for 95 % intervals; 0 for none.
        seed: seed of the bootstrap.
        recalls: the K of recall at K, distinct; 1, 5 and 10 are always measured.
        pairs: number of images for the protocol of pairs, independent of folds: the first images, each with its first
            text; None for none.
        csls: number of neighbours of `vsemb.hubs.correct_hubs`, independent of folds; None for no
            correction.
        coverage: the known words of the texts, from `vsemb.text.coverage.coverage`. Queries with unknown words are then
            also left out. None if all words are known.

    Returns:
        Recall, median rank and mean rank in both directions.

    Raises:
        InvalidArgumentError: for folds < 1 or more folds than images, bootstrap < 0, recalls other than
            distinct integers >= 1, pairs or csls < 1 or more than images, or csls with a similarity other than an inner
            product; and as `retrieval_ranks`.
        DataError: as `retrieval_ranks`.

    Example: the first image ranks its second text first.

    >>> images, texts = np.eye(2), np.array([[0, 0.5], [1, 0], [0.1, 1]])
    >>> metrics = evaluate_retrieval(images, texts, text_image_ids=[0, 0, 1], similarity="dot", pairs=2)
    >>> metrics.image_to_text["R@1"], metrics.pairs.image_to_text["R@1"]
    (100.0, 50.0)
    """
    scored_by = similarities.get(similarity)
    images, texts, image_ids, text_image_ids = _checked(images, texts, image_ids, text_image_ids, scored_by)
    if not scored_by.multi_vector:
        images, texts = scored_by.normalized_array(images), scored_by.normalized_array(texts)
    check_protocol(len(images), scored_by, folds, bootstrap, recalls, pairs, csls)

    def ranked(rows: np.ndarray | slice, chosen: np.ndarray | slice) -> _Ranked:
        ids, own_ids = image_ids[rows], text_image_ids[chosen]
        of_images, of_texts = retrieval_ranks(images[rows], texts[chosen], ids, own_ids, scored_by)
        return {
            "image_to_text": (of_images, np.arange(len(ids))),
            "text_to_image": (of_texts, _own_images(ids, own_ids)),
        }

    options = (sorted({*RECALLS, *recalls}), bootstrap, seed)
    # `slice(None)` copies nothing, since embeddings may take most of the memory.
    whole = ranked(slice(None), slice(None))
    metrics = _summary([whole], *options)
    if coverage is not None:
        metrics = replace(
            metrics,
            unknown=coverage.counts,
            with_known_word=_without(whole, coverage.share > 0, *options),
            all_words_known=_without(whole, coverage.share == 1, *options),
        )
    if folds > 1:
        blocks = np.array_split(np.arange(len(images)), folds)
        of_folds = [ranked(rows, np.isin(text_image_ids, image_ids[rows])) for rows in blocks]
        metrics = replace(metrics, folds=_summary(of_folds, *options))
    if pairs is not None:
        ids, first = np.unique(text_image_ids, return_index=True)
        chosen = first[np.searchsorted(ids, image_ids[:pairs])]
        metrics = replace(metrics, pairs=_summary([ranked(np.arange(pairs), chosen)], *options))
    if csls is not None:
        corrected = correct_hubs(images, texts, csls)
        protocol: dict[str, Any] = {"bootstrap": bootstrap, "seed": seed, "recalls": recalls}
        metrics = replace(metrics, csls=evaluate_retrieval(*corrected, image_ids, text_image_ids, "dot", **protocol))
    return metrics


def _without(ranked: _Ranked, chosen: np.ndarray, *options: Any) -> RetrievalMetrics | None:
    """Return the metrics of some queries: texts, and images with one of these texts; None for all texts or none."""
    if chosen.all() or not chosen.any():
        return None
    of_images, of_texts, rows = ranked["image_to_text"][0], *ranked["text_to_image"]
    kept, places = np.unique(rows[chosen], return_inverse=True)
    remaining = {
        "image_to_text": (of_images[kept], np.arange(len(kept))),
        "text_to_image": (of_texts[chosen], places),
    }
    return _summary([remaining], *options)


def _summary(folds: list[_Ranked], recalls: Sequence[int], bootstrap: int, seed: int) -> RetrievalMetrics:
    sides = {side: [fold[side] for fold in folds] for side in folds[0]}
    means = {side: _fold_mean([ranks for ranks, _ in ranked], recalls) for side, ranked in sides.items()}
    images, texts = (len(ranked[0][0]) for ranked in sides.values())
    intervals: dict[str, Any] | None = None
    if bootstrap:
        # The same images are drawn for both directions.
        drawn = {side: _resampled(ranked, recalls, bootstrap, seed) for side, ranked in sides.items()}
        intervals = {}
        for side, samples in drawn.items():
            intervals[side] = {name: _interval([sample[name] for sample in samples]) for name in samples[0]}
        intervals["recall_sum"] = _interval([_recall_sum(*both) for both in zip(*drawn.values(), strict=True)])
    return RetrievalMetrics(means["image_to_text"], means["text_to_image"], images, texts, intervals)


def _fold_mean(folds: list[np.ndarray], recalls: Sequence[int]) -> dict[str, float]:
    of_folds = [rank_metrics(ranks, recalls) for ranks in folds]
    return {name: float(np.mean([metrics[name] for metrics in of_folds])) for name in of_folds[0]}


def _interval(values: Sequence[float]) -> list[float]:
    return [float(bound) for bound in np.percentile(values, [2.5, 97.5])]


def _resampled(
    folds: list[tuple[np.ndarray, np.ndarray]], recalls: Sequence[int], resamplings: int, seed: int
) -> list[dict[str, float]]:
    """Resample images with all their queries, since captions of one image are not independent of each other."""
    generator = np.random.default_rng(seed)
    by_image = [
        np.split(ranks[np.argsort(images, kind="stable")], np.cumsum(np.bincount(images))[:-1])
        for ranks, images in folds
    ]

    def resampled(groups: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([groups[image] for image in generator.integers(len(groups), size=len(groups))])

    return [_fold_mean([resampled(groups) for groups in by_image], recalls) for _ in range(resamplings)]

"""Zero-shot recognition and retrieval of classes described by texts (Reed et al. 2016, section 5).

The score of an image and a class is the mean score over the class's texts (equations 3 and 8). Recognition ranks the
classes per image, retrieval ranks the images per class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from keras import ops

from vsemb.errors import DataError, invalid_argument
from vsemb.parts import Count, Range, require
from vsemb.similarities import Similarity

# Maximum number of scores in memory.
_SCORES = 1 << 22
#: Numbers of texts per class in figure 4b.
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
#: Seeds that NumPy and scikit-learn both accept.
Seed = Annotated[int, Range("an integer from 0 to 2**32 - 1", lambda value: 0 <= value < 1 << 32)]


@dataclass(frozen=True)
class CurvePoint:
    """Recognition and retrieval with a subset of the texts of each class: mean and deviation over repeats.

    Attributes:
        texts: number of texts per class, or all of a class with fewer; None for all texts of every class.
        top1: mean of the per-class accuracies, in percent.
        top1_deviation: population standard deviation of `top1` over the repeats.
        average_precision: share of the correct class among the top images of a class, in percent.
        average_precision_deviation: population standard deviation of `average_precision`.
    """

    texts: int | None
    top1: float
    top1_deviation: float
    average_precision: float
    average_precision_deviation: float

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; `texts` is "all" for None."""
        return {**vars(self), "texts": "all" if self.texts is None else self.texts}


@dataclass(frozen=True)
class ZeroShotMetrics:
    """The result of `evaluate_zero_shot`.

    Attributes:
        top1: mean of the per-class accuracies, in percent, as in the paper.
        top1_images: accuracy over all images, in percent, as in the released code.
        average_precision: AP@`top`, see `evaluate_zero_shot`, in percent.
        average_precision_limit: maximum of AP@`top`, in percent; below 100 if classes have fewer than `top` images.
        chance: top-1 accuracy of random guessing, in percent.
        top: number of ranked images per class.
        classes: number of classes.
        images: number of images.
        texts: number of texts.
        curve: points over the number of texts, see `text_curve`; empty unless requested.
    """

    top1: float
    top1_images: float
    average_precision: float
    average_precision_limit: float
    chance: float
    top: int
    classes: int
    images: int
    texts: int
    curve: tuple[CurvePoint, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; the curve only if measured."""
        values = dict(vars(self))
        del values["curve"]
        if self.curve:
            values["curve"] = [point.to_json() for point in self.curve]
        return values


def class_means(texts: np.ndarray, text_classes: np.ndarray, classes: int) -> np.ndarray:
    """Return the mean text embedding of each class, without normalization.

    Args:
        texts: (m, dim) float32 embeddings.
        text_classes: (m,) int64 in [0, classes); each class has a text.
        classes: c, the number of classes.

    Returns:
        (c, dim) float32.

    Example:

    >>> class_means(np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]), np.array([0, 0, 1]), 2).tolist()
    [[0.75, 0.25], [0.0, 1.0]]
    """
    return _grouped(np.asarray(texts), text_classes, classes).astype(np.float32)


def _grouped(values: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    """Return the mean of the rows of each group: (count, ...) float64."""
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups, minlength=count)
    starts = np.cumsum(sizes) - sizes
    sums = np.add.reduceat(values[order], starts, axis=0, dtype=np.float64)
    return sums / sizes.reshape(-1, *[1] * (values.ndim - 1))


def class_scores(images: np.ndarray, texts: np.ndarray, text_classes: np.ndarray, similarity: Similarity) -> np.ndarray:
    """Score every image against every class: the mean of the scores of the class's texts.

    If scores are linear in the text embedding (`Similarity.linear`), the score of the mean embedding is computed, which
    is equal (Reed et al. 2016, equation 8).

    Args:
        images: (n, dim) float32 embeddings.
        texts: (m, dim) float32 embeddings.
        text_classes: (m,) int64, consecutive from 0; c is the largest plus one.
        similarity: scores images against texts.

    Returns:
        (n, c) float32.

    Raises:
        DataError: for an embedding that is not finite, or a class without a text.

    Example: two texts for class 0, one for class 1.

    >>> from vsemb.similarities import Dot
    >>> texts = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], np.float32)
    >>> class_scores(np.array([[2.0, 0.0]], np.float32), texts, np.array([0, 0, 1]), Dot()).tolist()
    [[1.5, 0.0]]
    """
    for side, embeddings in (("images", images), ("texts", texts)):
        if not np.isfinite(embeddings).all():
            raise DataError(
                f"The embeddings of the {side} must be finite; got NaN or infinity. Check the features and the "
                "training loss."
            )
    text_classes = np.asarray(text_classes)
    classes = int(text_classes.max(initial=-1)) + 1
    _check_all(text_classes, [str(number) for number in range(classes)], "text")
    if similarity.linear:
        texts = class_means(texts, text_classes, classes)
    candidates = ops.convert_to_tensor(texts)
    block = max(_SCORES // len(texts), 1)
    result = np.empty((len(images), classes), np.float32)
    for start in range(0, len(images), block):
        rows = slice(start, start + block)
        scores: Any = similarity.scores(ops.convert_to_tensor(images[rows]), candidates)
        scores = ops.convert_to_numpy(scores)  # (block, classes) or (block, texts)
        result[rows] = scores if similarity.linear else _grouped(scores.T, text_classes, classes).T
    return result


def recognized(scores: np.ndarray, image_classes: np.ndarray) -> np.ndarray:
    """Return for each image whether its class scores higher than every other class.

    A tie counts as wrong.

    Args:
        scores: (n, c) float.
        image_classes: (n,) int64 in [0, c).

    Returns:
        (n,) bool.

    Example:

    >>> recognized(np.array([[3.0, 1.0], [2.0, 2.0], [0.0, 1.0]]), np.array([0, 0, 1])).tolist()
    [True, False, True]
    """
    rows = np.arange(len(scores))
    others = np.array(scores)
    others[rows, image_classes] = -np.inf
    return scores[rows, image_classes] > others.max(axis=1)


def image_rankings(scores: np.ndarray, image_classes: np.ndarray) -> np.ndarray:
    """Rank the images for each class, best first.

    At equal scores, images of the class come last, so ties count against the model. Otherwise ties keep their order.

    Args:
        scores: (n, c) float.
        image_classes: (n,) int64 in [0, c).

    Returns:
        (c, n) int64, rows of the images.

    Example: image 0, of class 0, ties with image 1, of class 1.

    >>> image_rankings(np.array([[1.0, 0.0], [1.0, 2.0]]), np.array([0, 1])).tolist()
    [[1, 0], [1, 0]]
    """
    own = np.asarray(image_classes)[None] == np.arange(scores.shape[1])[:, None]  # (c, n)
    # The last key of `lexsort` is the primary one.
    return np.lexsort((own, -scores.T), axis=-1)


def precision_at(rankings: np.ndarray, image_classes: np.ndarray, top: int) -> float:
    """Return AP@K of Reed et al. 2016, section 5.2, in [0, 1].

    It is the share of the correct class among the first K images of each class, averaged over classes. It differs from
    the area under the precision-recall curve. The divisor is K, or the number of images if smaller, also for classes
    with fewer images.

    Args:
        rankings: (c, n) int64 from `image_rankings`.
        image_classes: (n,) int64.
        top: K.

    Example:

    >>> precision_at(np.array([[0, 1, 2], [0, 2, 1]]), np.array([0, 1, 1]), 2)
    0.5
    """
    right = np.asarray(image_classes)[rankings[:, :top]] == np.arange(len(rankings))[:, None]
    return float(right.mean())


def evaluate_zero_shot(
    images: np.ndarray,
    image_classes: np.ndarray,
    texts: np.ndarray,
    text_classes: np.ndarray,
    similarity: Similarity,
    *,
    names: Sequence[str],
    top: int = 50,
) -> ZeroShotMetrics:
    """Measure recognition and retrieval of classes described by texts.

    Args:
        images: (n, dim) float32 embeddings.
        image_classes: (n,) int64 in [0, c).
        texts: (m, dim) float32 embeddings.
        text_classes: (m,) int64 in [0, c).
        similarity: scores images against texts.
        names: the c classes.
        top: number of ranked images per class, K of AP@K, default 50; all if there are fewer.

    Raises:
        InvalidArgumentError: for top < 1.
        DataError: for a class without an image or a text, a class number out of range, or an embedding that is not
            finite.

    Example: the second image of class 0 is recognized as class 1.

    >>> from vsemb.similarities import Dot
    >>> images = np.array([[1.0, 0.0], [0.2, 0.8], [0.0, 1.0]], np.float32)
    >>> metrics = evaluate_zero_shot(
    ...     images, np.array([0, 0, 1]), np.eye(2, dtype=np.float32), np.array([0, 1]), Dot(), names="ab"
    ... )
    >>> metrics.top1, round(metrics.top1_images, 1), metrics.chance
    (75.0, 66.7, 50.0)
    """
    require("top", top, Count)
    if not len(names):
        raise DataError("The number of classes must be at least 1; got 0.")
    image_classes = np.asarray(image_classes, np.int64)
    text_classes = np.asarray(text_classes, np.int64)
    for side, rows, classes in (("image", images, image_classes), ("text", texts, text_classes)):
        if len(rows) != len(classes):
            raise DataError(
                f"The number of {side} classes must be {len(rows)}, the number of {side}s; got {len(classes)}."
            )
        if len(classes) and not (classes.min() >= 0 and classes.max() < len(names)):
            raise DataError(
                f"The classes of the {side}s must be from 0 to {len(names) - 1}, one per name; got {classes.min()} to "
                f"{classes.max()}."
            )
        _check_all(classes, names, side)
    scores = class_scores(images, texts, text_classes, similarity)
    right = recognized(scores, image_classes)
    sizes = np.bincount(image_classes)
    places = min(top, len(images))
    return ZeroShotMetrics(
        top1=100 * float(_grouped(right, image_classes, len(names)).mean()),
        top1_images=100 * float(right.mean()),
        average_precision=100 * precision_at(image_rankings(scores, image_classes), image_classes, top),
        average_precision_limit=100 * float(np.minimum(sizes, places).mean()) / places,
        chance=100 / len(names),
        top=top,
        classes=len(names),
        images=len(images),
        texts=len(texts),
    )


def _check_all(classes: np.ndarray, names: Sequence[str], side: str) -> None:
    counts = np.bincount(classes, minlength=len(names))
    if not counts.all():
        raise DataError(f"The class {names[int(np.argmin(counts))]!r} must have at least one {side}; got 0.")


def sample_texts(text_classes: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Draw texts of each class without replacement, or all texts of smaller classes.

    Args:
        text_classes: (m,) int64.
        count: number of texts per class.
        generator: source of the draws.

    Returns:
        (drawn,) int64, rows of the texts, ascending.

    Example:

    >>> sample_texts(np.array([0, 1, 1, 1]), 2, np.random.default_rng(0)).tolist()
    [0, 1, 2]
    """
    shuffled = generator.permutation(len(text_classes))
    groups = np.asarray(text_classes)[shuffled]
    order = np.argsort(groups, kind="stable")
    groups = groups[order]
    place = np.arange(len(groups)) - np.searchsorted(groups, groups)  # 0 for a class's first, 1, ...
    return np.sort(shuffled[order[place < count]])


def text_curve(
    measure: Callable[[np.ndarray], ZeroShotMetrics],
    text_classes: np.ndarray,
    *,
    counts: Sequence[int] = COUNTS,
    repeats: int = 10,
    seed: int = 0,
) -> list[CurvePoint]:
    """Measure with a few random texts per class, several times (Reed et al. 2016, figure 4b).

    Args:
        measure: measures with a subset of the texts, given by its rows.
        text_classes: (m,) int64.
        counts: numbers of texts per class, ascending; numbers that cover all texts are left out.
        repeats: draws per number; default 10.
        seed: seed of the draws, from 0 to 2**32 - 1.

    Returns:
        One point per number, and a last one for all texts.

    Raises:
        InvalidArgumentError: for counts or repeats below 1, or a seed out of range.
        DataError: as `measure`.

    Example:

        points = text_curve(lambda rows: evaluate_zero_shot(..., texts[rows], classes[rows], ...), classes)
        print([(point.texts, point.top1, point.top1_deviation) for point in points])
    """
    require("repeats", repeats, Count)
    require("seed", seed, Seed)
    if any(count < 1 for count in counts):
        raise invalid_argument("counts", list(counts), "integers >= 1")
    # All texts first, which checks the arguments.
    everything = measure(np.arange(len(text_classes)))
    generator = np.random.default_rng(seed)
    points = []
    for count in counts:
        if count < np.bincount(text_classes).max():
            drawn = [sample_texts(text_classes, count, generator) for _ in range(repeats)]
            points.append(_point(count, [measure(rows) for rows in drawn]))
    return [*points, _point(None, [everything])]


def _point(count: int | None, measured: Sequence[ZeroShotMetrics]) -> CurvePoint:
    top1 = [metrics.top1 for metrics in measured]
    precision = [metrics.average_precision for metrics in measured]
    return CurvePoint(
        count, float(np.mean(top1)), float(np.std(top1)), float(np.mean(precision)), float(np.std(precision))
    )

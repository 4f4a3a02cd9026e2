"""Zero-shot recognition against the number of texts that tell of a class (Reed et al. 2016, section 5.4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vsemb.errors import invalid_argument
from vsemb.similarities import Similarity
from vsemb.systems.zero_shot.metrics import CurvePoint, ZeroShotMetrics, check_seed, evaluate_zero_shot

#: Numbers of texts a class in figure 4b.
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)


def sample_texts(text_classes: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Draws texts of each class without replacement, all of those that have no more.

    Args:
        text_classes: (m,) int64.
        count: texts wanted for each class.
        generator: draws.

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
    images: np.ndarray,
    image_classes: np.ndarray,
    texts: np.ndarray,
    text_classes: np.ndarray,
    similarity: Similarity,
    *,
    names: Sequence[str],
    counts: Sequence[int] = COUNTS,
    repeats: int = 10,
    seed: int = 0,
    top: int = 50,
) -> list[CurvePoint]:
    """Measures with a few texts of each class, drawn anew each time (Reed et al. 2016, figure 4b).

    Args:
        images, image_classes, texts, text_classes, similarity, names, top: as for `evaluate_zero_shot`.
        counts: numbers of texts a class, ascending; those that no class has more texts than are left out.
        repeats: draws for each number.
        seed: of the draws, from 0 to 2**32 - 1.

    Returns:
        A point for each number, and one for all texts, last.

    Raises:
        InvalidArgumentError: for counts or repeats below 1, or a seed out of range.
        DataError: as `evaluate_zero_shot`.

    Example:

        points = text_curve(images, image_classes, texts, text_classes, Dot(), names=names)
        print([(point.texts, point.top1, point.top1_deviation) for point in points])
    """
    if repeats < 1:
        raise invalid_argument("repeats", repeats, "an integer >= 1")
    if any(count < 1 for count in counts):
        raise invalid_argument("counts", list(counts), "integers >= 1")
    check_seed(seed)
    given = (images, image_classes, texts, text_classes)
    # All texts come first, since that checks what is given.
    everything = evaluate_zero_shot(*given, similarity, names=names, top=top)
    text_classes = np.asarray(text_classes)
    most = int(np.bincount(text_classes).max())
    generator = np.random.default_rng(seed)
    points = []
    for count in counts:
        if count >= most:
            continue
        drawn = [sample_texts(text_classes, count, generator) for _ in range(repeats)]
        measured = [
            evaluate_zero_shot(images, image_classes, texts[rows], text_classes[rows], similarity, names=names, top=top)
            for rows in drawn
        ]
        points.append(_point(count, measured))
    return [*points, _point(None, [everything])]


def _point(count: int | None, measured: Sequence[ZeroShotMetrics]) -> CurvePoint:
    top1 = [metrics.top1 for metrics in measured]
    precision = [metrics.average_precision for metrics in measured]
    return CurvePoint(count, *(float(value(side)) for side in (top1, precision) for value in (np.mean, np.std)))

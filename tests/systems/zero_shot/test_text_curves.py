"""Recognition with few texts a class: draws, a curve by hand, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.raising import raises_argument
from tests.systems.zero_shot.drawn_classes import SlowDot, drawn
from vsemb.errors import DataError
from vsemb.similarities import Dot
from vsemb.systems.zero_shot.metrics import CurvePoint, ZeroShotMetrics, evaluate_zero_shot, sample_texts, text_curve


def curve(images, image_classes, texts, text_classes, similarity, *, names, top, **options) -> list[CurvePoint]:
    def measure(rows: np.ndarray) -> ZeroShotMetrics:
        given = (images, image_classes, texts[rows], text_classes[rows], similarity)
        return evaluate_zero_shot(*given, names=names, top=top)

    return text_curve(measure, text_classes, **options)


def test_samples_are_without_replacement_and_all_where_there_are_fewer() -> None:
    classes = np.array([2, 0, 1, 1, 2, 1, 2, 2])
    seen: dict[int, int] = dict.fromkeys(range(8), 0)
    for seed in range(60):
        rows = sample_texts(classes, 2, np.random.default_rng(seed))
        assert np.bincount(classes[rows]).tolist() == [1, 2, 2]
        assert (np.diff(rows) > 0).all()
        for row in rows.tolist():
            seen[row] += 1
    # Of class 2 every one of the four texts is drawn in half of the draws; five deviations are 19.
    assert seen[1] == 60 and all(abs(seen[row] - 30) < 20 for row in (0, 4, 6, 7))


def test_curve_by_hand() -> None:
    # Class 0 has a good and a bad text, class 1 one in between: with the good text alone both images are
    # right, with the bad one alone neither image of class 0 is.
    images, image_classes = np.array([[1, 0], [1, 0.1], [0, 1]], np.float32), np.array([0, 0, 1])
    texts, text_classes = np.array([[1, 0], [-1, 0], [0, 1]], np.float32), np.array([0, 0, 1])
    points = curve(images, image_classes, texts, text_classes, Dot(), names="ab", counts=(1, 2, 4), repeats=40, top=1)
    # Two texts are all that any class has.
    assert [point.texts for point in points] == [1, None]
    good = (points[0].top1 - 50) / 50  # share of draws with the good text: 100 %, else 50 %
    assert 0.2 < good < 0.8
    assert points[0].top1_deviation == pytest.approx(50 * np.sqrt(good * (1 - good)))
    # With both texts class 0 is the origin: its image scores 0, class 1 scores 0 and 0.1; a tie is wrong.
    assert (points[1].top1, points[1].top1_deviation) == (50, 0)
    assert points[1].to_json()["texts"] == "all" and points[0].to_json()["texts"] == 1


def test_curve_ends_with_all_texts_and_depends_on_the_seed_alone() -> None:
    given = drawn()
    points = curve(*given, Dot(), names="abcde", top=8)
    assert [point.texts for point in points] == [1, 2, 4, 8, None]
    metrics = evaluate_zero_shot(*given, Dot(), names="abcde", top=8)
    assert (points[-1].top1, points[-1].average_precision) == (metrics.top1, metrics.average_precision)
    assert points == curve(*given, Dot(), names="abcde", top=8)
    assert points[:-1] != curve(*given, Dot(), names="abcde", top=8, seed=1)[:-1]
    assert points[0].top1_deviation > 0
    assert points[0].top1 < points[-1].top1


def test_mean_embeddings_and_mean_scores_give_one_curve() -> None:
    curves = [curve(*drawn(), each, names="abcde", repeats=3, top=8) for each in (Dot(), SlowDot())]
    assert curves[0] == curves[1]


def test_what_does_not_fit_is_refused() -> None:
    given = list(drawn())
    for name, wrong in (("counts", (1, 0)), ("repeats", 0), ("seed", -1), ("seed", 2**32)):
        with raises_argument(name):
            curve(*given, Dot(), names="abcde", top=8, **{name: wrong})
    given[2:] = given[2][given[3] != 3], given[3][given[3] != 3]
    with pytest.raises(DataError, match="'d'"):
        curve(*given, Dot(), names="abcde", top=8)

"""Pointing metrics by hand: overlaps, nouns, right regions, shares and the spread of scores."""

from __future__ import annotations

import json

import numpy as np
import pytest

from vsemb.data import synthetic
from vsemb.data.synthetic import world
from vsemb.errors import DataError
from vsemb.systems.regions.pointing import (
    PointingMetrics,
    box_iou,
    evaluate_pointing,
    named_objects,
    object_nouns,
    right_regions,
    score_spread,
)


def slow_iou(first: np.ndarray, second: np.ndarray) -> float:
    """Counts the unit cells of two boxes with whole numbers."""
    cells = [
        {(x, y) for x in range(int(a), int(a + w)) for y in range(int(b), int(b + h))} for a, b, w, h in (first, second)
    ]
    either = len(cells[0] | cells[1])
    return len(cells[0] & cells[1]) / either if either else 0.0


def test_overlap_counts_cells() -> None:
    generator = np.random.default_rng(0)
    boxes = generator.integers(0, 6, (3, 7, 4))
    others = generator.integers(0, 6, (3, 5, 4))
    overlaps = box_iou(boxes, others)
    assert overlaps.shape == (3, 7, 5) and overlaps.max() > 0.5
    for image, row, column in np.ndindex(overlaps.shape):
        # Both divide one pair of small whole numbers.
        assert overlaps[image, row, column] == slow_iou(boxes[image, row], others[image, column])


def test_overlap_of_touching_boxes_padding_and_fractions() -> None:
    unit = np.array([[0.0, 0.0, 1.0, 1.0]])
    assert box_iou(unit, unit).item() == 1
    assert box_iou(unit, np.array([[1.0, 0.0, 1.0, 1.0]])).item() == 0
    # Two boxes of zeros are both padding and not one another.
    assert box_iou(np.zeros((1, 4)), np.zeros((1, 4))).item() == 0
    # A quarter of each is shared: 0.25 / (1 + 1 - 0.25).
    assert box_iou(unit, unit + [[0.5, 0.5, 0, 0]]).item() == pytest.approx(1 / 7)


@pytest.mark.parametrize(
    ("caption", "named", "nouns"),
    [
        ("a turquoise ring above a cross", {1: (2,), 2: (2,), 5: (1,)}, ["ring", "cross"]),
        ("two pink triangles", {1: (0, 1), 2: (0, 1)}, ["triangles"]),
        ("three different shapes", {2: (0, 1, 2)}, ["shapes"]),
        ("the square is large and yellow", {1: (0,), 3: (0,), 5: (0,)}, ["square"]),
        # Neighbours that name other objects are another phrase.
        ("red rings squares", {0: (0, 1), 1: (0, 1), 2: (2,)}, ["rings", "squares"]),
        ("two rings and a red ring", {1: (0, 1), 4: (0,), 5: (0,)}, ["rings", "ring"]),
        ("a big red disc the disc is small", {1: (0,), 2: (0,), 3: (0,), 5: (0,), 7: (0,)}, ["disc"]),
        ("no object", {}, []),
    ],
    ids=["adjective", "plural", "generic", "predicates", "neighbours", "one of two", "again", "none"],
)
def test_nouns_by_their_places(caption, named, nouns) -> None:
    words = caption.split()
    assert [words[place] for place in sorted(object_nouns(named))] == nouns
    pairs = [(word, item) for word, items in named.items() for item in items]
    assert named_objects(reversed(pairs)) == named


def test_nouns_of_scenes_are_their_shapes() -> None:
    singular = {*world.SHAPES, "disc", "hoop", "shape", "object"}
    shapes = singular | {f"{word}s" for word in singular} | {"crosses"}
    phrases = 0
    for record in synthetic.generate({"train": 60}, seed=1):
        for caption, alignment in zip(record.captions, record.alignments, strict=True):
            named, words = named_objects(alignment), caption.split()
            nouns = object_nouns(named)
            assert {words[place] for place in nouns} <= shapes
            # Every shape that is told of is found.
            assert nouns == {place for place in named if words[place] in shapes}
            phrases += len(nouns)
    assert phrases > 300


def test_right_regions_against_a_loop() -> None:
    generator = np.random.default_rng(3)
    regions, objects = generator.integers(0, 5, (12, 4)), generator.integers(1, 5, (4, 4))
    regions[7:] = 0
    named = [[0], [1, 3], [0, 1, 2, 3], []]
    right = right_regions(regions, objects, named)
    slow = [[any(slow_iou(region, objects[item]) >= 0.5 for item in items) for region in regions] for items in named]
    assert right.tolist() == slow and right.sum() > 0 and not right[:, 7:].any()


def test_an_overlap_of_just_the_threshold_is_right_though_fractions_round() -> None:
    # 10 x 10 pixels in 10 x 20 of them, in images of any size.
    for side in range(30, 400):
        regions = (np.array([[3, 4, 10, 20]]) / side).astype(np.float32)
        objects = np.array([[3, 4, 10, 10]]) / side
        assert right_regions(regions, objects, [[0]]).item()
        assert not right_regions(regions, objects * [1, 1, 0.999, 1], [[0]]).item()


@pytest.mark.parametrize("item", [2, -1])
def test_an_object_that_is_not_there(item) -> None:
    with pytest.raises(DataError, match=f"{item} of 2"):
        right_regions(np.ones((1, 4)), np.ones((2, 4)), [[0], [1, item]])


def measured(**options) -> PointingMetrics:
    # Two images; the first has all three regions, the second two of them.
    right = np.array([[0, 1, 0], [0, 1, 1], [1, 1, 0], [0, 0, 0]], bool)
    real = np.array([[1, 1, 1], [1, 1, 1], [1, 1, 0], [1, 1, 0]], bool)
    chosen = {
        0.0: np.array([1, 0, -1, 1]),
        0.5: np.array([1, 1, -1, 1]),
        2.0: np.array([2, 1, -1, 1]),
        4.0: np.array([1, 2, -1, 0]),
    }
    nouns = np.array([False, True, False, True])
    return evaluate_pointing(right, real, chosen, nouns, np.array([7, 7, 9, 9]), **options)


def test_shares_by_hand() -> None:
    metrics = measured()
    # Of the four words the first and at most the second point right; of the two nouns, the second and the
    # fourth, the second alone.
    values = {affinity: (share.words, share.nouns) for affinity, share in metrics.accuracy.items()}
    assert values == {0.0: (25, 0), 0.5: (50, 50), 2.0: (25, 50), 4.0: (50, 50)}
    # Of words 1/3, 2/3, 2/2 and 0/2 of the regions are right: (1/3 + 2/3 + 1 + 0) / 4; nouns (2/3 + 0) / 2.
    assert metrics.chance.words == pytest.approx(50) and metrics.chance.nouns == pytest.approx(100 / 3)
    assert (metrics.whole_image.words, metrics.whole_image.nouns) == (25, 0)
    assert (metrics.ceiling.words, metrics.ceiling.nouns) == (75, 50)
    assert (metrics.images, metrics.words, metrics.nouns, metrics.undecided) == (2, 4, 2, 1)
    assert metrics.regions == 2.5
    # Of equal ones the smallest.
    assert metrics.best_affinity() == 0.5


def test_chance_is_what_random_regions_come_to() -> None:
    generator = np.random.default_rng(4)
    words = 500
    real = np.arange(6) < generator.integers(1, 7, (words, 1))
    right = (generator.random((words, 6)) < 0.3) & real
    drawn = {
        float(draw): (generator.random((words, 6)) * real).argmax(axis=1)  # One of the real regions.
        for draw in range(200)
    }
    metrics = evaluate_pointing(right, real, drawn, np.ones(words, bool), np.arange(words))
    mean = np.mean([share.words for share in metrics.accuracy.values()])
    # 100,000 draws: a standard error of at most 0.16 points.
    assert metrics.chance.words == pytest.approx(mean, abs=0.6)
    assert metrics.chance == evaluate_pointing(~real | right, real, drawn, real[:, 0], np.arange(words)).chance


def test_intervals_are_over_images() -> None:
    assert measured().chance.intervals is None
    metrics = measured(bootstrap=200)
    # Both images of the ceiling: 2/2 and 1/2 of the words, so a resampling has 50, 75 or 100 percent.
    assert metrics.ceiling.intervals == {"words": [50, 100], "nouns": [0, 100]}
    # At 0.5 words of the one image are all right, of the other all wrong; words by themselves would not be.
    assert metrics.accuracy[0.5].intervals["words"] == [0, 100]
    assert measured(bootstrap=200) == metrics and metrics.accuracy.keys() == measured().accuracy.keys()


def test_an_image_without_a_region_is_wrong_and_no_division_by_zero() -> None:
    none = np.zeros((1, 3), bool)
    chosen = {0.0: np.array([-1])}
    metrics = evaluate_pointing(none, none, chosen, np.array([True]), np.zeros(1, int))
    assert (metrics.chance.words, metrics.ceiling.words, metrics.regions) == (0, 0, 0)


def test_json_has_affinities_as_numbers() -> None:
    written = json.loads(json.dumps(measured(bootstrap=3).to_json(), allow_nan=False))
    assert [row["affinity"] for row in written["accuracy"]] == [0.0, 0.5, 2.0, 4.0]
    assert set(written["chance"]) == {"words", "nouns", "intervals_95"}
    assert written["whole_image"]["words"] == 25 and written["undecided"] == 1
    assert set(measured().to_json()["ceiling"]) == {"words", "nouns"}


def test_nothing_to_measure() -> None:
    no_words = np.zeros((0, 2), bool), np.zeros((0, 2), bool), {0.0: np.zeros(0, int)}
    with pytest.raises(DataError):
        evaluate_pointing(*no_words, np.zeros(0, bool), np.zeros(0, int))


def test_the_spread_is_taken_word_by_word_and_padding_does_not_count() -> None:
    random = np.random.default_rng(3)
    blocks, differences = [], []
    for captions, steps, regions in ((4, 5, 3), (2, 7, 6), (0, 3, 2)):
        scores = random.normal(size=(captions, steps, regions)).astype(np.float32)
        words, known = random.random((captions, steps)) < 0.7, random.random((captions, regions)) < 0.7
        for caption, word in zip(*np.nonzero(words), strict=True):
            of_word = scores[caption, word][known[caption]].astype(np.float64)
            differences += [of_word - of_word.mean()] if len(of_word) else []
        # What padding holds does not count, whatever it is.
        scores[~words] = np.nan
        scores[np.broadcast_to(~known[:, None], scores.shape)] = np.inf
        blocks.append((scores, words, known))
    np.testing.assert_allclose(score_spread(blocks), np.sqrt(np.mean(np.concatenate(differences) ** 2)), rtol=1e-12)
    assert score_spread([]) == 0.0


def test_a_broken_score_shows_in_the_spread() -> None:
    for broken in (np.nan, np.inf):
        scores, words, regions = np.array([[[broken, 1.0]]]), np.ones((1, 1), bool), np.ones((1, 2), bool)
        assert not np.isfinite(score_spread([(scores, words, regions)]))

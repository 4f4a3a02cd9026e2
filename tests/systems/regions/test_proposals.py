"""Boxes of regions: grid, objectness, suppression of overlaps, coverage of scenes, selective search."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from vsemb.data.synthetic import generate
from vsemb.errors import MissingExtraError
from vsemb.systems.regions.proposals import best_boxes, grid_boxes, objectness, propose, selective_search

RANDOM = np.random.default_rng(11)


def overlaps(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Intersection over union of all pairs, one by one."""
    found = np.zeros((len(first), len(second)))
    for i, (x, y, w, h) in enumerate(first):
        for j, (u, v, p, q) in enumerate(second):
            common = max(0, min(x + w, u + p) - max(x, u)) * max(0, min(y + h, v + q) - max(y, v))
            found[i, j] = common / (w * h + p * q - common) if common else 0
    return found


def square(x: int, y: int, side: int = 16, colour: float = 255.0, of: int = 64) -> np.ndarray:
    pixels = np.zeros((1, of, of, 3), np.float32)
    pixels[:, y : y + side, x : x + side] = colour
    return pixels


def scenes(count: int) -> tuple[np.ndarray, list[np.ndarray]]:
    records = list(generate({"val": count}, seed=7))
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(record.image))) for record in records])
    return pixels.astype(np.float32), [np.array([o["box"] for o in r.objects]) / 64 for r in records]


def test_grid_lies_within_the_image_and_covers_it():
    grid = grid_boxes()
    assert grid.dtype == np.float32 and len(np.unique(grid, axis=0)) == len(grid)
    assert (grid[:, :2] >= 0).all() and (grid[:, 2:] > 0).all()
    assert (grid[:, :2] + grid[:, 2:] <= 1).all()
    np.testing.assert_array_equal((grid[:, :2] + grid[:, 2:]).max(axis=0), 1)
    np.testing.assert_array_equal(grid[:, :2].min(axis=0), 0)
    # Any square of 0.19 to 0.6 of the side has a box of the grid at IoU 0.5 or more.
    sides = RANDOM.uniform(0.19, 0.6, 40)
    corners = RANDOM.uniform(0, 1, (40, 2)) * (1 - sides[:, None])
    squares = np.column_stack([corners, sides, sides])
    assert overlaps(squares, grid).max(axis=1).min() >= 0.5


def test_objectness_by_hand():
    # White (1, 1, 1) of 16 x 16 on black, box 20 x 20 around it: a ring of round(0.1 * 20) = 2 black cells,
    # V = 0 and m = 0, so D = 3 * 256 / 400; in the middle d = 0, and the ring is all in the image, r = 1.
    expected = np.sqrt(3 * 256 / 400) / 0.2 * (400 / 4096) ** 0.125
    box = np.array([[22, 22, 20, 20]]) / 64
    got = objectness(square(24, 24), box).numpy()
    np.testing.assert_allclose(got, [[expected]], rtol=1e-6)  # float32 of a result in float64


def test_objectness_prefers_the_fit():
    candidates = np.array([[24, 24, 16, 16], [26, 26, 12, 12], [20, 20, 24, 24], [24, 24, 8, 16]]) / 64
    scores = objectness(square(24, 24), candidates).numpy()[0]
    assert scores.argmax() == 0
    assert not objectness(np.full((1, 64, 64, 3), 77.0, np.float32), grid_boxes()).numpy().any()
    whole_and_padding = objectness(square(24, 24), [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(whole_and_padding, [[0, 0]])


def test_objectness_at_another_resolution():
    large = np.repeat(np.repeat(square(20, 28), 2, axis=1), 2, axis=2)
    candidates = np.array([[20, 28, 16, 16], [22, 30, 12, 12], [16, 24, 24, 24], [40, 4, 16, 16]]) / 64
    scores = objectness(large, candidates).numpy()[0]
    assert scores.argmax() == 0 and scores[3] == 0


def reference(boxes: np.ndarray, scores: np.ndarray, count: int, overlap: float) -> list[int]:
    order = [i for i in np.argsort(-scores, kind="stable") if boxes[i, 2] > 0 and not np.isnan(scores[i])]
    taken: list[int] = []
    for i in order:
        if len(taken) < count and (overlaps(boxes[[i]], boxes[taken]) <= overlap).all():
            taken.append(i)
    return taken


@pytest.mark.parametrize("overlap", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("count", [1, 7, 60])
def test_suppression_is_greedy(count, overlap):
    boxes = RANDOM.uniform(0, 0.5, (3, 40, 4)).astype(np.float32)
    boxes[0, 30:] = 0
    scores = RANDOM.normal(size=(3, 40)).astype(np.float32)
    scores[1, ::2] = 0.5  # ties
    scores[2, 3], scores[2, 4], scores[2, 5] = np.nan, -np.inf, np.inf
    best, best_scores, places = (part.numpy() for part in best_boxes(boxes, scores, count, overlap))
    for row in range(3):
        expected = reference(boxes[row], scores[row], count, overlap)
        assert places[row].tolist() == expected + [-1] * (count - len(expected))
        np.testing.assert_array_equal(best[row, : len(expected)], boxes[row, expected])
        real = np.clip(scores[row, expected], -1e38, 1e38)
        np.testing.assert_array_equal(best_scores[row, : len(expected)], real)
        assert not best[row, len(expected) :].any() and not best_scores[row, len(expected) :].any()


def test_no_boxes_and_none_wanted():
    best, scores, places = best_boxes(tf.zeros((2, 0, 4)), tf.zeros((2, 0)), 3, 0.5)
    assert not best.numpy().any() and not scores.numpy().any()
    np.testing.assert_array_equal(places, np.full((2, 3), -1))
    assert best_boxes(tf.ones((2, 5, 4)), tf.zeros((2, 5)), 0, 0.5)[0].shape == (2, 0, 4)
    assert best_boxes(tf.zeros((0, 5, 4)), tf.zeros((0, 5)), 2, 0.5)[0].shape == (0, 2, 4)


def test_objects_of_scenes_are_found():
    pixels, truth = scenes(60)
    boxes, scores = (part.numpy() for part in propose(pixels, 19, 0.5))
    best = np.concatenate([overlaps(t, b[b[:, 2] > 0]).max(axis=1) for t, b in zip(truth, boxes, strict=True)])
    # Measured on 200 scenes: all of 451 objects at IoU 0.5, 0.93 on average.
    assert (best >= 0.5).mean() >= 0.98
    assert best.mean() >= 0.9
    for rows, values in zip(boxes, scores, strict=True):
        real = rows[:, 2] > 0
        assert real.any() and (np.diff(values[real]) <= 0).all() and not values[~real].any()
        assert (rows[:, :2] + rows[:, 2:] <= 1).all()
        mutual = overlaps(rows[real], rows[real]) - np.eye(real.sum())
        assert mutual.max() <= 0.5 + 1e-6  # float32


@pytest.mark.slow
def test_boxes_of_an_image_do_not_depend_on_its_batch():
    pixels, _ = scenes(9)
    pixels = np.concatenate([pixels, RANDOM.uniform(0, 255, (4, 64, 64, 3)).astype(np.float32)])
    proposing = tf.function(lambda given: propose(given, 19, 0.5), reduce_retracing=True, autograph=False)
    together = [part.numpy() for part in proposing(pixels)]
    for row in range(len(pixels)):
        for part, alone in zip(together, proposing(pixels[row : row + 1]), strict=True):
            np.testing.assert_array_equal(part[row], alone[0])


def test_boxes_that_end_at_the_same_place_are_one():
    pixels = np.concatenate([scenes(3)[0], square(24, 24)])
    boxes, scores = (part.numpy() for part in propose(pixels, 19, 1.0))
    for rows, values in zip(boxes, scores, strict=True):
        real = rows.any(axis=-1)
        assert len(np.unique(rows[real], axis=0)) == real.sum() > 1
        assert (np.diff(real.astype(int)) <= 0).all() and not values[~real].any()


def test_an_image_of_one_colour_has_no_boxes():
    boxes, scores = propose(np.full((1, 64, 64, 3), 200.0, np.float32), 4, 0.5)
    assert not boxes.numpy().any() and not scores.numpy().any()


def test_selective_search():
    pytest.importorskip("cv2.ximgproc", reason="the extra regions is not installed")
    pixels = np.full((60, 80, 3), 250, np.uint8)
    pixels[10:40, 20:50] = (200, 30, 30)
    boxes = selective_search(pixels)
    assert boxes.dtype == np.float32 and boxes.shape[1] == 4
    assert np.abs(boxes - [20 / 80, 10 / 60, 30 / 80, 30 / 60]).max(axis=1).min() < 0.05
    areas = boxes[:, 2] * boxes[:, 3]
    assert (np.diff(areas) <= 1e-6).all() and (boxes[:, :2] + boxes[:, 2:] <= 1 + 1e-6).all()
    for _ in range(3):
        np.testing.assert_array_equal(selective_search(pixels), boxes)
    assert len(selective_search(np.zeros((3, 700, 3), np.uint8)))


def test_selective_search_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingExtraError, match=r"vsemb\[regions\]"):
        selective_search(np.zeros((4, 4, 3), np.uint8))

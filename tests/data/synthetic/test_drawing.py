"""What both kinds of scenes are drawn with, by hand."""

from __future__ import annotations

import math

import pytest

from vsemb.data.synthetic.drawing import pixel_box, placed, tinted


def test_placed_turns_scales_and_moves() -> None:
    # A quarter turn takes x to y (downwards) and y to -x.
    ((x, y),) = placed([(2.0, 1.0)], 10.0, 20.0, math.pi / 2, 3.0)
    assert (x, y) == (pytest.approx(10 - 3), pytest.approx(20 + 6))


def test_tinted_by_one_factor_or_three() -> None:
    assert tinted((100, 200, 40), 0.5) == tinted((100, 200, 40), 0.5, 0.5, 0.5) == (50, 100, 20)
    assert tinted((100, 200, 40), 1.0, 2.0, 0.25) == (100, 255, 10)


def test_boxes_hold_what_is_drawn_and_end_at_the_edge() -> None:
    # From 1.9 - 0.5 and 3.2 - 0.5 to 5.1 + 1 and 6 + 1.
    assert pixel_box([(1.9, 3.2), (5.1, 6.0)], 64, 0.5, 1.0) == [1, 2, 6, 5]
    assert pixel_box([(-3.0, 60.0), (70.0, 70.0)], 64, 0.5, 1.0) == [0, 59, 64, 5]

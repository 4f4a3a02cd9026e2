"""Drawing: boxes hold exactly what was drawn, and shapes and colours can be told apart."""

from __future__ import annotations

import io
import itertools
import math

import numpy as np
import pytest
from PIL import Image

from vsemb.data.synthetic import render, world
from vsemb.data.synthetic.render import pixel_box, placed, tinted
from vsemb.data.synthetic.world import Scene, SceneObject


def _drawn(item: SceneObject, background: str, image_size: int) -> np.ndarray:
    """True where the object changed the background."""
    pixels = np.asarray(render.draw(Scene(background, (item,)), image_size), dtype=int)
    plain = np.asarray(render.draw(Scene(background, ()), image_size), dtype=int)
    return (pixels != plain).any(axis=-1)


@pytest.mark.parametrize("image_size", [64, 50])
@pytest.mark.parametrize("shape", world.SHAPES)
def test_box_holds_the_object_tightly(shape: str, image_size: int) -> None:
    for extent, angle, (x, y) in itertools.product((0.19, 0.33, 0.46), (-7.0, 0.0, 5.0), ((0.5, 0.5), (0.31, 0.613))):
        item = SceneObject(shape, "blue", "small", x, y, extent, angle)
        left, top, width, height = render.box(item, image_size)
        rows, columns = np.nonzero(_drawn(item, "white", image_size))
        assert left <= columns.min() <= left + 1
        assert top <= rows.min() <= top + 1
        assert left + width - 2 <= columns.max() <= left + width - 1
        assert top + height - 2 <= rows.max() <= top + height - 1
        # The extent, from which sampling keeps objects apart, is no smaller than what is drawn.
        assert max(width, height) <= extent * image_size + 2


def test_centre_shows_the_colour_and_a_ring_its_background() -> None:
    scene = Scene("white", (SceneObject("circle", "red", "large", 0.5, 0.5, 0.46),))
    assert render.draw(scene).getpixel((32, 32)) == world.COLOURS["red"]
    ring = Scene("white", (SceneObject("ring", "red", "large", 0.5, 0.5, 0.46),))
    assert render.draw(ring).getpixel((32, 32)) == world.BACKGROUNDS["white"]


def test_shapes_differ_even_when_small() -> None:
    masks = {
        shape: _drawn(SceneObject(shape, "red", "small", 0.5, 0.5, world.SIZES["small"]), "white", 64)
        for shape in world.SHAPES
    }
    for one, other in itertools.combinations(masks.values(), 2):
        assert (one != other).sum() >= 8


def test_colours_differ_from_each_other_and_from_the_backgrounds() -> None:
    # By the widest jitter of brightness, 0.9 to 1.06, the nearest two stay apart.
    def shades(rgb: tuple[int, int, int], low: float, high: float) -> np.ndarray:
        return np.minimum(255, np.asarray(rgb) * np.linspace(low, high, 9)[:, None])

    tones = [shades(rgb, 0.9, 1.06) for rgb in world.COLOURS.values()]
    tones += [shades(rgb, 0.96, 1.04) for rgb in world.BACKGROUNDS.values()]
    for one, other in itertools.combinations(tones, 2):
        assert np.linalg.norm(one[:, None] - other[None], axis=-1).min() > 50


def test_encode_is_png_of_the_size_asked_for() -> None:
    scene = Scene("grey", (SceneObject("heart", "pink", "large", 0.5, 0.5, 0.46),))
    with Image.open(io.BytesIO(render.encode(scene, 96))) as image:
        assert (image.format, image.mode, image.size) == ("PNG", "RGB", (96, 96))


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

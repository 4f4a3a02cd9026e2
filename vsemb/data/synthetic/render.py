"""Drawing a scene, and the exact boxes of what was drawn."""

from __future__ import annotations

import functools
import math

from PIL import Image, ImageDraw

from vsemb.data.synthetic.drawing import SUPERSAMPLING, Point, pixel_box, placed, png, tinted
from vsemb.data.synthetic.world import BACKGROUNDS, COLOURS, SHAPES, Scene, SceneObject

_CURVE_POINTS = 64


def draw(scene: Scene, image_size: int = 64) -> Image.Image:
    """Draws a scene, anti-aliased.

    Args:
        scene: the scene.
        image_size: side of the image in pixels.

    Returns:
        an RGB image of `image_size` x `image_size`.
    """
    side = image_size * SUPERSAMPLING
    background = tinted(BACKGROUNDS[scene.background], scene.shade)
    canvas = Image.new("RGB", (side, side), background)
    pen = ImageDraw.Draw(canvas)
    for item in scene.objects:
        pen.polygon(_placed(outline(item.shape), item, side), fill=tinted(COLOURS[item.colour], item.shade))
        if item.shape == "ring":
            pen.polygon(_placed(_ellipse(0.27), item, side), fill=background)
    return canvas.reduce(SUPERSAMPLING)


def encode(scene: Scene, image_size: int = 64) -> bytes:
    """Draws a scene and returns it as PNG bytes, see `vsemb.data.synthetic.drawing.png`."""
    return png(draw(scene, image_size))


def box(item: SceneObject, image_size: int = 64) -> list[int]:
    """Returns the smallest whole-pixel box `[x, y, w, h]` that holds all of an object.

    Args:
        item: the object.
        image_size: side of the image in pixels.
    """
    points = _placed(outline(item.shape), item, image_size)
    # The rasteriser colours every sub-pixel that an edge touches, up to one beyond the geometric edge.
    slack = 1.0 / SUPERSAMPLING
    return pixel_box(points, image_size, slack / 2, slack)


@functools.cache
def outline(shape: str) -> tuple[Point, ...]:
    """Returns the outline of a shape around the origin, in a square of side 1 even when slightly rotated."""
    return _OUTLINES[shape]()


def _placed(points: tuple[Point, ...], item: SceneObject, side: int) -> list[Point]:
    angle, scale = math.radians(item.angle), item.extent * side
    return placed(points, item.x * side, item.y * side, angle, scale)


@functools.cache
def _ellipse(radius: float) -> tuple[Point, ...]:
    turns = [2 * math.pi * step / _CURVE_POINTS for step in range(_CURVE_POINTS)]
    return tuple((radius * math.cos(turn), radius * math.sin(turn)) for turn in turns)


def _square() -> tuple[Point, ...]:
    half = 0.43
    return ((-half, -half), (half, -half), (half, half), (-half, half))


def _triangle() -> tuple[Point, ...]:
    return ((0.0, -0.44), (0.45, 0.40), (-0.45, 0.40))


def _star() -> tuple[Point, ...]:
    points = []
    for step in range(10):
        radius = 0.50 if step % 2 == 0 else 0.22
        turn = math.pi * (step / 5 - 0.5)
        points.append((radius * math.cos(turn), radius * math.sin(turn)))
    return tuple(points)


def _heart() -> tuple[Point, ...]:
    # The usual heart curve: x = 16 sin^3 t, y = 13 cos t - 5 cos 2t - 2 cos 3t - cos 4t.
    points = []
    for step in range(_CURVE_POINTS):
        t = 2 * math.pi * step / _CURVE_POINTS
        x = 16 * math.sin(t) ** 3
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((x * 0.0285, -(y + 2.5) * 0.0285))
    return tuple(points)


def _diamond() -> tuple[Point, ...]:
    return ((0.0, -0.50), (0.34, 0.0), (0.0, 0.50), (-0.34, 0.0))


def _cross() -> tuple[Point, ...]:
    arm, half = 0.46, 0.155
    return (
        *((-half, -arm), (half, -arm), (half, -half), (arm, -half), (arm, half), (half, half)),
        *((half, arm), (-half, arm), (-half, half), (-arm, half), (-arm, -half), (-half, -half)),
    )


_OUTLINES = {
    "circle": lambda: _ellipse(0.48),
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "heart": _heart,
    "diamond": _diamond,
    "cross": _cross,
    "ring": lambda: _ellipse(0.49),
}

if set(_OUTLINES) != set(SHAPES):
    raise AssertionError("every shape needs an outline")

"""Draw scenes: place figures, shade colours, compute the exact boxes of drawn objects, encode PNG."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence

from PIL import Image, ImageDraw

from vsemb.data.synthetic.world import BACKGROUNDS, COLOURS, Scene, SceneObject

Point = tuple[float, float]
Colour = tuple[int, int, int]

#: Sub-pixels per pixel, in each direction.
SUPERSAMPLING = 4


def placed(points: Iterable[Point], x0: float, y0: float, angle: float, scale: float) -> list[Point]:
    """Return points rotated by an angle (radians), scaled, and moved from the origin to (x0, y0)."""
    cosine, sine = math.cos(angle) * scale, math.sin(angle) * scale
    return [(x0 + cosine * x - sine * y, y0 + sine * x + cosine * y) for x, y in points]


def tinted(colour: Colour, *tint: float) -> Colour:
    """Multiply each channel of a colour by a factor; a single factor applies to all three."""
    factors = tint * 3 if len(tint) == 1 else tint
    red, green, blue = (min(255, round(channel * by)) for channel, by in zip(colour, factors, strict=True))
    return red, green, blue


def pixel_box(points: Sequence[Point], image_size: int, before: float, behind: float) -> list[int]:
    """Return the smallest whole-pixel box `[x, y, w, h]` that holds points, cut at the image's edge.

    Args:
        points: in pixels.
        image_size: side of the image in pixels.
        before: pixels that the drawn figure extends beyond the points to the left and upwards.
        behind: pixels that it extends to the right and downwards.
    """
    corner = [max(0, math.floor(min(values) - before)) for values in zip(*points, strict=True)]
    end = [min(image_size, math.ceil(max(values) + behind)) for values in zip(*points, strict=True)]
    return [*corner, end[0] - corner[0], end[1] - corner[1]]


def png(image: Image.Image) -> bytes:
    """Return an image as PNG bytes.

    The pixels are the same on all machines. The bytes are the same for the same version of Pillow's zlib.
    """
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def draw(scene: Scene, image_size: int = 64) -> Image.Image:
    """Draw a scene, anti-aliased.

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
        pen.polygon(_placed(_OUTLINES[item.shape], item, side), fill=tinted(COLOURS[item.colour], item.shade))
        if item.shape == "ring":
            pen.polygon(_placed(_circle(0.27), item, side), fill=background)
    return canvas.reduce(SUPERSAMPLING)


def encode(scene: Scene, image_size: int = 64) -> bytes:
    """Draw a scene and return it as PNG bytes, see `png`."""
    return png(draw(scene, image_size))


def box(item: SceneObject, image_size: int = 64) -> list[int]:
    """Return the smallest whole-pixel box `[x, y, w, h]` that holds all of an object.

    Args:
        item: the object.
        image_size: side of the image in pixels.
    """
    # The rasterizer colours every sub-pixel that an edge touches, up to one beyond the geometric edge.
    slack = 1.0 / SUPERSAMPLING
    return pixel_box(_placed(_OUTLINES[item.shape], item, image_size), image_size, slack / 2, slack)


def _placed(points: Iterable[Point], item: SceneObject, side: int) -> list[Point]:
    return placed(points, item.x * side, item.y * side, math.radians(item.angle), item.extent * side)


_TURNS = [2 * math.pi * step / 64 for step in range(64)]


def _circle(radius: float) -> list[Point]:
    return [(radius * math.cos(turn), radius * math.sin(turn)) for turn in _TURNS]


def _star() -> list[Point]:
    corners = [(0.50 if step % 2 == 0 else 0.22, math.pi * (step / 5 - 0.5)) for step in range(10)]
    return [(radius * math.cos(turn), radius * math.sin(turn)) for radius, turn in corners]


def _heart(t: float) -> Point:
    # The usual heart curve: x = 16 sin^3 t, y = 13 cos t - 5 cos 2t - 2 cos 3t - cos 4t.
    y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
    return 16 * math.sin(t) ** 3 * 0.0285, -(y + 2.5) * 0.0285


# Around the origin, in a square of side 1 even when slightly rotated.
_OUTLINES: dict[str, list[Point]] = {
    "circle": _circle(0.48),
    "square": [(-0.43, -0.43), (0.43, -0.43), (0.43, 0.43), (-0.43, 0.43)],
    "triangle": [(0.0, -0.44), (0.45, 0.40), (-0.45, 0.40)],
    "star": _star(),
    "heart": [_heart(turn) for turn in _TURNS],
    "diamond": [(0.0, -0.50), (0.34, 0.0), (0.0, 0.50), (-0.34, 0.0)],
    "cross": [
        *((-0.155, -0.46), (0.155, -0.46), (0.155, -0.155), (0.46, -0.155), (0.46, 0.155), (0.155, 0.155)),
        *((0.155, 0.46), (-0.155, 0.46), (-0.155, 0.155), (-0.46, 0.155), (-0.46, -0.155), (-0.155, -0.155)),
    ],
    "ring": _circle(0.49),
}

"""What both kinds of scenes are drawn with: figures put in their place, shades, boxes, PNG."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence

from PIL import Image

Point = tuple[float, float]
Colour = tuple[int, int, int]

#: Sub-pixels a pixel, on each side.
SUPERSAMPLING = 4


def placed(points: Iterable[Point], x0: float, y0: float, angle: float, scale: float) -> list[Point]:
    """Returns points turned by an angle (radians), scaled, and moved from the origin to (x0, y0)."""
    cosine, sine = math.cos(angle) * scale, math.sin(angle) * scale
    return [(x0 + cosine * x - sine * y, y0 + sine * x + cosine * y) for x, y in points]


def tinted(colour: Colour, *tint: float) -> Colour:
    """Returns a colour with each channel brighter or darker by a factor; one factor is for all three."""
    factors = tint * 3 if len(tint) == 1 else tint
    red, green, blue = (min(255, round(channel * by)) for channel, by in zip(colour, factors, strict=True))
    return red, green, blue


def pixel_box(points: Sequence[Point], image_size: int, before: float, behind: float) -> list[int]:
    """Returns the smallest whole-pixel box `[x, y, w, h]` that holds points, cut at the image's edge.

    Args:
        points: in pixels.
        image_size: side of the image in pixels.
        before, behind: pixels that what is drawn reaches beyond the points, left and up, right and down.
    """
    left = max(0, math.floor(min(x for x, _ in points) - before))
    top = max(0, math.floor(min(y for _, y in points) - before))
    right = min(image_size, math.ceil(max(x for x, _ in points) + behind))
    bottom = min(image_size, math.ceil(max(y for _, y in points) + behind))
    return [left, top, right - left, bottom - top]


def png(image: Image.Image) -> bytes:
    """Returns an image as PNG bytes.

    The pixels are the same everywhere; the bytes are too as long as the zlib of Pillow is.
    """
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()

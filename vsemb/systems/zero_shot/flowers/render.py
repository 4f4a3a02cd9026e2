"""Drawing of a flower, and which of its parts can be seen."""

from __future__ import annotations

import functools
import math

from PIL import Image, ImageDraw

from vsemb.data.synthetic.render import SUPERSAMPLING, Colour, Point, pixel_box, placed, tinted
from vsemb.systems.zero_shot.flowers.world import BACKGROUNDS, Flower, Leaf

_PETALS: dict[str, Colour] = {
    "white": (246, 246, 242),
    "yellow": (250, 214, 40),
    "orange": (248, 134, 24),
    "red": (222, 34, 40),
    "pink": (248, 146, 196),
    "purple": (142, 58, 196),
    "blue": (48, 92, 226),
    "burgundy": (122, 14, 54),
}
_CENTRES: dict[str, Colour] = {
    "yellow": (252, 216, 32),
    "white": (250, 250, 246),
    "black": (24, 20, 22),
    "green": (86, 178, 62),
}
_LEAF: Colour = (72, 150, 58)
_DARK_MARK: Colour = (92, 16, 72)
_PALE_MARK: Colour = (252, 240, 206)
_PALE_PETALS = ("white", "yellow", "orange", "pink")
_CENTRE_RADIUS = {"small": 0.2, "large": 0.4}

# Minimum share of its outline that a visible leaf shows.
_SEEN = 0.6


def draw(flower: Flower, image_size: int = 64) -> Image.Image:
    """Draw a flower with anti-aliasing.

    Args:
        flower: the flower.
        image_size: side of the image in pixels; default 64.

    Returns:
        RGB image of `image_size` x `image_size`.
    """
    side = image_size * SUPERSAMPLING
    behind = BACKGROUNDS[flower.background]
    canvas = Image.new("RGB", (side, side), behind)
    pen = ImageDraw.Draw(canvas)
    for x, y, radius, brightness in flower.blurs:
        _disc(pen, x * side, y * side, radius * side, tinted(behind, brightness))
    petal_tint, centre_tint, leaf_tint = flower.tints
    _draw_green(pen, flower, side, leaf_tint)
    fill = tinted(_PETALS[flower.parts["petal colour"]], *petal_tint)
    for place in range(flower.petals):
        _draw_petal(pen, flower, place, side, fill)
    radius = _CENTRE_RADIUS[flower.parts["centre size"]] * flower.radius * side
    fill = tinted(_CENTRES[flower.parts["centre colour"]], *centre_tint)
    rim = max(2.0, 0.045 * flower.radius * side)
    _disc(pen, flower.x * side, flower.y * side, radius + rim, tinted(fill, 0.55))
    _disc(pen, flower.x * side, flower.y * side, radius, fill)
    return canvas.reduce(SUPERSAMPLING)


def box(flower: Flower, image_size: int = 64) -> list[int]:
    """Return the bounding box of the petals, clipped to the image.

    Args:
        flower: the flower.
        image_size: side of the image in pixels; default 64.

    Returns:
        [x, y, width, height] in whole pixels.
    """
    points = [point for place in range(flower.petals) for point in _petal(flower, place, image_size)]
    # The outline of a petal is drawn on both sides of its edge, in whole sub-pixels.
    slack = _line_width(flower, image_size) / 2 + 1.5 / SUPERSAMPLING
    return pixel_box(points, image_size, slack, slack)


def visible(flower: Flower) -> dict[str, str]:
    """Return the visible parts: all, except the leaf if both leaves are out of view.

    A leaf is visible if most of its outline is inside the image and outside the petals.
    """
    seen = dict(flower.parts)
    if not any(_share_seen(flower, leaf) >= _SEEN for leaf in flower.leaves):
        del seen["leaf shape"]
    return seen


def _share_seen(flower: Flower, leaf: Leaf) -> float:
    points = placed(_leaf_outline(flower.parts["leaf shape"]), leaf.x, leaf.y, leaf.angle, leaf.length)
    inside = [(x, y) for x, y in points if 0 <= x <= 1 and 0 <= y <= 1]
    seen = [(x, y) for x, y in inside if math.hypot(x - flower.x, y - flower.y) > flower.radius]
    return len(seen) / len(points)


def _draw_green(pen: ImageDraw.ImageDraw, flower: Flower, side: int, tint: tuple[float, float, float]) -> None:
    green = tinted(_LEAF, *tint)
    dark = tinted(green, 0.68)
    stem = [(flower.x * side, flower.y * side), (flower.foot * side, float(side))]
    pen.line(stem, fill=tinted(green, 0.85), width=max(1, round(0.032 * side)))
    width = max(1, round(0.012 * side))
    for leaf in flower.leaves:
        x, y = leaf.x * side, leaf.y * side
        outline = _leaf_outline(flower.parts["leaf shape"])
        points = placed(outline, x, y, leaf.angle, leaf.length * side)
        pen.polygon(points, fill=green)
        pen.line([*points, points[0]], fill=dark, width=width)


def _draw_petal(pen: ImageDraw.ImageDraw, flower: Flower, place: int, side: int, fill: Colour) -> None:
    marking, colour = flower.parts["petal marking"], flower.parts["petal colour"]
    mark = _DARK_MARK if colour in _PALE_PETALS else _PALE_MARK
    points = _petal(flower, place, side)
    pen.polygon(points, fill=fill)
    figures = _MARKS[marking](flower.parts["petal shape"], flower.petals) if marking in _MARKS else ()
    for figure in figures:
        drawn = _on_petal(flower, place, side, figure)
        if len(drawn) == 1:
            _disc(pen, *drawn[0], 0.075 * flower.radius * side, mark)
        else:
            pen.line(drawn, fill=mark, width=max(1, round(0.06 * flower.radius * side)))
    edge = mark if marking == "edged" else tinted(fill, 0.72)
    width = max(1, round(_line_width(flower, side)))
    pen.line([*points, points[0], points[1]], fill=edge, width=width, joint="curve")


def _line_width(flower: Flower, side: float) -> float:
    width = 0.13 if flower.parts["petal marking"] == "edged" else 0.045
    return width * flower.radius * side


def _petal(flower: Flower, place: int, side: float) -> list[Point]:
    return _on_petal(flower, place, side, _petal_outline(flower.parts["petal shape"], flower.petals))


def _on_petal(flower: Flower, place: int, side: float, figure: tuple[Point, ...]) -> list[Point]:
    """Place a figure on one of the petals."""
    angle = flower.angle + 2 * math.pi * (place + flower.turns[place]) / flower.petals
    scale = flower.radius * flower.stretches[place] * side
    return placed(figure, flower.x * side, flower.y * side, angle, scale)


def _disc(pen: ImageDraw.ImageDraw, x: float, y: float, radius: float, fill: Colour) -> None:
    pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)


# Petals and leaves point along x, from 0 at the centre (or the stem) to 1 at the tip.


def _half_width(shape: str, count: int) -> float:
    """Return the half-width of a petal at its widest point: neighbours may overlap a little but can be counted."""
    if shape == "narrow":
        return 0.12
    room = 0.64 * math.tan(math.pi / count)
    return min(0.36, room) if shape == "pointed" else min(0.4, room)


@functools.cache
def _petal_outline(shape: str, count: int) -> tuple[Point, ...]:
    width = _half_width(shape, count)
    if shape == "pointed":
        upper = [(0.08, 0.3 * width), (0.25, 0.8 * width), (0.42, width), (0.6, 0.78 * width)]
        upper += [(0.8, 0.42 * width), (1.0, 0.0)]
    elif shape == "narrow":
        upper = [(0.0, 0.7 * width), (0.3, width)]
        turns = [math.pi * (0.5 - step / 12) for step in range(7)]
        upper += [(1 - width + width * math.cos(turn), width * math.sin(turn)) for turn in turns]
    elif shape == "heart-shaped":
        upper = [(0.08, 0.25 * width), (0.45, 0.8 * width), (0.66, width)]
        turns = [math.pi * (0.4 - step / 10) for step in range(9)]
        lobe = [(0.82 + 0.18 * math.cos(turn), 0.52 * width + 0.5 * width * math.sin(turn)) for turn in turns]
        upper += [(x, y) for x, y in lobe if y > 0.05 * width]
        # If there are many petals, each is narrow, and a deep notch would split it into two.
        upper += [({3: 0.68, 4: 0.7, 5: 0.77}.get(count, 0.84), 0.0)]
    else:
        turns = [math.pi * (1 - step / 16) for step in range(17)]
        upper = [(0.53 + 0.47 * math.cos(turn), width * math.sin(turn)) for turn in turns]
    return (*upper, *((x, -y) for x, y in reversed(upper) if y > 1e-9))


def _spots(shape: str, count: int) -> tuple[tuple[Point, ...], ...]:
    width = _half_width(shape, count)
    if shape == "narrow" or count == 8:
        return (((0.56, 0.0),), ((0.8, 0.0),))
    out = 0.72 if shape == "heart-shaped" else 0.66
    return (((0.54, 0.0),), ((out, 0.5 * width),), ((out, -0.5 * width),))


def _stripes(shape: str, count: int) -> tuple[tuple[Point, ...], ...]:
    width = _half_width(shape, count)
    end = 0.62 if shape == "heart-shaped" else 0.9
    middle = ((0.2, 0.0), (end, 0.0))
    if shape == "narrow" or count == 8:
        return (middle,)
    return (
        middle,
        ((0.24, 0.25 * width), (0.74, 0.5 * width)),
        ((0.24, -0.25 * width), (0.74, -0.5 * width)),
    )


_MARKS = {"spotted": _spots, "striped": _stripes}


@functools.cache
def _leaf_outline(shape: str) -> tuple[Point, ...]:
    if shape == "grass-like":
        upper = [(0.0, 0.06), (0.4, 0.075), (0.8, 0.05), (1.25, 0.0)]
    elif shape == "lobed":
        # Three discs, one ahead and one to either side, joined at the stalk.
        points: list[Point] = [(0.0, 0.03)]
        for x, y in ((0.42, 0.27), (0.76, 0.0), (0.42, -0.27)):
            facing = math.atan2(y, x - 0.45)
            turns = [facing + math.pi * (0.7 - step * 0.2) for step in range(8)]
            points += [(x + 0.24 * math.cos(turn), y + 0.24 * math.sin(turn)) for turn in turns]
        return (*points, (0.0, -0.03))
    elif shape == "jagged":
        teeth = 5
        upper = [(0.0, 0.0)]
        for tooth in range(teeth):
            low, high = 0.05 + tooth * 0.19, 0.05 + (tooth + 0.75) * 0.19
            upper += [(low, 0.5 * _lens(low)), (high, 0.12 + _lens(high))]
        upper += [(1.0, 0.0)]
    else:
        turns = [math.pi * (1 - step / 12) for step in range(13)]
        upper = [(0.5 + 0.5 * math.cos(turn), 0.23 * math.sin(turn)) for turn in turns]
    return (*upper, *((x, -y) for x, y in reversed(upper) if y > 1e-9))


def _lens(x: float) -> float:
    return 0.8 * x * (1 - x)

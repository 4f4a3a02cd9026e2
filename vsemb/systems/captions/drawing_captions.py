"""Drawing what was written of the regions of an image: boxes, and beside them their captions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vsemb.errors import invalid_argument
from vsemb.runs.pictures import PAPER, Font, Rectangle, cut_text, drawable, pixel_box
from vsemb.systems.regions.drawing import COLOURS, draw_outlines, scaled_for_drawing


def draw_captions(
    image: Image.Image, boxes: Sequence[Rectangle], texts: Sequence[str], *, side: int | None = None
) -> Image.Image:
    """Draws an image with boxes, and to its right their texts in the boxes' colours.

    A line leads from the centre of a box to its text (Karpathy and Fei-Fei 2015, figure 7). Texts stand on
    paper, not on the image, so that they can be read whatever it shows; they keep the order of the boxes from
    top to bottom, and where they need more room than the image is high, the picture gets higher.

    Args:
        image: RGB.
        boxes: x, y, width and height in pixels of the image.
        texts: of each box.
        side: the longer side of the image in the picture, in pixels; None for its own between 512 and 1280.

    Returns:
        RGB, of another size than the image.

    Raises:
        InvalidArgumentError: if the numbers of boxes and texts differ, or a side is below 64.

    Example:

    >>> black = Image.new("RGB", (64, 48))
    >>> draw_captions(black, [(4, 4, 20, 30)], ["a dog in the dark"]).size
    (716, 384)
    """
    if len(boxes) != len(texts):
        raise invalid_argument("texts", len(texts), f"as many as boxes ({len(boxes)})")
    scaled, side = scaled_for_drawing(image, side)
    size = max(14, side // 36) if side >= 256 else max(9, side // 18)
    font, line = ImageFont.load_default(size=size), max(2, size // 6)
    column, gap = side * 2 // 5, size // 2
    whole = np.tile(np.array(image.size, np.float64), 2)
    places = [pixel_box(np.array(box) / whole, scaled.size) for box in boxes]
    colours = [COLOURS[number % len(COLOURS)] for number in range(len(boxes))]
    blocks = [_wrapped(text, font, column - 3 * gap) for text in texts]
    heights = [round(1.3 * size) * len(block) for block in blocks]
    tops, bottom = _stacked([y + height // 2 for _, y, _, height in places], heights, scaled.height, gap)
    picture = Image.new("RGB", (scaled.width + column, max(scaled.height, bottom)), PAPER)
    draw_outlines(scaled, list(zip(places, colours, strict=True)), line)
    picture.paste(scaled, (0, 0))
    pen = ImageDraw.Draw(picture)
    left = scaled.width + 2 * gap
    for (x, y, width, height), colour, block, top, high in zip(places, colours, blocks, tops, heights, strict=True):
        centre, end = (x + width // 2, y + height // 2), (left - gap // 2, top + high // 2)
        for ground, thick in (("white", line + 2), (colour, line)):
            pen.line((centre, end), ground, thick)
            pen.circle(centre, 1.5 * thick, ground)
        for number, row in enumerate(block):
            pen.text((left, top + number * round(1.3 * size)), row, colour, font)
    return picture


def _wrapped(text: str, font: Font, width: float) -> list[str]:
    """Breaks a text into lines that fit a width, one at least; a word that is wider is cut."""
    lines: list[str] = []
    for word in drawable(text).split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(cut_text(word, font, width))
    return lines or [""]


def _stacked(centres: Sequence[int], heights: Sequence[int], limit: int, gap: int) -> tuple[list[int], int]:
    """Stacks blocks near heights that they belong to, in their order, none on another.

    Args:
        centres: where each would be, by its middle.
        heights: of each.
        limit: the bottom, if they fit above it.
        gap: between two of them, above the first and below the last.

    Returns:
        tops: of each.
        bottom: below all.
    """
    order = np.argsort(centres, kind="stable").tolist()
    tops, bottom = [0] * len(order), gap
    for number in order:
        tops[number] = max(centres[number] - heights[number] // 2, bottom)
        bottom = tops[number] + heights[number] + gap
    # What hangs below the limit moves up again, as far as there is room.
    room = sum(heights) + gap * (len(heights) + 1)
    end = max(min(bottom, limit), room)
    lowest = end
    for number in reversed(order):
        tops[number] = min(tops[number], lowest - gap - heights[number])
        lowest = tops[number]
    return tops, end

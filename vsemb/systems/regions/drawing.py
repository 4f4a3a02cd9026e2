"""Drawings of alignments: an image with its boxes, and the sentence below it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vsemb.drawing.pictures import INK, PAPER, Font, Rectangle, cut_text, decimals, drawable, pixel_box, scaled_to
from vsemb.errors import invalid_argument
from vsemb.systems.regions.alignment import runs

#: Minimum share of the sentence's best score. Words below it are grey and add no box.
FADE = 0.25

_GREY = "#a29c92"
#: Colours dark enough to be read on the background; neighbours differ in hue.
COLOURS = (
    *("#c2281d", "#1a5fb4", "#1d7a35", "#8e2fa8", "#a85400"),
    *("#00707a", "#b0185f", "#5f6300", "#4a45cf", "#7a4a2b"),
)
_SMALLEST, _LARGEST = 512, 1280


def draw_alignment(
    image: Image.Image,
    boxes: np.ndarray,
    words: Sequence[str],
    regions: Sequence[int] | np.ndarray,
    scores: Sequence[float] | np.ndarray,
    *,
    fade: float = FADE,
    side: int | None = None,
) -> Image.Image:
    """Draw an image with the boxes of words, and below it the words in the colours of their boxes.

    Words with low scores are grey and add no box, to reduce clutter (Karpathy and Fei-Fei 2015, figure 5). Boxes and
    phrases show the number of their region, so the drawing does not depend on colours alone.

    Args:
        image: RGB image.
        boxes: (regions, 4) [x, y, width, height] as fractions of the image.
        words: words of the sentence.
        regions: row of the box per word, -1 for words without a box.
        scores: score of each word with its box.
        fade: words below this share of the best score, default 0.25, are grey, and so are words with scores <= 0.
        side: longer side of the drawn image in pixels; None for its own side, limited to 512 to 1280.

    Returns:
        RGB picture: the drawn image and the text below it.

    Raises:
        InvalidArgumentError: if the numbers of words, regions and scores differ, or a side is below 64.

    Example:

    >>> black = Image.new("RGB", (64, 48))
    >>> boxes = np.array([[0, 0, 1, 1], [0.1, 0.1, 0.5, 0.5]])
    >>> draw_alignment(black, boxes, ["a", "dog"], [0, 1], [0.1, 2.0]).width
    512
    """
    if not len(words) == len(regions) == len(scores):
        raise invalid_argument("words", len(words), f"as many as regions ({len(regions)}) and scores")
    scaled, side = scaled_for_drawing(image, side)
    values = [float(score) for score in scores]
    best = max(values, default=0.0)
    shown = [value > 0 and value >= fade * best for value in values]
    used: dict[int, None] = {}
    for region, seen in zip(regions, shown, strict=True):
        if seen and region >= 0:
            used[int(region)] = None
    colours = {region: COLOURS[position % len(COLOURS)] for position, region in enumerate(used)}
    size = max(14, side // 44) if side >= _SMALLEST // 2 else max(9, side // 18)
    _draw_boxes(scaled, boxes, colours, size)
    # The text has a minimum width, for narrow images.
    width = max(scaled.width, side * 3 // 4)
    text = _Text(width, size)
    digits = decimals(values)
    for region, start, length in runs(regions):
        phrase = slice(start, start + length)
        colour = colours.get(region) if any(shown[phrase]) else None
        text.phrase(
            list(words[phrase]),
            [f"{value:.{digits}f}" for value in values[phrase]],
            shown[phrase],
            (str(region), colour) if colour else None,
        )
    picture = Image.new("RGB", (width, scaled.height + text.height), PAPER)
    picture.paste(scaled, ((width - scaled.width) // 2, 0))
    text.draw(ImageDraw.Draw(picture), scaled.height)
    return picture


def scaled_for_drawing(image: Image.Image, side: int | None) -> tuple[Image.Image, int]:
    """Scale an image for drawing on it.

    Args:
        image: image of any mode.
        side: longer side in pixels; None for its own side, limited to 512 to 1280.

    Returns:
        The scaled RGB image, and its longer side in pixels.

    Raises:
        InvalidArgumentError: if the side is below 64.
    """
    side = min(max(*image.size, _SMALLEST), _LARGEST) if side is None else side
    if side < 64:
        raise invalid_argument("side", side, "a number of pixels >= 64")
    return scaled_to(image, side), side


def _draw_boxes(image: Image.Image, boxes: np.ndarray, colours: dict[int, str], size: int) -> None:
    """Draw boxes, each with the number of its region in the first free corner."""
    pixels = {region: pixel_box(boxes[region], image.size) for region in colours}
    draw_outlines(image, [(pixels[region], colour) for region, colour in colours.items()], max(2, size // 6))
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(size=size)
    placed: list[Rectangle] = []
    for region, (x, y, wide, high) in pixels.items():
        width, height = _chip(font, str(region))
        right, bottom = x + wide - width, y + high - height
        corners = [(x, y), (right, y), (x, bottom), (right, bottom), (x, y + height), (right, y + height)]
        tags = [
            (max(0, min(left, image.width - width)), max(0, min(top, image.height - height)), width, height)
            for left, top in corners
        ]
        free = (tag for tag in tags if not any(_overlap(tag, other) for other in placed))
        tag = next(free, tags[0])
        _draw_chip(pen, tag[0], tag[1], font, str(region), colours[region])
        placed.append(tag)


def _overlap(one: Rectangle, other: Rectangle) -> bool:
    return all(one[axis] < other[axis] + other[axis + 2] and other[axis] < one[axis] + one[axis + 2] for axis in (0, 1))


def draw_outlines(image: Image.Image, boxes: Sequence[tuple[Rectangle, str]], line: int) -> None:
    """Draw boxes on an image, each in its colour with a white edge, so that they are visible on any background.

    Args:
        image: RGB image, changed in place.
        boxes: x, y, width and height in pixels, and a colour.
        line: width of the lines in pixels.
    """
    pen = ImageDraw.Draw(image)
    # Large boxes are drawn first, so that small boxes inside stay visible.
    for (x, y, width, height), shown in sorted(boxes, key=_negative_area):
        for grown, colour, thick in ((1, "white", line + 2), (0, shown, line)):
            left, top = max(x - grown, 0), max(y - grown, 0)
            right = min(x + width + grown, image.width) - 1
            bottom = min(y + height + grown, image.height) - 1
            pen.rectangle((left, top, max(right, left), max(bottom, top)), outline=colour, width=thick)


def _negative_area(box: tuple[Rectangle, str]) -> int:
    (_, _, width, height), _ = box
    return -width * height


def _chip(font: Font, text: str) -> tuple[int, int]:
    """Return the width and height of a number with its coloured background, in pixels."""
    height = math.ceil(font.getbbox("0123456789")[3]) + 4
    return max(math.ceil(font.getlength(text)) + 8, height), height


def _draw_chip(pen: ImageDraw.ImageDraw, x: int, y: int, font: Font, text: str, colour: str) -> None:
    width, height = _chip(font, text)
    pen.rounded_rectangle((x, y, x + width - 1, y + height - 1), height // 4, colour, "white")
    pen.text((x + width / 2, y + height / 2), text, "white", font, "mm")


class _Text:
    """Words below an image, wrapped into lines.

    Args:
        width: width of the lines in pixels.
        size: font size in pixels.
    """

    def __init__(self, width: int, size: int) -> None:
        self._font = ImageFont.load_default(size=size)
        self._small = ImageFont.load_default(size=max(8, size * 7 // 10))
        self._size, self._limit, self._margin = size, width - size, size // 2
        self._gap, self._line = max(3, size // 3), round(2.6 * size)
        self._x, self._row = self._margin, 0
        # Drawing function, x, y, and its further arguments.
        self._jobs: list[tuple[Callable[..., None], int, int, tuple[Any, ...]]] = []

    @property
    def height(self) -> int:
        """Height of all lines with margins, in pixels; 0 without words."""
        return (self._row + 1) * self._line + 2 * self._margin if self._jobs else 0

    def phrase(self, words: list[str], scores: list[str], shown: list[bool], region: tuple[str, str] | None) -> None:
        """Add the words of one phrase.

        Args:
            words: words of the phrase.
            scores: score of each word, as text.
            shown: whether each word has the colour of its region; other words are grey.
            region: number and colour; None for a phrase without a box.
        """
        if region is not None:
            chip, _ = _chip(self._small, region[0])
            # The number stays on the line of its first word.
            self._fit(chip + self._gap + self._width(words[0], scores[0]))
            self._add(_draw_chip, self._small, *region)
            self._x += chip + self._gap
        for position, (word, score, strong) in enumerate(zip(words, scores, shown, strict=True)):
            if position or region is None:
                self._fit(self._width(word, score))
            text = cut_text(word, self._font, max(self._limit - self._x + self._margin, 3 * self._size))
            gap = self._gap if position < len(words) - 1 else 0
            self._add(self._draw_word, text, score, None if region is None else region[1], strong, gap)
            self._x += math.ceil(self._width(text, score)) + self._gap
        self._x += self._gap

    def draw(self, pen: ImageDraw.ImageDraw, top: int) -> None:
        """Draw all lines.

        Args:
            pen: draws on the picture.
            top: y of the first line, without margin, in pixels.
        """
        for draw, x, y, arguments in self._jobs:
            draw(pen, x, top + self._margin + y, *arguments)

    def _width(self, word: str, score: str) -> float:
        return max(self._font.getlength(drawable(word)), self._small.getlength(score))

    def _fit(self, width: float) -> None:
        if self._x > self._margin and self._x + width > self._limit + self._margin:
            self._x, self._row = self._margin, self._row + 1

    def _add(self, draw: Callable[..., None], *arguments: Any) -> None:
        self._jobs.append((draw, self._x, self._row * self._line, arguments))

    def _draw_word(
        self, pen: ImageDraw.ImageDraw, x: int, y: int, word: str, score: str, colour: str | None, shown: bool, gap: int
    ) -> None:
        """Draw a word with its score below it, underlined up to the next word in the colour of its box."""
        pen.text((x, y), word, colour if colour is not None and shown else _GREY, self._font)
        baseline = y + round(1.35 * self._size)
        if colour is not None:
            end = x + self._width(word, score) + gap
            pen.line((x, baseline, end, baseline), colour, max(1, self._size // 10))
        pen.text((x, baseline + self._size // 6), score, INK if shown else _GREY, self._small)

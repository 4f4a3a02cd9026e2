"""Drawing which words describe which regions: an image with its boxes, and the sentence below it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vsemb.errors import invalid_argument
from vsemb.runs.pictures import (
    INK,
    PAPER,
    Font,
    Rectangle,
    cut_text,
    decimals,
    drawable,
    pixel_box,
    scaled_to,
)

#: A word that scores less than this share of the best word of its sentence is grey, and alone has no box.
FADE = 0.25

_GREY = "#a29c92"
#: Dark enough to be read on the paper, each of another hue than its neighbours.
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
    """Draws an image with the boxes that have words, and below it the words in the colours of their boxes.

    Words that score low are grey and add no box, to reduce clutter (Karpathy and Fei-Fei 2015, figure 5).
    A box and the words of a phrase carry the number of their region, so that colours need not be told apart.

    Args:
        image: RGB.
        boxes: (regions, 4) [x, y, width, height] as fractions of the image.
        words: the words of the sentence.
        regions: for each word the row of its box, -1 for none.
        scores: for each word its score with that box.
        fade: a word is grey that scores less than this share of the best word, or nothing above zero.
        side: the longer side of the image in the picture, in pixels; None for its own between 512 and 1280.

    Returns:
        RGB, of another size than the image.

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
    side = min(max(*image.size, _SMALLEST), _LARGEST) if side is None else side
    if side < 64:
        raise invalid_argument("side", side, "a number of pixels >= 64")
    shown = _shown(scores, fade)
    used = dict.fromkeys(int(region) for region, seen in zip(regions, shown, strict=True) if seen and region >= 0)
    colours = {region: COLOURS[position % len(COLOURS)] for position, region in enumerate(used)}
    scaled = scaled_to(image, side)
    size = max(14, side // 44) if side >= _SMALLEST // 2 else max(9, side // 18)
    _draw_boxes(scaled, boxes, colours, size)
    # A thin image must not squeeze the words.
    width = max(scaled.width, side * 3 // 4)
    text = _Text(width, size)
    digits = decimals(scores)
    for region, positions in groupby(range(len(words)), key=lambda position: int(regions[position])):
        phrase = list(positions)
        colour = colours.get(region) if any(shown[position] for position in phrase) else None
        text.phrase(
            [words[position] for position in phrase],
            [f"{float(scores[position]):.{digits}f}" for position in phrase],
            [shown[position] for position in phrase],
            (str(region), colour) if colour else None,
        )
    picture = Image.new("RGB", (width, scaled.height + text.height), PAPER)
    picture.paste(scaled, ((width - scaled.width) // 2, 0))
    text.draw(ImageDraw.Draw(picture), scaled.height)
    return picture


def _shown(scores: Sequence[float] | np.ndarray, fade: float) -> list[bool]:
    best = max(map(float, scores), default=0.0)
    return [score > 0 and score >= fade * best for score in map(float, scores)]


def _draw_boxes(image: Image.Image, boxes: np.ndarray, colours: dict[int, str], size: int) -> None:
    pixels = {region: pixel_box(boxes[region], image.size) for region in colours}
    draw_outlines(image, [(pixels[region], colour) for region, colour in colours.items()], max(2, size // 6))
    pen = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=size)
    placed: list[Rectangle] = []
    for region, box in pixels.items():
        placed.append(_draw_tag(pen, font, str(region), colours[region], box, image.size, placed))


def draw_outlines(image: Image.Image, boxes: Sequence[tuple[Rectangle, str]], line: int) -> None:
    """Draws boxes on an image, each in its colour with a white edge, so that they show on any ground.

    Args:
        image: RGB; it is drawn on.
        boxes: x, y, width and height in pixels, and a colour.
        line: width of the lines in pixels.
    """
    pen = ImageDraw.Draw(image)
    # Large ones first: a small one inside stays whole.
    for (x, y, width, height), shown in sorted(boxes, key=lambda each: -each[0][2] * each[0][3]):
        for grown, colour, thick in ((1, "white", line + 2), (0, shown, line)):
            left, top = max(x - grown, 0), max(y - grown, 0)
            right, bottom = (
                min(at + length + grown, limit) - 1
                for at, length, limit in ((x, width, image.width), (y, height, image.height))
            )
            pen.rectangle((left, top, max(right, left), max(bottom, top)), outline=colour, width=thick)


def _draw_tag(
    pen: ImageDraw.ImageDraw,
    font: Font,
    text: str,
    colour: str,
    box: Rectangle,
    size: tuple[int, int],
    placed: list[Rectangle],
) -> Rectangle:
    """Writes a region's number in the first corner of its box where no other number stands."""
    width, height = _chip(font, text)
    x, y, right, bottom = box[0], box[1], box[0] + box[2] - width, box[1] + box[3] - height
    corners = [(x, y), (right, y), (x, bottom), (right, bottom), (x, y + height), (right, y + height)]
    inside = [(max(0, min(left, size[0] - width)), max(0, min(top, size[1] - height))) for left, top in corners]
    free = [
        (left, top)
        for left, top in inside
        if all(
            left >= other[0] + other[2]
            or other[0] >= left + width
            or top >= other[1] + other[3]
            or other[1] >= top + height
            for other in placed
        )
    ]
    left, top = (free or inside)[0]
    _draw_chip(pen, font, text, colour, left, top)
    return left, top, width, height


def _chip(font: Font, text: str) -> tuple[int, int]:
    """Returns the width and height of a number on its coloured ground."""
    height = math.ceil(font.getbbox("0123456789")[3]) + 4
    return max(math.ceil(font.getlength(text)) + 8, height), height


def _draw_chip(
    pen: ImageDraw.ImageDraw,
    font: Font,
    text: str,
    colour: str,
    x: int,
    y: int,
) -> None:
    width, height = _chip(font, text)
    pen.rounded_rectangle((x, y, x + width - 1, y + height - 1), height // 4, colour, "white")
    pen.text((x + width / 2, y + height / 2), text, "white", font, "mm")


class _Text:
    """The words below an image, broken into lines that fit its width.

    Args:
        width: of the lines, in pixels.
        size: of the letters, in pixels.
    """

    def __init__(self, width: int, size: int) -> None:
        self._font, self._small = (ImageFont.load_default(size=each) for each in (size, max(8, size * 7 // 10)))
        self._limit = width - size
        self._gap, self._left = max(3, size // 3), size // 2
        self._line = round(2.6 * size)
        self._x, self._row = self._left, 0
        self._jobs: list[Callable[[ImageDraw.ImageDraw, int], None]] = []
        self._margin = size // 2
        self._size = size

    @property
    def height(self) -> int:
        """Of all lines, with the margins; 0 without a word."""
        return (self._row + 1) * self._line + 2 * self._margin if self._jobs else 0

    def phrase(self, words: list[str], scores: list[str], shown: list[bool], region: tuple[str, str] | None) -> None:
        """Adds the words of one phrase.

        Args:
            words: they.
            scores: of each, as it is written.
            shown: whether each has the colour of its region; others are grey.
            region: number and colour, None for a phrase without a box.
        """
        if region is not None:
            chip, _ = _chip(self._small, region[0])
            # Never at the end of a line, away from its words.
            self._fit(chip + self._gap + self._width(words[0], scores[0]))
            self._add(self._chip_at, region, self._x)
            self._x += chip + self._gap
        for position, (word, score, colour) in enumerate(zip(words, scores, shown, strict=True)):
            if position or region is None:
                self._fit(self._width(word, score))
            room = max(self._limit - self._x + self._left, 3 * self._size)
            text = cut_text(word, self._font, room)
            self._add(self._word_at, (text, score, region, colour, position < len(words) - 1), self._x)
            self._x += math.ceil(self._width(text, score)) + self._gap
        self._x += self._gap

    def draw(self, pen: ImageDraw.ImageDraw, top: int) -> None:
        """Draws all lines below a height."""
        for job in self._jobs:
            job(pen, top + self._margin)

    def _width(self, word: str, score: str) -> float:
        return max(self._font.getlength(drawable(word)), self._small.getlength(score))

    def _fit(self, width: float) -> None:
        if self._x > self._left and self._x + width > self._limit + self._left:
            self._x, self._row = self._left, self._row + 1

    def _add(self, draw: Callable[..., None], what: tuple, x: int) -> None:
        y = self._row * self._line
        self._jobs.append(lambda pen, top: draw(pen, x, top + y, *what))

    def _chip_at(self, pen: ImageDraw.ImageDraw, x: int, y: int, text: str, colour: str) -> None:
        _draw_chip(pen, self._small, text, colour, x, y)

    def _word_at(
        self,
        pen: ImageDraw.ImageDraw,
        x: int,
        y: int,
        word: str,
        score: str,
        region: tuple[str, str] | None,
        shown: bool,
        more: bool,
    ) -> None:
        ink = region[1] if region is not None and shown else _GREY
        pen.text((x, y), word, ink, self._font)
        baseline = y + round(1.35 * self._size)
        if region is not None:
            end = x + self._width(word, score) + (self._gap if more else 0)
            pen.line((x, baseline, end, baseline), region[1], max(1, self._size // 10))
        pen.text((x, baseline + self._size // 6), score, INK if shown else _GREY, self._small)

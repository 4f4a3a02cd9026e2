"""Drawings of hyperbolic embeddings: a traversal, and histograms of distances to the root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vsemb.drawing.pictures import INK, PAPER, cut_text, scaled_to

_GREY = "#a29c92"
_COLOURS = ("#c2281d", "#1a5fb4", "#1d7a35", "#8e2fa8")
_SIDE, _TEXT, _GAP, _SIZE = 320, 560, 16, 15
_WIDTH, _HEIGHT, _BINS = 640, 320, 40


def draw_traversal(image: Image.Image, radius: float, texts: Sequence[tuple[float, str]]) -> Image.Image:
    """Draw an image, and beside it the texts on the way to the root, which is at the bottom.

    Args:
        image: RGB image.
        radius: distance of the image to the root.
        texts: distance to the root and text, in the order of the traversal; the last may be the root.

    Returns:
        RGB picture. Texts are at the heights of their distances, or below if these are closer than a line.

    Example:

    >>> draw_traversal(Image.new("RGB", (64, 48)), 1.0, [(1.0, "a dog on a beach"), (0.4, "a dog")]).size
    (944, 368)
    """
    line = round(1.6 * _SIZE)
    height = max(_SIDE, (len(texts) + 1) * line)
    picture = Image.new("RGB", (_SIDE + _TEXT + 4 * _GAP, height + 3 * _GAP), PAPER)
    small = scaled_to(image, _SIDE)
    picture.paste(small, (_GAP, _GAP))
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(size=_SIZE)
    x, top, bottom = _SIDE + 2 * _GAP, _GAP + line // 2, _GAP + height - line // 2
    pen.line((x, top, x, bottom), _GREY, 2)
    exact = [bottom - (bottom - top) * at / radius if radius else bottom for at, _ in texts]
    for (at, text), mark, y in zip(texts, exact, _spread(exact, line, bottom), strict=True):
        pen.ellipse((x - 4, mark - 4, x + 4, mark + 4), _COLOURS[0])
        pen.line((x, mark, x + _GAP, y), _GREY, 1)
        shown = cut_text(f"{at:.2f}  {text}", font, _TEXT)
        pen.text((x + _GAP + 4, y), shown, INK, font, "lm")
    return picture


def _spread(heights: Sequence[float], line: int, bottom: float) -> list[float]:
    """Move labels, whose heights increase, so that they are a line apart and end above the bottom."""
    lines = list(heights)
    for place in range(1, len(lines)):
        lines[place] = max(lines[place], lines[place - 1] + line)
    limit = bottom
    for place in reversed(range(len(lines))):
        lines[place] = min(lines[place], limit)
        limit = lines[place] - line
    return lines


def draw_histograms(distances: Mapping[str, np.ndarray]) -> Image.Image:
    """Draw histograms of distances to the root over each other, each with its mean.

    Args:
        distances: name -> (n,) distances, up to four names.

    Returns:
        RGB picture. The height of a bar is the share of the distances in its interval.

    Example:

    >>> draw_histograms({"images": np.ones(3), "texts": np.zeros(2)}).size
    (640, 320)
    """
    picture = Image.new("RGB", (_WIDTH, _HEIGHT), PAPER)
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(size=_SIZE)
    left, right, top, bottom = 2 * _GAP, _WIDTH - 2 * _GAP, 4 * _GAP, _HEIGHT - 3 * _GAP
    most = max(float(values.max()) for values in distances.values()) or 1.0
    shares = {name: np.histogram(values, _BINS, (0.0, most))[0] / len(values) for name, values in distances.items()}
    highest = max(share.max() for share in shares.values())
    for number, (name, share) in enumerate(shares.items()):
        colour, edges = _COLOURS[number], np.linspace(left, right, _BINS + 1)
        heights = bottom - (bottom - top) * share / highest
        outline = [(left, bottom)]
        for place, height in enumerate(heights):
            outline += [(edges[place], height), (edges[place + 1], height)]
        pen.line([*outline, (right, bottom)], colour, 2)
        mean = float(distances[name].mean())
        x = left + (right - left) * mean / most
        pen.line((x, top, x, bottom), colour, 1)
        pen.text((left + number * (right - left) / len(shares), _GAP), f"{name}, mean {mean:.3f}", colour, font, "lt")
    pen.line((left, bottom, right, bottom), INK, 1)
    for value, anchor, x in ((0.0, "lt", left), (most, "rt", right)):
        pen.text((x, bottom + 4), f"{value:.2f}", INK, font, anchor)
    pen.text(((left + right) / 2, bottom + 4), "distance to the root", INK, font, "mt")
    return picture

"""Pictures of captions of regions: every text is there, whole, and none stands on another."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageColor

from tests.raising import raises_argument
from vsemb.drawing.pictures import PAPER
from vsemb.systems.captions.region_captions import draw_captions, stack_blocks
from vsemb.systems.regions.drawing import COLOURS

WHITE = Image.new("RGB", (100, 80), "white")


def count(picture: Image.Image, colour: str) -> int:
    return int(np.all(np.asarray(picture) == ImageColor.getrgb(colour), axis=2).sum())


def test_boxes_and_texts_share_colours() -> None:
    picture = draw_captions(WHITE, [(10, 10, 30, 20), (50, 40, 40, 30)], ["a dog", "a red ball"], side=500)
    assert picture.size == (700, 400)
    image, text = picture.crop((0, 0, 500, 400)), picture.crop((520, 0, 700, 400))
    for colour in COLOURS[:2]:
        assert count(image, colour) > 500 and count(text, colour) > 20
    # The first box goes from pixel 50 to 200 and from 50 to 150, and its line from (125, 100) to the right.
    first = ImageColor.getrgb(COLOURS[0])
    assert picture.getpixel((100, 51)) == picture.getpixel((51, 60)) == picture.getpixel((300, 100)) == first
    assert picture.getpixel((100, 90)) == (255, 255, 255)


def test_texts_keep_the_order_of_the_boxes() -> None:
    """The second box is higher, and so is its text; texts of boxes at one height do not meet."""
    picture = draw_captions(WHITE, [(0, 60, 9, 9), (0, 2, 9, 9), (50, 60, 9, 9)], ["low", "high", "low too"])
    text = np.asarray(picture.crop((530, 0, *picture.size)))
    rows = [np.flatnonzero(np.any(np.all(text == ImageColor.getrgb(c), 2), 1)) for c in COLOURS[:3]]
    assert rows[1].max() < rows[0].min() and rows[0].max() < rows[2].min()


@pytest.mark.parametrize(
    ("size", "shown"),
    [((1, 1), 512), ((3000, 2), 1280), ((2, 3000), 1), ((800, 600), 800)],
    ids=["a pixel", "wide", "high", "usual"],
)
@pytest.mark.parametrize("texts", [[], ["word " * 60] * 9, ["x" * 3000], [""], ["\u0301\u4e2d\n\x07"]], ids=range(5))
def test_nothing_is_cut_off(size, shown, texts) -> None:
    """Whatever the image and the texts, the edges on the right and below are paper."""
    boxes = [(0, 0, *size)] * len(texts)
    picture = draw_captions(Image.new("RGB", size), boxes, texts)
    pixels, paper = np.asarray(picture), ImageColor.getrgb(PAPER)
    assert picture.width - shown > 200
    assert np.all(pixels[:, -4:] == paper)
    assert np.all(pixels[-2:, shown + 20 :] == paper)


def test_stacking() -> None:
    # Alone, each is where it belongs; together they move apart, in order, and stay above the bottom.
    assert stack_blocks([50], [20], 100, 5) == ([40], 65)
    assert stack_blocks([50, 48], [20, 20], 100, 5) == ([63, 38], 88)
    assert stack_blocks([95, 90], [20, 20], 100, 5) == ([75, 50], 100)
    # Where there is too little room, there is more of it.
    assert stack_blocks([95, 90], [60, 60], 100, 5) == ([70, 5], 135)
    assert stack_blocks([], [], 100, 5) == ([], 5)
    random = np.random.default_rng(1)
    for _ in range(50):
        heights = random.integers(1, 40, size=6).tolist()
        centres = random.integers(0, 200, size=6).tolist()
        tops, bottom = stack_blocks(centres, heights, 200, 3)
        order = np.argsort(centres, kind="stable")
        edges = [0, *(edge for each in order for edge in (tops[each], tops[each] + heights[each])), bottom]
        assert min(np.diff(edges)[::2]) >= 3 and bottom <= max(200, sum(heights) + 7 * 3)


def test_mistakes() -> None:
    with raises_argument("texts"):
        draw_captions(WHITE, [(0, 0, 9, 9)], [])
    with raises_argument("side"):
        draw_captions(WHITE, [], [], side=63)

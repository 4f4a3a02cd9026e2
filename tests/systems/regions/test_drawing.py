"""Pictures of alignments: what is drawn, what fits, and what no input may break."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageColor

from tests.raising import raises_argument
from vsemb.drawing import pictures
from vsemb.drawing.pictures import contact_sheet
from vsemb.systems.regions import drawing
from vsemb.systems.regions.drawing import draw_alignment

WHITE = Image.new("RGB", (64, 64), "white")
BOXES = np.array([[0, 0, 1, 1], [0.25, 0.25, 0.5, 0.25], [0.5, 0.5, 0.4, 0.4]], np.float32)
RED, BLUE = (ImageColor.getrgb(colour) for colour in drawing.COLOURS[:2])


def count(picture: Image.Image, colour: tuple[int, ...]) -> int:
    return int(np.all(np.asarray(picture) == colour, axis=2).sum())


def test_boxes_and_words_share_colours() -> None:
    picture = draw_alignment(WHITE, BOXES, ["a", "dog", "runs"], [1, 1, 2], [0.1, 2.0, 1.0])
    image, text = picture.crop((0, 0, 512, 512)), picture.crop((0, 512, 512, picture.height))
    for colour in (RED, BLUE):
        assert count(image, colour) > 500 and count(text, colour) > 20
    # Region 1 goes from pixel 128 to 384 and from 128 to 256: its lines are there.
    assert picture.getpixel((300, 129)) == RED and picture.getpixel((300, 255)) == RED
    assert picture.getpixel((383, 200)) == RED and picture.getpixel((300, 200)) == (255, 255, 255)


def test_low_words_are_grey_and_add_no_box() -> None:
    arguments = (WHITE, BOXES, ["dog", "the"], [1, 2])
    assert count(draw_alignment(*arguments, [2.0, 0.49]), BLUE) == 0
    assert count(draw_alignment(*arguments, [2.0, 0.5]), BLUE) > 500
    assert count(draw_alignment(*arguments, [2.0, 0.49], fade=0.0), BLUE) > 500
    # Below zero nothing is shown, however low the share.
    assert count(draw_alignment(*arguments, [2.0, -1.0], fade=0.0), BLUE) == 0
    nothing = draw_alignment(*arguments, [-1.0, -2.0])
    assert count(nothing, RED) == count(nothing, BLUE) == 0
    grey = ImageColor.getrgb(drawing._GREY)
    assert count(nothing, grey) > 20


def test_colours_can_be_read_on_the_paper() -> None:
    def luminance(colour: str) -> float:
        channels = np.array(ImageColor.getrgb(colour)) / 255
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    paper = luminance(pictures.PAPER)
    # 4.5 is what the Web Content Accessibility Guidelines ask of text.
    for colour in (*drawing.COLOURS, pictures.INK):
        assert (paper + 0.05) / (luminance(colour) + 0.05) >= 4.5, colour
    assert len(set(drawing.COLOURS)) == len(drawing.COLOURS)


@pytest.mark.parametrize(
    ("size", "wide"),
    [((64, 64), 512), ((1, 1), 512), ((3000, 2), 1280), ((2, 3000), 960), ((800, 600), 800)],
    ids=lambda value: "x".join(map(str, value)) if isinstance(value, tuple) else str(value),
)
def test_any_size_of_image(size, wide) -> None:
    picture = draw_alignment(Image.new("RGB", size), BOXES, ["a", "dog"], [0, 2], [1.0, 1.0])
    assert picture.width == wide and picture.height > 20


def test_long_sentences_wrap_and_long_words_are_cut() -> None:
    words = ["word"] * 100
    one, many = (draw_alignment(WHITE, BOXES, words[:n], [1] * n, [1.0] * n).height - 512 for n in (1, 100))
    assert many > 5 * one
    long = draw_alignment(WHITE, BOXES, ["x" * 3000], [1], [1.0])
    assert long.height == 512 + one
    # Nothing is cut at the edges, be it one phrase or, without a box, many.
    grey = draw_alignment(WHITE, BOXES, words, [1, 2] * 50, [-1.0] * 100)
    for picture in (long, grey):
        edge = np.asarray(picture)[512:, -4:]
        assert np.all(edge == ImageColor.getrgb(pictures.PAPER))


@pytest.mark.parametrize(
    "word",
    ["", "猫", "naïve", "👩‍👩‍👧", "\udcff", "a\x00\n\tb", "שלום", "e" + "\u0301" * 300, "\u202e"],
    ids=ascii,
)
def test_any_text_is_drawn(word) -> None:
    picture = draw_alignment(WHITE, BOXES, [word, "dog"], [1, 2], [1.0, 1.0])
    assert picture.height > 512
    assert contact_sheet([(WHITE, word)]).mode == "RGB"


def test_accents_are_left_out_of_what_the_font_lacks() -> None:
    plain, accented = (draw_alignment(WHITE, BOXES, [word], [1], [1.0]) for word in ("naive", "naïve"))
    assert plain.tobytes() == accented.tobytes()


def test_no_word_at_all_and_words_without_a_region() -> None:
    assert draw_alignment(WHITE, BOXES, [], [], []).size == (512, 512)
    picture = draw_alignment(WHITE, BOXES, ["dog"], [-1], [1.0])
    assert count(picture, RED) == 0


def test_many_regions_have_numbers_and_colours_again() -> None:
    boxes = np.tile([[0.1, 0.1, 0.5, 0.5]], (30, 1))
    picture = draw_alignment(WHITE, boxes, ["w"] * 30, range(30), [1.0] * 30)
    assert picture.width == 512


def test_what_does_not_fit_together() -> None:
    with raises_argument("words"):
        draw_alignment(WHITE, BOXES, ["a"], [1, 1], [1.0])
    with raises_argument("side"):
        draw_alignment(WHITE, BOXES, ["a"], [1], [1.0], side=10)


def test_small_pictures_for_pages() -> None:
    picture = draw_alignment(Image.new("RGB", (640, 480)), BOXES, ["a", "dog"], [1, 2], [1.0, 2.0], side=200)
    assert picture.width == 200 and 150 < picture.height < 220

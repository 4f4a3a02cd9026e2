"""Pictures as files, boxes in pixels, and sheets of crops."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from vsemb.errors import DataError, InvalidArgumentError
from vsemb.runs import pictures
from vsemb.runs.pictures import contact_sheet, crop, decimals, pixel_box, read_picture, save_picture

WHITE = Image.new("RGB", (64, 64), "white")


def count(picture: Image.Image, colour: tuple[int, ...]) -> int:
    return int(np.all(np.asarray(picture) == colour, axis=2).sum())


@pytest.mark.parametrize(
    ("box", "pixels"),
    [
        ([0, 0, 1, 1], (0, 0, 10, 20)),
        ([0.24, 0.26, 0.5, 0.5], (2, 5, 5, 10)),
        ([0.999, 0.999, 0.001, 0.001], (9, 19, 1, 1)),
        ([1.0, 1.0, 0.0, 0.0], (9, 19, 1, 1)),
        ([-0.5, 0.5, 2, 2], (0, 10, 10, 10)),
    ],
    ids=str,
)
def test_pixels_of_a_box(box, pixels) -> None:
    assert pixel_box(box, (10, 20)) == pixels
    assert crop(Image.new("RGB", (10, 20)), pixels).size == pixels[2:]


def test_a_sheet_shows_every_crop() -> None:
    colours = [(255, 0, 0), (0, 200, 0), (0, 0, 250)]
    sheet = contact_sheet([(Image.new("RGB", (9, 5 + n), colour), str(n)) for n, colour in enumerate(colours)])
    assert all(count(sheet, colour) > 160 * 80 for colour in colours)
    with pytest.raises(InvalidArgumentError, match="`tiles`"):
        contact_sheet([])
    large = contact_sheet([(WHITE, "1")] * (pictures.MOST_TILES + 50), side=64)
    assert large.size == contact_sheet([(WHITE, "1")] * pictures.MOST_TILES, side=64).size


def test_digits_that_say_something() -> None:
    values = ([1.5, -12.0], [0.18], [1e-9], [0.0], [float("nan"), 3.0], [float("inf")], [-250.0])
    assert [decimals(each) for each in values] == [1, 3, 4, 2, 2, 2, 0]


def test_files_by_their_ending_whole_or_not_at_all(tmp_path) -> None:
    for name, kind in (("a.png", "PNG"), ("a.JPG", "JPEG"), ("b.jpeg", "JPEG")):
        save_picture(WHITE, tmp_path / name)
        with Image.open(tmp_path / name) as image:
            assert image.format == kind and image.size == (64, 64)
    before = (tmp_path / "a.png").read_bytes()
    for name in ("a.gif", "a", "a.png.txt", ""):
        with pytest.raises(InvalidArgumentError, match=r"ends in one of \.png, \.jpg, \.jpeg"):
            save_picture(WHITE, tmp_path / name)
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(DataError, match="Cannot write"):
        save_picture(WHITE, tmp_path / "folder.png")

    class Broken(Image.Image):
        def save(self, *_, **__):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_picture(Broken(), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.JPG", "a.png", "b.jpeg", "folder.png"]


def test_a_damaged_image_is_named() -> None:
    buffer = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(buffer, "PNG")
    assert read_picture(buffer.getvalue(), "x").mode == "RGB"
    for bad in (b"nothing", buffer.getvalue()[:200], b""):
        with pytest.raises(DataError, match="'dog' does not decode"):
            read_picture(bad, "dog")

"""Pictures as files, boxes in pixels, thumbnails, and sheets of crops."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from tests.raising import raises_argument
from vsemb.data.store import StoredDataset
from vsemb.drawing import pictures
from vsemb.drawing.pictures import (
    check_picture_path,
    contact_sheet,
    crop,
    data_uri,
    decimals,
    pixel_box,
    read_picture,
    save_picture,
    square_thumbnail,
    text_tile,
    thumbnail,
)
from vsemb.errors import DataError

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
    with raises_argument("tiles"):
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
        with raises_argument("out"):
            save_picture(WHITE, tmp_path / name)
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(DataError):
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
        with pytest.raises(DataError, match="'dog'"):
            read_picture(bad, "dog")


class OneImage:
    """A split of one image."""

    def __init__(self, encoded: bytes) -> None:
        self.encoded = encoded
        self.keys, self.name = ["one.png"], "val"

    def read_image(self, row: int) -> bytes:
        assert row == 0
        return self.encoded


def encoded(size: tuple[int, int], mode: str = "RGB", kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size, 200 if mode == "L" else (200, 30, 40, 0)[: len(mode)]).save(buffer, kind)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("size", "small"),
    [((300, 100), (60, 20)), ((10, 40), (15, 60)), ((500, 1), (60, 1)), ((60, 60), (60, 60))],
)
def test_keeps_its_shape(size, small) -> None:
    image = thumbnail(OneImage(encoded(size)), 0, 60)
    assert image.size == small and image.mode == "RGB"
    assert square_thumbnail(OneImage(encoded(size)), 0, 60).size == (60, 60)


@pytest.mark.parametrize(("mode", "kind"), [("L", "PNG"), ("CMYK", "JPEG"), ("RGBA", "PNG"), ("L", "JPEG")])
def test_every_stored_kind(mode: str, kind: str) -> None:
    assert thumbnail(OneImage(encoded((80, 80), mode, kind)), 0, 40).mode == "RGB"


def test_is_the_image(scenes: StoredDataset) -> None:
    split = scenes.split("val")
    with Image.open(io.BytesIO(split.read_image(3))) as image:
        wanted = np.asarray(image.convert("RGB"), float).mean(axis=(0, 1))
    address = data_uri(thumbnail(split, 3, 96))
    head, _, body = address.partition(",")
    assert head == "data:image/jpeg;base64"
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(body, validate=True))), float)
    assert shown.shape == (96, 96, 3)
    np.testing.assert_allclose(shown.mean(axis=(0, 1)), wanted, atol=4)


def test_a_damaged_image_has_no_thumbnail() -> None:
    with pytest.raises(DataError, match=r"one\.png"):
        thumbnail(OneImage(b"\xff\xd8\xff nothing"), 0, 40)


def test_texts_are_written_and_cut() -> None:
    short, long = (np.asarray(text_tile(text, 64).convert("L")) for text in ("a dog", "a big dog " * 80))
    dark = [(tile < 128).sum() for tile in (short, long)]
    assert 0 < dark[0] < dark[1]
    # Nothing is cut at the edges.
    assert (np.concatenate([long[0], long[-1]]) > 200).all()
    assert text_tile("", 64).size == text_tile("猫 " * 50, 64).size == (64, 64)


@pytest.mark.parametrize("name", ["a.png", "a.jpg"])
def test_only_pictures_of_vsemb_are_replaced(name: str, tmp_path) -> None:
    save_picture(WHITE, tmp_path / name)
    save_picture(WHITE, tmp_path / name)
    for content in (lambda path: WHITE.save(path), lambda path: path.write_text("notes")):
        content(tmp_path / name)
        before = (tmp_path / name).read_bytes()
        with raises_argument("out"):
            save_picture(WHITE, tmp_path / name)
        assert (tmp_path / name).read_bytes() == before


def test_a_picture_does_not_replace_an_image_that_is_read(tmp_path):
    image = str(tmp_path / "dog.png")
    assert check_picture_path(tmp_path / "out.png", [image]) == "PNG"
    for out in (image, f"{tmp_path}/../{tmp_path.name}/dog.png"):
        with raises_argument("out"):
            check_picture_path(out, [image])

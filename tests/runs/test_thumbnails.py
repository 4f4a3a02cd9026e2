"""Thumbnails: sizes, content, addresses, and what is refused."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from vsemb.data.store import Dataset
from vsemb.errors import DataError
from vsemb.runs.thumbnails import data_uri, square_thumbnail, text_tile, thumbnail


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


def test_is_the_image(scenes: Dataset) -> None:
    split = scenes.split("val")
    with Image.open(io.BytesIO(split.read_image(3))) as image:
        wanted = np.asarray(image.convert("RGB"), float).mean(axis=(0, 1))
    address = data_uri(thumbnail(split, 3, 96))
    head, _, body = address.partition(",")
    assert head == "data:image/jpeg;base64"
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(body, validate=True))), float)
    assert shown.shape == (96, 96, 3)
    np.testing.assert_allclose(shown.mean(axis=(0, 1)), wanted, atol=4)


def test_a_damaged_image_is_named() -> None:
    with pytest.raises(DataError, match=r"one\.png.*does not decode"):
        thumbnail(OneImage(b"\xff\xd8\xff nothing"), 0, 40)


def test_texts_are_written_and_cut() -> None:
    short, long = (np.asarray(text_tile(text, 64).convert("L")) for text in ("a dog", "a big dog " * 80))
    dark = [(tile < 128).sum() for tile in (short, long)]
    assert 0 < dark[0] < dark[1]
    # Nothing is cut at the edges.
    assert (np.concatenate([long[0], long[-1]]) > 200).all()
    assert text_tile("", 64).size == text_tile("猫 " * 50, 64).size == (64, 64)

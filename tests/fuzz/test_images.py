"""Damaged images: an image, or the error of one image, in bounded memory."""

from __future__ import annotations

import contextlib
import io
import resource
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.fuzz.mutations import damaged, edits
from vsemb.data.images import BadImage, sanitise_image
from vsemb.image.decode import decode_images
from vsemb.serving.budget import image_pixels


def encoded(format: str, mode: str, **options: object) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 255, (13, 17, len(mode)), np.uint8).squeeze()
    stream = io.BytesIO()
    Image.fromarray(pixels, mode).save(stream, format, **options)
    return stream.getvalue()


def bomb(side: int) -> bytes:
    """A PNG that announces many pixels and holds few."""
    header = struct.pack(">IIBBBBB", side, side, 8, 6, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(99))), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(c)) + n + c + struct.pack(">I", zlib.crc32(n + c)) for n, c in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


IMAGES = [
    encoded("JPEG", "RGB"),
    encoded("JPEG", "RGB", progressive=True),
    encoded("JPEG", "L"),
    encoded("PNG", "RGBA"),
    encoded("PNG", "L"),
    encoded("GIF", "L"),
    encoded("WEBP", "RGB"),
    encoded("BMP", "RGB"),
    encoded("TIFF", "RGB"),
    encoded("TIFF", "RGB", compression="tiff_lzw"),
    bomb(7000),
    bomb(2**31 - 1),
]


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


@pytest.fixture(scope="module", autouse=True)
def memory():
    """No damaged image takes more than the largest whole one: 50 million pixels of up to 24 bytes."""
    before = peak()
    yield
    assert peak() - before < 1300


@given(image=st.sampled_from(IMAGES), changes=edits)
def test_images_of_datasets(image: bytes, changes) -> None:
    content = damaged(image, changes)
    assert image_pixels(content) >= 0
    with contextlib.suppress(BadImage):
        stored = sanitise_image(content, max_side=64)
        assert sanitise_image(stored.encoded).width == stored.width


@pytest.mark.slow
@given(image=st.sampled_from(IMAGES), changes=edits)
def test_images_of_requests(image: bytes, changes) -> None:
    whole = IMAGES[3]
    pixels, valid = decode_images(tf.constant([damaged(image, changes), whole]), 8)
    alone, _ = decode_images(tf.constant([whole, b""]), 8)
    assert valid.numpy()[1] and np.array_equal(pixels[1], alone[0])
    assert 0 <= float(tf.reduce_min(pixels)) <= float(tf.reduce_max(pixels)) <= 255
    assert bool(valid[0]) or not np.any(pixels[0])

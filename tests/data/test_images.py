"""Source images: what is kept, what is converted, what is refused."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from vsemb.data.images import BadImage, sanitise_image


def encode(image: Image.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(width: int, height: int, channels: int = 3) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, channels), np.uint8)
    return Image.fromarray(pixels[..., 0] if channels == 1 else pixels)


def decoded(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("channels", [1, 3])
def test_plain_images_keep_their_bytes(kind, channels):
    data = encode(noise(5, 4, channels), kind)
    stored = sanitise_image(data)
    assert stored.encoded is data
    assert (stored.width, stored.height, stored.turned) == (5, 4, False)


# Rows of one image, 3 wide and 2 high, as numbers; what a viewer shows for each EXIF orientation.
SHOWN = {
    1: [[0, 1, 2], [3, 4, 5]],
    2: [[2, 1, 0], [5, 4, 3]],
    3: [[5, 4, 3], [2, 1, 0]],
    4: [[3, 4, 5], [0, 1, 2]],
    5: [[0, 3], [1, 4], [2, 5]],
    6: [[3, 0], [4, 1], [5, 2]],
    7: [[5, 2], [4, 1], [3, 0]],
    8: [[2, 5], [1, 4], [0, 3]],
}


@pytest.mark.parametrize("orientation", SHOWN)
def test_exif_orientation_is_applied(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    grey = np.array(SHOWN[1], np.uint8) * 40
    stored = sanitise_image(encode(Image.fromarray(grey), "PNG", exif=exif))  # PNG: exact values.
    expected = np.array(SHOWN[orientation], np.uint8) * 40
    np.testing.assert_array_equal(np.asarray(decoded(stored.encoded)), expected)
    assert (stored.height, stored.width) == expected.shape
    assert stored.turned == (orientation != 1)
    assert decoded(stored.encoded).getexif().get(0x0112, 1) == 1 or orientation == 1


def test_a_turned_jpeg_stays_a_jpeg_and_an_upright_one_is_untouched():
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = sanitise_image(encode(noise(8, 4), "JPEG", exif=exif))
    assert decoded(stored.encoded).format == "JPEG"
    assert (stored.width, stored.height) == (4, 8)
    exif[0x0112] = 1
    data = encode(noise(8, 4), "JPEG", exif=exif)
    assert sanitise_image(data).encoded is data


@pytest.mark.parametrize("value", [0, 9, 77])
def test_an_impossible_orientation_is_ignored(value):
    exif = Image.Exif()
    exif[0x0112] = value
    data = encode(noise(4, 3), "JPEG", exif=exif)
    assert sanitise_image(data).encoded is data


@pytest.mark.parametrize(
    ("image", "kind", "expected_kind", "expected_mode"),
    [
        (noise(6, 4), "BMP", "JPEG", "RGB"),
        (noise(6, 4), "WEBP", "JPEG", "RGB"),
        (noise(6, 4), "TIFF", "JPEG", "RGB"),
        (noise(6, 4, 1), "TIFF", "JPEG", "L"),
        (noise(6, 4).convert("CMYK"), "JPEG", "JPEG", "RGB"),
        (noise(6, 4).convert("P"), "GIF", "PNG", "RGB"),
        (noise(6, 4).convert("P"), "PNG", "PNG", "RGB"),
        (noise(6, 4, 4), "PNG", "PNG", "RGB"),
        (noise(6, 4, 4), "WEBP", "PNG", "RGB"),
        (noise(6, 4, 1).convert("LA"), "PNG", "PNG", "RGB"),
        (noise(6, 4, 1).convert("1"), "PNG", "PNG", "L"),
        (noise(6, 4, 1).convert("1"), "TIFF", "PNG", "L"),
    ],
)
def test_other_formats_are_converted(image, kind, expected_kind, expected_mode):
    stored = sanitise_image(encode(image, kind))
    result = decoded(stored.encoded)
    assert (result.format, result.mode, result.size) == (expected_kind, expected_mode, (6, 4))
    assert (stored.width, stored.height) == (6, 4)


def test_alpha_is_flattened_on_white():
    pixels = np.array([[[255, 0, 0, 255], [255, 0, 0, 0], [0, 0, 0, 51]]], np.uint8)
    stored = sanitise_image(encode(Image.fromarray(pixels), "PNG"))
    # Opaque stays; transparent becomes white; alpha 51/255 = 0.2: 0.2 * 0 + 0.8 * 255 = 204.
    expected = [[[255, 0, 0], [255, 255, 255], [204, 204, 204]]]
    np.testing.assert_array_equal(np.asarray(decoded(stored.encoded)), expected)


def test_a_transparent_colour_is_flattened_on_white():
    image = Image.fromarray(np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8))
    stored = sanitise_image(encode(image, "PNG", transparency=(1, 2, 3)))
    np.testing.assert_array_equal(np.asarray(decoded(stored.encoded)), [[[255, 255, 255], [4, 5, 6]]])


def test_16_bit_grey_keeps_its_upper_8_bits():
    values = np.array([[0, 0x00FF, 0x0100, 0x1234, 0xFFFF]], np.uint16)
    stored = sanitise_image(encode(Image.fromarray(values), "PNG"))
    result = decoded(stored.encoded)
    assert (result.format, result.mode) == ("PNG", "L")
    np.testing.assert_array_equal(np.asarray(result), [[0, 0, 1, 0x12, 0xFF]])


def png_16_bit_rgb() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0)
    row = b"\0" + struct.pack(">6H", 0x1234, 0xFF00, 0x0100, 0, 0xABCD, 0xFFFF)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def test_16_bit_rgb_keeps_its_upper_8_bits():
    stored = sanitise_image(png_16_bit_rgb())
    assert stored.encoded[24] == 8  # the bit depth in the PNG header
    expected = [[[0x12, 0xFF, 0x01], [0, 0xAB, 0xFF]]]
    np.testing.assert_array_equal(np.asarray(decoded(stored.encoded)), expected)


def test_of_an_animation_the_first_frame_is_kept():
    red, blue = Image.new("RGB", (3, 3), (255, 0, 0)), Image.new("RGB", (3, 3), (0, 0, 255))
    stored = sanitise_image(encode(red, "GIF", save_all=True, append_images=[blue]))
    assert decoded(stored.encoded).getpixel((1, 1)) == (255, 0, 0)


def test_max_side_shrinks_and_never_enlarges():
    data = encode(noise(40, 20), "JPEG")
    stored = sanitise_image(data, max_side=10)
    assert (stored.width, stored.height, stored.scale) == (10, 5, (0.25, 0.25))
    assert decoded(stored.encoded).size == (10, 5)
    assert sanitise_image(data, max_side=40).encoded is data
    assert decoded(sanitise_image(encode(noise(400, 1), "PNG"), max_side=10).encoded).size == (10, 1)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"<html>404 not found</html>", "known format"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC"),
        (encode(noise(64, 64), "JPEG")[:-400], "truncated"),
        (encode(noise(64, 64), "PNG")[:-400], "truncated"),
        (encode(noise(64, 64), "JPEG")[:20], "truncated"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", "known format"),
    ],
    ids=["empty", "html", "heic", "jpeg", "png", "header", "eps"],
)
def test_broken_images_are_refused_with_the_reason(data, reason):
    with pytest.raises(BadImage, match=reason):
        sanitise_image(data)


@pytest.mark.parametrize("side", [7_100, 30_000])
def test_decompression_bombs_are_refused_before_they_are_decoded(side):
    # One bit a pixel and all zero: 30,000 x 30,000 pixels in a few kilobytes.
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    with pytest.raises(BadImage, match="50,000,000 pixels"):
        sanitise_image(data)


def test_floating_point_pixels_are_refused():
    with pytest.raises(BadImage, match="floating-point"):
        sanitise_image(encode(Image.fromarray(np.ones((2, 2), np.float32)), "TIFF"))


@pytest.mark.parametrize("side", [65_535, 65_536])
def test_the_longest_side_is_that_of_jpeg(side):
    data = encode(Image.new("L", (side, 1)), "PNG")
    if side == 65_535:
        assert sanitise_image(data).encoded is data
        return
    with pytest.raises(BadImage, match="65,535"):
        sanitise_image(data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_bytes_behind_the_end_are_kept(kind):
    data = encode(noise(5, 4), kind) + b"more"
    assert sanitise_image(data).encoded is data


def test_fill_bytes_in_front_of_a_marker_are_kept():
    data = encode(noise(5, 4), "JPEG")
    data = data[:2] + b"\xff\xff" + data[2:]
    assert sanitise_image(data).encoded is data


def test_a_jpeg_with_bytes_between_its_segments_is_refused():
    data = encode(noise(5, 4), "JPEG")
    at = data.index(b"\xff\xc0")
    with pytest.raises(BadImage, match="damaged"):
        sanitise_image(data[:at] + b"\0" + data[at:])


@pytest.mark.parametrize("kind", [b"IHDR", b"IDAT", b"IEND", b"tEXt"])
def test_a_png_with_a_wrong_checksum_is_refused(kind):
    text = PngInfo()
    text.add_text("Comment", "a dog")
    data = encode(noise(5, 4), "PNG", pnginfo=text)
    at = data.index(kind) + 4 + int.from_bytes(data[data.index(kind) - 4 : data.index(kind)], "big")
    with pytest.raises(BadImage, match=kind.decode()):
        sanitise_image(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def test_a_png_with_much_text_is_written_anew():
    text = PngInfo()
    text.add_text("Comment", "a dog" * 20_000)
    data = encode(noise(5, 4), "PNG", pnginfo=text)
    stored = sanitise_image(data).encoded
    assert len(stored) < 1000
    np.testing.assert_array_equal(np.asarray(decoded(stored)), np.asarray(decoded(data)))

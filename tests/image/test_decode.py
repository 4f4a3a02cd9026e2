"""The decoder against strangers' bytes: what is accepted, what is refused, and that rows are islands."""

from __future__ import annotations

import io
import resource
import zlib
from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.raising import raises_argument
from vsemb.exporting.servable import check_servable
from vsemb.image.decode import _decode_rows, decode_images

SIZE = 16


def picture(seed: int = 0, size: tuple[int, int] = (40, 30)) -> Image.Image:
    small = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


def encode(image: Image.Image, form: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


JPEG = encode(picture(), "JPEG", quality=95)
PNG = encode(picture(), "PNG")


def png_announcing(width: int, height: int) -> bytes:
    """PNG with another size in its header, and the checksum of the header put right."""
    header = b"IHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big") + PNG[24:29]
    return PNG[:12] + header + zlib.crc32(header).to_bytes(4, "big") + PNG[33:]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def jpeg_announcing(width: int, height: int) -> bytes:
    """JPEG with another size in its frame header: marker, length, precision, height, width."""
    at = JPEG.index(b"\xff\xc0") + 5
    return JPEG[:at] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + JPEG[at + 4 :]


def chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content).to_bytes(4, "big")
    return len(content).to_bytes(4, "big") + kind + content + checksum


def interlaced(image: Image.Image) -> bytes:
    """RGB PNG whose pixels come in the seven passes of Adam7 (PNG, 8.2), which Pillow does not write."""
    pixels = np.asarray(image)
    passes = [
        (0, 0, 8, 8),
        (0, 4, 8, 8),
        (4, 0, 8, 4),
        (0, 2, 4, 4),
        (2, 0, 4, 2),
        (0, 1, 2, 2),
        (1, 0, 2, 1),
    ]
    body = b""
    for top, left, down, right in passes:
        # Each row behind the number of its filter, 0 for none.
        body += b"".join(b"\0" + row.tobytes() for row in pixels[top::down, left::right])
    sizes = image.width.to_bytes(4, "big") + image.height.to_bytes(4, "big")
    header = chunk(b"IHDR", sizes + bytes([8, 2, 0, 0, 1]))
    return PNG[:8] + header + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")


def progressive_announcing(width: int, height: int) -> bytes:
    """A small progressive JPEG, marker 0xffc2, with another size in its header."""
    data = encode(picture(size=(16, 16)), "JPEG", progressive=True, quality=1)
    at = data.index(b"\xff\xc2") + 5
    return data[:at] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + data[at + 4 :]


BAD = {
    "empty": b"",
    "text": b"not an image",
    "gif": encode(picture(), "GIF"),
    "bmp": encode(picture(), "BMP"),
    "webp": encode(picture(), "WEBP"),
    "webp_magic_only": b"RIFF\x10\x00\x00\x00WEBPVP8 ",
    "tiff": encode(picture(), "TIFF"),
    "gif_named_png": b"\x89PNG" + encode(picture(), "GIF"),
    "jpeg_magic_only": JPEG[:3],
    "png_magic_only": PNG[:16],
    "png_half_header": PNG[:21],
    "jpeg_headers_only": JPEG[:200],
    "jpeg_truncated": JPEG[: len(JPEG) // 2],
    "jpeg_without_last_tenth": JPEG[: len(JPEG) * 9 // 10],
    "png_truncated": PNG[: len(PNG) // 2],
    "png_oversized": png_announcing(20_000, 20_000),
    "png_sides_overflow_int64": png_announcing(2**32 - 1, 2**32 - 1),
    "png_no_pixels": png_announcing(0, 30),
    "jpeg_oversized": jpeg_announcing(65_000, 65_000),
    "jpeg_progressive_oversized": progressive_announcing(40_000, 40_000),
    "jpeg_progressive_truncated": encode(picture(), "JPEG", progressive=True)[:-100],
    "png_interlaced_truncated": interlaced(picture())[:-100],
    "png_corrupt_body": flipped(PNG, len(PNG) // 2),
    "png_other_size": png_announcing(41, 30),
}

GOOD = {
    "jpeg": JPEG,
    "jpeg_progressive": encode(picture(), "JPEG", progressive=True),
    "jpeg_grey": encode(picture().convert("L"), "JPEG"),
    "jpeg_cmyk": encode(picture().convert("CMYK"), "JPEG", quality=95),
    "jpeg_padded": JPEG + b"\0" * 100,
    "jpeg_grey_progressive": encode(picture().convert("L"), "JPEG", progressive=True),
    "jpeg_cmyk_progressive": encode(picture().convert("CMYK"), "JPEG", quality=95, progressive=True),
    "png": PNG,
    "png_interlaced": interlaced(picture()),
    "png_grey": encode(picture().convert("L"), "PNG"),
    "png_bits": encode(picture().convert("1"), "PNG"),
    "png_palette": encode(picture().convert("P"), "PNG"),
    "png_16_bit": encode(Image.fromarray(np.arange(1200, dtype=np.uint16).reshape(30, 40) * 54), "PNG"),
}


def decode(rows: list[bytes], **options) -> tuple[np.ndarray, np.ndarray]:
    pixels, valid = decode_images(tf.constant(rows, tf.string), SIZE, **options)
    return pixels.numpy(), valid.numpy()


def test_a_bad_row_is_invalid_and_zero_and_its_neighbours_are_untouched():
    alone, _ = decode([JPEG])
    other, _ = decode([PNG])
    # A call is traced, which takes longer than all pictures do.
    pixels, valid = decode([row for bad in BAD.values() for row in (JPEG, bad, PNG)])
    for place, name in enumerate(BAD):
        before, bad, after = range(3 * place, 3 * place + 3)
        assert valid[before : after + 1].tolist() == [True, False, True], name
        assert not pixels[bad].any(), name
        np.testing.assert_array_equal(pixels[before], alone[0], name)
        np.testing.assert_array_equal(pixels[after], other[0], name)


def test_all_bad_rows_at_once():
    pixels, valid = decode(list(BAD.values()))
    assert not valid.any() and not pixels.any() and pixels.shape == (len(BAD), SIZE, SIZE, 3)


def test_a_row_of_very_many_columns_is_refused_before_it_takes_gigabytes():
    wide, tall = (Image.new("L", sides) for sides in ((60_000, 1), (1, 60_000)))
    # 60,000 columns of 1,000 resized rows, 3 channels of 4 bytes: 720 MB from a file of 300 bytes.
    turned = Image.Exif()
    turned[0x0112] = 6
    rows = [
        encode(wide, "PNG"),
        encode(tall, "PNG"),
        encode(wide, "PNG", exif=turned),
        encode(tall, "PNG", exif=turned),
    ]
    assert decode_images(tf.constant(rows), 1000)[1].numpy().tolist() == [False, True, True, False]


def test_a_side_longer_than_those_of_jpeg_is_refused():
    sides = [(65_536, 1), (1, 65_536), (65_535, 1)]
    valid = decode([encode(Image.new("L", side), "PNG") for side in sides])[1]
    assert valid.tolist() == [False, False, True]


def test_no_rows():
    pixels, valid = decode([])
    assert pixels.shape == (0, SIZE, SIZE, 3) and valid.shape == (0,)


@pytest.fixture(scope="module")
def good() -> dict[str, np.ndarray]:
    """The pixels of all good rows."""
    pixels, valid = decode([*GOOD.values()])
    assert valid.all()
    return dict(zip(GOOD, pixels, strict=True))


@pytest.mark.parametrize("name", GOOD)
def test_a_good_row_matches_pillow(name, good):
    pixels = good[name]
    image = Image.open(io.BytesIO(GOOD[name]))
    if name == "png_16_bit":
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    expected = np.asarray(image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR), np.float32)
    # Both antialias with a triangle filter; Pillow rounds to whole numbers after each of its passes,
    # and two JPEG decoders may differ by a level or two, in chroma upsampling by more.
    assert np.abs(pixels - expected).mean() < (1.0 if name.startswith("png") else 2.5)
    assert pixels.min() >= 0 and pixels.max() <= 255


def test_order_is_kept_over_many_rows():
    rows = [encode(picture(seed), "PNG") for seed in range(40)]
    rows[7] = rows[23] = b""
    pixels, valid = decode(rows)
    assert np.flatnonzero(~valid).tolist() == [7, 23]
    for row in (0, 6, 8, 39):
        np.testing.assert_array_equal(pixels[row], decode([rows[row]])[0][0])


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency_is_laid_on_white(mode):
    # A dark grey (100) picture: left half transparent, right half at alpha 51 = one fifth.
    # Over white: left 255; right 100 * 0.2 + 255 * 0.8 = 224.
    alpha = Image.fromarray(np.repeat([[0] * 8 + [51] * 8], 16, axis=0).astype(np.uint8))
    image = Image.new("RGB", (16, 16), (100, 100, 100)).convert(mode)
    image.putalpha(alpha)
    pixels, valid = decode([encode(image, "PNG")])
    assert valid.all()
    np.testing.assert_allclose(pixels[0, :, :8], 255.0, atol=1e-3)
    np.testing.assert_allclose(pixels[0, :, 8:], 224.0, atol=1e-3)


def test_a_transparent_palette_entry_is_laid_on_white():
    image = Image.fromarray(np.repeat([[0] * 8 + [1] * 8], 16, axis=0).astype(np.uint8), mode="P")
    image.putpalette([10, 20, 30, 40, 50, 60])
    pixels, _ = decode([encode(image, "PNG", transparency=0)])
    np.testing.assert_allclose(pixels[0, 0, 0], [255, 255, 255])
    np.testing.assert_allclose(pixels[0, 0, 15], [40, 50, 60])


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_of_16_bits_the_upper_8_count(channels):
    # 0x12ff, 0x34ff, 0x56ff: 18, 52 and 86 without their lower bytes. With an alpha of 0x48ff, 72 of 255,
    # over white: 18 becomes (18 * 72 + 255 * 183) / 255 = 188.1, 52 197.7 and 86 207.3.
    values = {
        1: [0x12FF],
        2: [0x12FF, 0x48FF],
        3: [0x12FF, 0x34FF, 0x56FF],
        4: [0x12FF, 0x34FF, 0x56FF, 0x48FF],
    }
    image = np.broadcast_to(np.array(values[channels], np.uint16), (SIZE, SIZE, channels))
    pixels, valid = decode([tf.io.encode_png(tf.constant(image)).numpy()])
    expected = {1: [18] * 3, 2: [188] * 3, 3: [18, 52, 86], 4: [188, 198, 207]}[channels]
    assert valid.all() and (pixels[0] == expected).all()


@pytest.mark.parametrize("colour", [(200, 30, 40), (20, 180, 60), (10, 20, 220), (255, 255, 255), (0, 0, 0)])
def test_cmyk_has_the_right_colour(colour):
    image = Image.new("RGB", (16, 16), colour).convert("CMYK")
    pixels, _ = decode([encode(image, "JPEG", quality=95)])
    assert np.abs(pixels[0] - np.array(colour)).max() <= 4


def test_what_announces_too_much_is_never_allocated():
    """Its pixels would take 4.8 GB; the process may grow by a hundredth of that."""
    bad = [progressive_announcing(40_000, 40_000), png_announcing(40_000, 40_000)]
    assert max(map(len, bad)) < 4000

    def largest() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    decode([encode(picture(size=(300, 300)), "PNG")] * 8)
    before = largest()
    _, valid = decode(bad * 4)
    assert not valid.any() and (largest() - before) // 1024 < 48


def test_an_image_of_the_right_size_is_not_resampled():
    exact = picture(3, (SIZE, SIZE))
    pixels, _ = decode([encode(exact, "PNG")])
    np.testing.assert_array_equal(pixels[0], np.asarray(exact, np.float32))


@pytest.mark.parametrize("size", [(40, 30), (17, 31), (16, 20), (9, 5)])
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_resampling_gives_the_bits_of_tensorflow(form, size):
    data = encode(picture(4, size), form)
    decoded = tf.io.decode_png if form == "PNG" else partial(tf.io.decode_jpeg, dct_method="INTEGER_ACCURATE")
    image = decoded(data, channels=3)
    expected = tf.round(tf.image.resize(image, (SIZE, SIZE), antialias=True)).numpy()
    assert not min(size) >= 2 * SIZE and (decode([data])[0][0] == expected).all()


@pytest.mark.parametrize("ratio", [2, 4, 8])
@pytest.mark.parametrize("kind", ["RGB", "L", "CMYK", "progressive"])
def test_a_large_jpeg_is_decoded_at_a_reduced_scale(kind, ratio):
    image = picture(5, (ratio * (SIZE + 4), ratio * SIZE)).convert(kind if kind in ("L", "CMYK") else "RGB")
    data = encode(image, "JPEG", quality=95, progressive=kind == "progressive")
    pixels, valid = decode([data, data[: len(data) // 2], data[:-40], JPEG])
    assert valid.tolist() == [True, False, False, True]
    reduced = Image.open(io.BytesIO(data))
    reduced.draft(None, (SIZE, SIZE))
    assert reduced.size == (SIZE + 4, SIZE)
    expected = np.asarray(reduced.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR), np.float32)
    assert np.abs(pixels[0] - expected).mean() < 1


def test_a_side_that_the_scale_does_not_divide_does_not_shift_the_image():
    # The last of the 129 / 8 = 16.125 reduced pixels is 1/8 image. A ramp from 0 to 255 keeps its values.
    ramp = np.broadcast_to(np.linspace(0, 255, 8 * SIZE + 1)[:, None], (8 * SIZE + 1, 8 * SIZE))
    data = encode(Image.fromarray(np.rint(ramp).astype(np.uint8)), "JPEG", quality=100)
    expected = (np.arange(SIZE) + 0.5) / SIZE * 255
    assert np.abs(decode([data])[0][0, 1:-1, 5, 0] - expected[1:-1]).max() < 1.1


def test_the_whole_image_is_squashed():
    # Left half black, right half white, 32 x 8: at 16 x 16 the border is still in the middle.
    wide = np.repeat(np.repeat([[[0], [255]]], 16, axis=1), 8, axis=0).astype(np.uint8)
    image = Image.fromarray(np.repeat(wide.reshape(8, 32, 1), 3, axis=2))
    pixels, _ = decode([encode(image, "PNG")])
    assert not pixels[0, :, :7].any() and (pixels[0, :, 9:] == 255).all()


def test_the_pixel_limit_is_inclusive():
    assert decode([PNG, JPEG], max_pixels=40 * 30)[1].tolist() == [True, True]
    assert decode([PNG, JPEG], max_pixels=40 * 30 - 1)[1].tolist() == [False, False]


def test_batches_of_any_size_are_traced_twice_at_most():
    before = _decode_rows.experimental_get_tracing_count()
    for rows in (1, 2, 3, 4, 5, 1):
        decode_images(tf.constant([PNG] * rows), 13)
    assert _decode_rows.experimental_get_tracing_count() - before <= 2


def test_inside_a_function_and_a_pipeline_of_unknown_batch_size():
    function = tf.function(
        lambda rows: decode_images(rows, SIZE), autograph=False, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    assert function.get_concrete_function().structured_outputs[0].shape.as_list() == [None, SIZE, SIZE, 3]
    dataset = tf.data.Dataset.from_tensor_slices([JPEG, b"", PNG]).batch(2)
    valid = [valid.numpy().tolist() for _, valid in dataset.map(lambda rows: decode_images(rows, SIZE))]
    assert valid == [[True, False], [True]]


def test_a_saved_model_needs_tensorflow_only(tmp_path):
    class Decoder(tf.Module):
        @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
        def decode(self, rows):
            pixels, valid = decode_images(rows, SIZE)
            return {"pixels": pixels, "valid": valid}

    module = Decoder()
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.decode)
    # Its operations are those of TensorFlow alone.
    check_servable(tmp_path / "model")
    function = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    rows = [JPEG, b"", PNG, BAD["jpeg_truncated"]]
    result = function(rows=tf.constant(rows))
    np.testing.assert_array_equal(result["pixels"], decode(rows)[0])
    assert result["valid"].numpy().tolist() == [True, False, True, False]
    assert function(rows=tf.zeros([0], tf.string))["pixels"].shape == (0, SIZE, SIZE, 3)


@pytest.mark.parametrize("argument", ["size", "max_pixels"])
def test_bad_arguments(argument):
    with raises_argument(argument):
        decode_images(tf.constant([JPEG]), **{"size": 8, argument: 0})

"""A picture means the same on every path, or is refused: kinds of files and PIL images, times ways into a model."""

from __future__ import annotations

import io
import zlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import vsemb
from tests.grey_tiff import grey_tiff
from vsemb.data.images import BadImage, ImageLike, image_bytes, sanitise_image
from vsemb.demo.pictures import DatasetPictures
from vsemb.errors import VsembError
from vsemb.image.decode import decode_images
from vsemb.runs.embedding import embed_files
from vsemb.serving.client import to_images

SIZE = 32
# Smooth, so that JPEG changes it little, and without symmetry, so that each orientation shows.
Y, X = np.mgrid[0:48, 0:64]
RGB = np.stack([X * 3 + 20, Y * 4 + 10, 200 - X - 2 * Y], axis=2).astype(np.uint8)
GREY = RGB[:, :, 0]
# One colour of a square is transparent.
HOLE = (X >= 8) & (X < 40) & (Y >= 8) & (Y < 32)
HOLED, HOLED_GREY = np.where(HOLE[..., None], 255, RGB).astype(np.uint8), np.where(HOLE, 255, GREY).astype(np.uint8)

# Rows of an upright picture as the pixels of a file with each orientation.
STORED = {
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.swapaxes(0, 1),
    6: lambda x: x.swapaxes(0, 1)[::-1],
    7: lambda x: x.swapaxes(0, 1)[::-1, ::-1],
    8: lambda x: x.swapaxes(0, 1)[:, ::-1],
}


def chunk(kind: bytes, content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")


def png(samples: np.ndarray, depth: int, before: bytes = b"", after: bytes = b"", behind: bytes = b"") -> bytes:
    """A PNG of (rows, columns, 1 to 4) samples, with chunks before and after the pixels, and bytes in the last IDAT."""
    rows, columns, channels = samples.shape
    if depth < 8:
        bits = (samples[:, :, 0, None] >> np.arange(depth)[::-1]) & 1
        lines = [np.packbits(row.reshape(-1)).tobytes() for row in bits.astype(np.uint8)]
    else:
        lines = [row.tobytes() for row in samples.astype(">u2" if depth == 16 else np.uint8)]
    header = columns.to_bytes(4, "big") + rows.to_bytes(4, "big") + bytes([depth, (0, 0, 4, 2, 6)[channels], 0, 0, 0])
    pixels = zlib.compress(b"".join(b"\0" + line for line in lines)) + behind
    return whole_png(header, pixels, before, after)


def whole_png(header: bytes, pixels: bytes, before: bytes = b"", after: bytes = b"") -> bytes:
    half = len(pixels) // 2  # Two IDAT chunks, as of any larger file.
    body = chunk(b"IHDR", header) + before + chunk(b"IDAT", pixels[:half]) + chunk(b"IDAT", pixels[half:]) + after
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")


# 64 x 48 RGB pixels of 8 bits, compressed row by row.
HEADER = (64).to_bytes(4, "big") + (48).to_bytes(4, "big") + bytes([8, 2, 0, 0, 0])


def lines(samples: np.ndarray) -> bytes:
    return b"".join(b"\0" + row.tobytes() for row in samples)


def interlaced(samples: np.ndarray) -> bytes:
    """A PNG whose pixels come in seven passes (PNG, 8.2)."""
    starts = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    passes = b"".join(lines(samples[top::down, left::across]) for top, left, down, across in starts)
    return whole_png(HEADER[:-1] + b"\1", zlib.compress(passes))


def encode(image: Image.Image | np.ndarray, kind: str = "JPEG", **options) -> bytes:
    stream = io.BytesIO()
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    image.save(stream, kind, **{**({"quality": 97, "subsampling": 0} if kind == "JPEG" else {}), **options})
    return stream.getvalue()


def tiff(orientation: int, order: str = "little") -> bytes:
    """An EXIF block whose second entry is the orientation."""
    mark = b"II*\0" if order == "little" else b"MM\0*"

    def number(value: int, size: int) -> bytes:
        return value.to_bytes(size, order)

    make = number(0x010F, 2) + number(2, 2) + number(4, 4) + b"abc\0"
    entry = number(0x0112, 2) + number(3, 2) + number(1, 4) + number(orientation, 2) + b"\0\0"
    return mark + number(8, 4) + number(2, 2) + make + entry + number(0, 4)


def segment(marker: int, content: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(content) + 2).to_bytes(2, "big") + content


def xmp(orientation: int) -> bytes:
    return f'<x:xmpmeta><rdf:Description tiff:Orientation="{orientation}"/></x:xmpmeta>'.encode()


def with_segments(jpeg: bytes, *segments: bytes, at: int = 2) -> bytes:
    return jpeg[:at] + b"".join(segments) + jpeg[at:]


def exif_jpeg(orientation: int, *ahead: bytes, order: str = "little") -> bytes:
    block = segment(0xE1, b"Exif\0\0" + tiff(orientation, order))
    return with_segments(encode(STORED[orientation](RGB)), *ahead, block)


def adobe_jpeg(ycck: bool) -> bytes:
    """A CMYK JPEG, or a YCCK one: the values of the former's inks as luma and chroma."""
    cmyk = Image.fromarray(RGB).convert("CMYK")
    if not ycck:
        return encode(cmyk)
    luma = [Image.fromarray(255 - np.asarray(part)) for part in Image.fromarray(255 - RGB).convert("YCbCr").split()]
    jpeg = bytearray(encode(Image.merge("CMYK", [*luma, cmyk.getchannel("K")])))
    jpeg[jpeg.index(b"Adobe") + 11] = 2
    return bytes(jpeg)


def without_adobe(jpeg: bytes) -> bytes:
    at = jpeg.index(b"Adobe") - 4
    return jpeg[:at] + jpeg[at + 16 :]


def broken_checksum(data: bytes, kind: bytes) -> bytes:
    at = data.index(kind)
    end = at + 4 + int.from_bytes(data[at - 4 : at], "big")
    return data[:end] + bytes([data[end] ^ 1]) + data[end + 1 :]


def hole(samples: np.ndarray, colour: list[int]) -> np.ndarray:
    return np.where(HOLE[..., None], np.array(colour), samples).astype(np.uint16)


def colour_key(*values: int) -> bytes:
    return chunk(b"tRNS", b"".join(value.to_bytes(2, "big") for value in values))


WIDE = RGB.astype(np.uint16) * 256 + 255 - RGB
ALPHA = np.where(HOLE, 0, 0xFFFF)[..., None].astype(np.uint16)
PALETTE = Image.fromarray(np.where(HOLE, 0, 1 + X // 8).astype(np.uint8), "P")
PALETTE.putpalette([value for shade in range(9) for value in (shade * 25, 220 - shade * 20, 90)])
SHADES = np.array([[shade * 25, 220 - shade * 20, 90] for shade in range(9)], np.uint8)[1 + X // 8]
# Grey levels of fewer bits, with the lowest level free for the square.
LEVELS = {bits: np.minimum(X * 2**bits // 64, 2**bits - 1).clip(1) for bits in (1, 2, 4)}
PROFILE = f"\nexif\n{len(tiff(6)):8}\n" + tiff(6).hex() + "\n"
LONG = (segment(0xE2, b"ICC_PROFILE\0" + bytes(60_000)), segment(0xFE, b"\xff\xda\xff\xe1" * 16_000))

#: Name -> (bytes of a file, its pixels).
UNDERSTOOD: dict[str, tuple[bytes, np.ndarray]] = {
    "jpeg": (encode(RGB), RGB),
    "png": (png(RGB, 8), RGB),
    "interlaced": (interlaced(RGB), RGB),
    "grey of 16 bits": (png(WIDE[:, :, :1], 16), GREY),
    "rgb of 16 bits": (png(WIDE, 16), RGB),
    "grey and alpha of 16 bits": (png(np.concatenate([WIDE[:, :, :1], ALPHA], 2), 16), HOLED_GREY),
    "rgb and alpha of 16 bits": (png(np.concatenate([WIDE, ALPHA], 2), 16), HOLED),
    "tRNS, grey of 8 bits": (png(hole(GREY[..., None], [3]), 8, colour_key(3)), HOLED_GREY),
    # Pixels whose upper 8 bits only are those of the transparent colour stay.
    "tRNS, grey of 16 bits": (png(hole(WIDE[:, :, :1], [0x0512]), 16, colour_key(0x0512)), HOLED_GREY),
    "tRNS, grey of 16 bits, other colour": (png(WIDE[:, :, :1], 16, colour_key(int(WIDE[0, 9, 0]) - 1)), GREY),
    "tRNS, rgb of 8 bits": (png(hole(RGB, [1, 2, 3]), 8, colour_key(1, 2, 3)), HOLED),
    "tRNS, rgb of 16 bits": (png(hole(WIDE, [7, 8, 9]), 16, colour_key(7, 8, 9)), HOLED),
    "tRNS, palette": (encode(PALETTE, "PNG", transparency=0), np.where(HOLE[..., None], 255, SHADES)),
    **{
        f"tRNS, grey of {bits} bits": (
            png(np.where(HOLE, 0, levels)[..., None].astype(np.uint8), bits, colour_key(0)),
            np.where(HOLE, 255, levels * (255 // (2**bits - 1))),
        )
        for bits, levels in LEVELS.items()
    },
    "tRNS, highest grey of 4 bits": (
        png(np.where(HOLE, 1, LEVELS[4].clip(2))[..., None].astype(np.uint8), 4, colour_key(1)),
        np.where(HOLE, 255, LEVELS[4].clip(2) * 17),
    ),
    **{f"EXIF {orientation} of a JPEG": (exif_jpeg(orientation), RGB) for orientation in STORED},
    "EXIF in the other order of bytes": (exif_jpeg(6, order="big"), RGB),
    "EXIF behind long segments": (exif_jpeg(8, *LONG), RGB),
    "EXIF behind fill bytes": (exif_jpeg(6, b"\xff" * 5), RGB),
    "EXIF behind the tables": (
        with_segments(data := encode(STORED[6](RGB)), segment(0xE1, b"Exif\0\0" + tiff(6)), at=data.index(b"\xff\xda")),
        RGB,
    ),
    # In quantization tables, these bytes are no marker.
    "EXIF behind a table with FF DA": (
        with_segments(
            data := encode(STORED[6](RGB), qtables=[[2] * 62 + [255, 218]], quality=50),
            segment(0xE1, b"Exif\0\0" + tiff(6)),
            at=data.rindex(b"\xff\xda"),
        ),
        RGB,
    ),
    "EXIF in front of XMP": (exif_jpeg(6, segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + xmp(3))), RGB),
    "XMP of a JPEG": (
        with_segments(encode(STORED[6](RGB)), segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + xmp(6))),
        RGB,
    ),
    # Type 6, a byte with a sign.
    "EXIF of one byte": (
        with_segments(
            encode(STORED[6](RGB)),
            segment(0xE1, b"Exif\0\0" + tiff(6).replace(b"\x12\1\3\0", b"\x12\1\6\0")),
        ),
        RGB,
    ),
    "EXIF that is cut off": (with_segments(encode(RGB), segment(0xE1, b"Exif\0\0" + tiff(6)[:12])), RGB),
    **{
        f"eXIf {orientation}": (png(STORED[orientation](RGB), 8, chunk(b"eXIf", tiff(orientation))), RGB)
        for orientation in STORED
    },
    "eXIf behind the pixels": (png(STORED[8](RGB), 8, after=chunk(b"eXIf", tiff(8, "big"))), RGB),
    # The bytes IDAT are no chunk in a text, in a picture within the picture, and behind the compressed pixels.
    **{
        f"IDAT {place} the pixels": (png(STORED[6](RGB), 8, before, after + chunk(b"eXIf", tiff(6)), behind), RGB)
        for place, before, after, behind in (
            ("in front of", chunk(b"tEXt", b"Comment\0" + b"IDAT" * 9), b"", b""),
            ("in a text behind", b"", chunk(b"tEXt", b"Comment\0\0\0\0\4IDAT"), b""),
            ("in a picture behind", b"", chunk(b"prVw", png(RGB, 8)), b""),
            ("in an IDAT chunk of", b"", b"", b"IDAT"),
        )
    },
    "eXIf and tRNS": (
        png(STORED[6](hole(RGB, [1, 2, 3])), 8, colour_key(1, 2, 3), chunk(b"eXIf", tiff(6))),
        HOLED,
    ),
    "XMP of a PNG": (png(STORED[6](RGB), 8, chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp(6))), RGB),
    "compressed XMP": (
        png(STORED[6](RGB), 8, chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + zlib.compress(xmp(6)))),
        RGB,
    ),
    "XMP as compressed text": (
        png(STORED[6](RGB), 8, chunk(b"zTXt", b"XML:com.adobe.xmp\0\0" + zlib.compress(xmp(6)))),
        RGB,
    ),
    "EXIF as compressed text": (
        png(STORED[6](RGB), 8, chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(PROFILE.encode()))),
        RGB,
    ),
    "CMYK": (adobe_jpeg(ycck=False), RGB),
    "YCCK": (adobe_jpeg(ycck=True), RGB),
    "bytes behind a JPEG": (encode(RGB) + b"\0Exif\0\0" * 9, RGB),
    "bytes behind a PNG": (png(RGB, 8) + chunk(b"eXIf", tiff(6)), RGB),
    **{kind: (encode(RGB, kind), RGB) for kind in ("BMP", "TIFF", "PPM", "GIF")},
    "WEBP": (encode(RGB, "WEBP", lossless=True), RGB),
    **{
        f"grey TIFF of {depth} bits{' whose white is 0' * white}": (
            grey_tiff(np.abs((2**depth - 1) * white - (GREY.astype(int) << (depth - 8))), depth, white_is_zero=white),
            GREY,
        )
        for depth, white in ((8, False), (8, True), (12, False), (16, False), (16, True))
    },
    "grey PPM of 16 bits": (b"P5\n64 48\n65535\n" + (GREY.astype(np.uint16) * 257).astype(">u2").tobytes(), GREY),
}

#: Files that are refused on every path.
REFUSED: dict[str, bytes] = {
    "CMYK without Adobe's marker": without_adobe(adobe_jpeg(ycck=False)),
    "YCCK without Adobe's marker": without_adobe(adobe_jpeg(ycck=True)),
    "wrong checksum": broken_checksum(png(RGB, 8), b"IDAT"),
    "no IEND": png(RGB, 8)[:-12],
    "a cut PNG": png(RGB, 8)[:-40],
    # With checksums that are right.
    "fewer rows than the header says": whole_png(HEADER, zlib.compress(lines(RGB[:40]))),
    "compressed pixels without an end": whole_png(HEADER, zlib.compress(lines(RGB))[:-4]),
    "another compression": whole_png(HEADER[:-3] + b"\1\0\0", zlib.compress(lines(RGB))),
    "no palette": whole_png(HEADER[:-4] + b"\3\0\0\0", zlib.compress(lines(GREY))),
    "a cut JPEG": encode(RGB)[:-400],
    "no EOI": encode(RGB)[:-2],
    **{
        f"an unknown chunk {place} the pixels": png(RGB, 8, before, after)
        for place, before, after in (("in front of", chunk(b"ABCD", b"x"), b""), ("behind", b"", chunk(b"ABCD", b"x")))
    },
    "floats": encode(Image.fromarray(GREY.astype(np.float32)), "TIFF"),
    # Nothing tells whether 240 is white.
    "32 bits": grey_tiff(GREY, 32),
    **{f"signed {depth} bits": grey_tiff(GREY >> 1, depth, signed=True) for depth in (8, 16, 32)},
}

GREY_16 = GREY.astype(np.uint16) * 256 + 7
RGBA = np.dstack([RGB, (ALPHA >> 8).astype(np.uint8)])

#: PIL images and arrays, and their pixels.
OBJECTS: dict[str, tuple[ImageLike, np.ndarray]] = {
    "1": (Image.fromarray(HOLE), np.where(HOLE, 255, 0)),
    "L": (Image.fromarray(GREY), GREY),
    "LA": (Image.fromarray(RGBA).convert("LA"), np.where(HOLE, 255, Image.fromarray(RGB).convert("L"))),
    "P": (PALETTE, PALETTE.convert("RGB")),
    "PA": (PALETTE.convert("PA"), PALETTE.convert("RGB")),
    "I": (Image.open(io.BytesIO(b"P5\n64 48\n65535\n" + GREY_16.astype(">u2").tobytes())), GREY),
    "I;16": (Image.fromarray(GREY_16), GREY),
    "I;16B": (Image.frombytes("I;16B", (64, 48), GREY_16.astype(">u2").tobytes()), GREY),
    **{mode: (Image.fromarray(RGB).convert(mode), RGB) for mode in ("CMYK", "YCbCr", "HSV", "LAB")},
    "RGBA": (Image.fromarray(RGBA), HOLED),
    "RGBa": (Image.fromarray(RGBA).convert("RGBa"), HOLED),
    "La": (Image.fromarray(RGBA).convert("LA").convert("La"), np.where(HOLE, 255, Image.fromarray(RGB).convert("L"))),
    "array (h, w)": (GREY, GREY),
    "array (h, w, 1)": (GREY[..., None], GREY),
    "array (h, w, 4)": (RGBA, HOLED),
}


def pixels(encoded: list[bytes]) -> list[np.ndarray | None]:
    """What a model reads; None for rows that it refuses."""
    images, valid = decode_images(tf.constant(encoded), SIZE)
    return [image if ok else None for image, ok in zip(images.numpy(), valid.numpy(), strict=True)]


def plain(picture: np.ndarray | Image.Image) -> bytes:
    """The picture as a plain PNG."""
    array = np.asarray(picture).astype(np.uint8)
    return encode(Image.fromarray(array).convert("RGB"), "PNG")


def stored_in_dataset(images: list[ImageLike]) -> list[bytes]:
    """The bytes in a dataset of images; b"" for those that are left out."""
    captions = [f"picture {place}" for place in range(len(images))]
    data = vsemb.Dataset.from_pairs(images, captions, splits="train", on_bad="skip")
    split = data.split("train")
    kept = {own[0]: row for row, own in enumerate(split.caption_lists())}
    return [split.read_image(kept[caption]) if caption in kept else b"" for caption in captions]


def sanitised(image: ImageLike) -> bytes:
    try:
        return image_bytes(image)
    except VsembError:
        return b""


def assert_same(found: list[np.ndarray | None], wanted: list[np.ndarray | None], names: list[str], path: str) -> None:
    for name, one, truth in zip(names, found, wanted, strict=True):
        assert one is not None, (path, name)
        # JPEG and rounding change a level or two; a picture that is turned or has another colour, tens.
        assert np.abs(one - truth).mean() < 2, (path, name)


@pytest.fixture(scope="module")
def truths() -> list[np.ndarray | None]:
    return pixels([plain(truth) for _, truth in UNDERSTOOD.values()])


def test_the_graph_reads_a_file_as_it_is_meant(truths):
    files = {name: data for name, (data, _) in UNDERSTOOD.items()}
    decodable = [name for name in files if files[name].startswith((b"\xff\xd8\xff", b"\x89PNG"))]
    wanted = [truth for name, truth in zip(files, truths, strict=True) if name in decodable]
    assert_same(pixels([files[name] for name in decodable]), wanted, decodable, "graph")


# Pillow warns of EXIF that is cut off.
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_way_into_a_model_reads_a_file_as_it_is_meant(truths, tmp_path):
    names, files = [*UNDERSTOOD], [data for data, _ in UNDERSTOOD.values()]
    paths = [tmp_path / str(place) for place in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    ways = {
        "client": to_images(files),
        "client, by path": to_images(paths),
        "encode_images": [sanitised(data) for data in files],
        "dataset": stored_in_dataset(paths),
    }
    for way, encoded in ways.items():
        assert_same(pixels(encoded), truths, names, way)


def test_what_is_not_understood_is_refused_on_every_path(tmp_path, scenes):
    names, files = [*REFUSED], [*REFUSED.values()]
    assert pixels(files) == [None] * len(files)
    assert [sanitised(data) for data in files] == [b""] * len(files)
    assert pixels(to_images(files)) == [None] * len(files)
    whole = tmp_path / "whole.png"
    whole.write_bytes(plain(RGB))
    assert stored_in_dataset([*files, whole])[:-1] == [b""] * len(files)
    shown = DatasetPictures(scenes)
    for name, data in zip(names, files, strict=True):
        with pytest.raises(VsembError, match="unreadable"):
            raise AssertionError((name, shown.stored(data)))


GREY_HEADER = HEADER[:-4] + b"\0\0\0\0"
PALETTE_HEADER = HEADER[:-4] + b"\3\0\0\0"
TWO_COLOURS = chunk(b"PLTE", b"\1\2\3\4\5\6")
# libpng ignores such transparent colours, and Pillow reads them.
MISFITS = {
    "cut": whole_png(GREY_HEADER, zlib.compress(lines(GREY)), chunk(b"tRNS", b"\0")),
    "too long": whole_png(GREY_HEADER, zlib.compress(lines(GREY)), chunk(b"tRNS", b"\0\x20\0\0")),
    "repeated": whole_png(GREY_HEADER, zlib.compress(lines(GREY)), colour_key(32) + colour_key(50)),
    "behind the pixels": whole_png(GREY_HEADER, zlib.compress(lines(GREY)), after=colour_key(32)),
    "of two bits for one": png((X[..., None] >= 32).astype(np.uint8), 1, colour_key(2)),
    "more than the palette has": whole_png(
        PALETTE_HEADER, zlib.compress(lines((X >= 32).astype(np.uint8))), TWO_COLOURS + chunk(b"tRNS", b"\0\0\0")
    ),
    "in front of the palette": whole_png(
        PALETTE_HEADER, zlib.compress(lines((X >= 32).astype(np.uint8))), chunk(b"tRNS", b"\0") + TWO_COLOURS
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_transparent_colour_that_decoders_read_differently_is_refused_by_name(name: str) -> None:
    with pytest.raises(BadImage, match="tRNS"):
        sanitise_image(MISFITS[name])


def test_a_png_with_compressed_text_is_written_anew_because_the_graph_refuses_damage_in_it() -> None:
    broken = chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + b"no stream of zlib")
    stored = sanitise_image(png(RGB, 8, broken)).encoded
    assert_same(pixels([stored]), pixels([plain(RGB)]), ["compressed text"], "prepare")


def test_pil_images_and_arrays_mean_what_their_files_do(tmp_path):
    names, images = [*OBJECTS], [image for image, _ in OBJECTS.values()]
    wanted = pixels([plain(truth) for _, truth in OBJECTS.values()])
    assert_same(pixels([sanitised(image) for image in images]), wanted, names, "encode_images")
    assert_same(pixels(stored_in_dataset(images)), wanted, names, "dataset")


@pytest.mark.parametrize(
    "image",
    [
        Image.fromarray(GREY.astype(np.float32)),
        Image.fromarray(GREY.astype(np.int32)),
        GREY.astype(np.float32),
        RGB / 255,
    ],
    ids=["F", "I", "grey floats", "floats"],
)
def test_pixels_without_an_agreed_meaning_are_refused(image):
    with pytest.raises(VsembError):
        image_bytes(image)
    with pytest.raises(VsembError):
        vsemb.Dataset.from_pairs([image], ["a dog"])


def test_a_dataset_names_the_reason_of_a_pil_image_that_is_left_out():
    with pytest.raises(VsembError, match="floating-point"):
        vsemb.Dataset.from_pairs([Image.fromarray(GREY.astype(np.float32))], ["a dog"])


def test_pil_images_of_files_are_turned_and_laid_on_white():
    for name in ("EXIF 6 of a JPEG", "eXIf 8", "XMP of a JPEG", "tRNS, rgb of 8 bits", "tRNS, grey of 16 bits"):
        data, truth = UNDERSTOOD[name]
        opened = Image.open(io.BytesIO(data))
        assert_same(pixels([image_bytes(opened)]), pixels([plain(truth)]), [name], "PIL")


def test_pil_images_whose_depth_is_lost_are_refused():
    deep = png(hole(WIDE, [0x0107, 8, 9]), 16, colour_key(0x0107, 8, 9))
    two_bits = png(np.where(HOLE, 1, LEVELS[2].clip(2))[..., None].astype(np.uint8), 2, colour_key(1))
    for data in (UNDERSTOOD["tRNS, highest grey of 4 bits"][0], two_bits, deep, UNDERSTOOD["tRNS, rgb of 16 bits"][0]):
        with pytest.raises(VsembError, match="transparent colour"):
            image_bytes(Image.open(io.BytesIO(data)))
    loaded = Image.open(io.BytesIO(deep))
    loaded.load()
    with pytest.raises(VsembError, match="transparent colour"):
        image_bytes(loaded)


def test_embeddings_are_those_of_the_plain_picture(tiny_pixel_run, tmp_path: Path):
    chosen = ["EXIF behind long segments", "eXIf 6", "tRNS, rgb of 8 bits", "rgb of 16 bits", "YCCK", "CMYK", "TIFF"]
    names = []
    for place, name in enumerate(chosen):
        for kind, data in (("file", UNDERSTOOD[name][0]), ("plain", plain(UNDERSTOOD[name][1]))):
            names.append(str(tmp_path / f"{place}-{kind}"))
            Path(names[-1]).write_bytes(data)
    model = vsemb.load(tiny_pixel_run.path)
    by_path = model.encode_images(names)
    of_bytes = model.encode_images([Path(name).read_bytes() for name in names])
    embedded = embed_files(tiny_pixel_run, names, tmp_path / "vectors.npy").embeddings
    for vectors in (by_path, of_bytes, embedded):
        # The plain pictures are the same on every path.
        cosines = (vectors[::2] * by_path[1::2]).sum(axis=1)
        assert (cosines >= 0.9999).all(), dict(zip(chosen, cosines, strict=True))


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_one_changed_byte_never_passes_prepare_and_fails_the_graph(kind):
    random = np.random.default_rng(0)
    whole = encode(np.clip(RGB + random.integers(-20, 20, RGB.shape), 0, 255).astype(np.uint8), kind)
    changed, stored = [], []
    for _ in range(60):
        data = bytearray(whole)
        data[random.integers(len(data))] ^= random.integers(1, 256)
        try:
            stored.append(sanitise_image(bytes(data)).encoded)
            changed.append(bytes(data))
        except BadImage:
            continue
    if kind == "PNG":  # Its checksums find every change.
        assert not stored
        return
    for raw, kept in zip(pixels(changed), pixels(stored), strict=True):
        assert kept is not None
        assert raw is None or np.abs(raw - kept).mean() < 3

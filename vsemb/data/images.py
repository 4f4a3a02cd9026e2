"""Source images made safe to store: fully decoded once, upright, JPEG or PNG, 8 bits, no alpha.

Later readers of a dataset (in graph, in TensorFlow Serving, on another machine) meet only files that all decoders
agree on. Bytes that already satisfy this are kept untouched. `vsemb.image.decode` decodes in graph by the same rules.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from PIL import Image, UnidentifiedImageError

from vsemb.data.damage import Damaged, is_plain_jpeg, is_plain_png, require_pixels
from vsemb.data.uris import scheme
from vsemb.errors import DataError, InvalidArgumentError, invalid_argument, one_line, reason_of
from vsemb.files import read_bytes

#: One image: the path of a file, the bytes of a file, a PIL image, or an array, uint8 (height, width, 3).
ImageLike: TypeAlias = str | os.PathLike[str] | bytes | Image.Image | np.ndarray

MAX_PIXELS = 50_000_000
JPEG_QUALITY = 95

# An allow-list, because some of Pillow's other plugins start external programs (EPS) on what they are fed.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
_IMAGE = "a path, the bytes of a file, a PIL image, or uint8 (height, width, 3)"
# MPO: a JPEG followed by more pictures; decoders read the first.
_JPEG = ("JPEG", "MPO")
# Longest side of an image, that of JPEG.
_MAX_SIDE = 65_535
_ENDINGS = (b".jpg", b".jpeg", b".png", b".gif", b".bmp", b".webp")
_DEPTH_LOST = (
    "its transparent colour is not known, because Pillow shows pixels of 2, 4 and 16 bits as 8 bits; pass the path or "
    "the bytes of its file"
)
_NO_RANGE = "{} pixels have no agreed range; convert it to 8 bits"
_ORIENTATION = 0x0112
# Tags of TIFF, and values of them.
_BITS_PER_SAMPLE, _PHOTOMETRIC, _SAMPLE_FORMAT = 258, 262, 339
_WHITE_IS_ZERO, _SIGNED = 0, 2
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class BadImage(Exception):
    """An image that cannot be stored; the message is the reason, without the name of the file."""


@dataclass(frozen=True)
class StoredImage:
    """An image as it goes into a shard.

    Attributes:
        encoded: JPEG or PNG bytes.
        width: pixels, after orientation and shrinking.
        height: pixels, after orientation and shrinking.
        scale: (x, y) factors from the upright source's pixels to the stored ones.
        turned: whether an EXIF orientation other than 1 was applied.
    """

    encoded: bytes
    width: int
    height: int
    scale: tuple[float, float] = (1.0, 1.0)
    turned: bool = False


def sanitise_image(data: bytes, max_side: int | None = None) -> StoredImage:
    """Check an encoded image by decoding all of it, and convert it where needed.

    Kept byte for byte: 8-bit grey or RGB JPEG and PNG that are upright, not larger than `max_side`, and of a structure
    that all decoders read alike. Everything else is re-encoded. EXIF orientation is applied. Palettes, alpha and
    transparent colours (on white), PNG and GIF become RGB or grey PNG. Other formats (BMP, WebP, TIFF, PPM, CMYK JPEG)
    become JPEG of quality 95 without chroma subsampling. Samples of 12 and 16 bits keep their upper 8 bits, and an
    animation its first frame.

    Args:
        data: the encoded image.
        max_side: if given, larger images are shrunk (Lanczos) so that the longer side has this many pixels.

    Returns:
        The image to store.

    Raises:
        BadImage: if it is not an image, is truncated or broken (for PNG, also if a checksum is wrong), has more than 50
            million pixels, or its colours are not known (CMYK JPEG without Adobe's marker; floating-point, signed or
            32-bit pixels).

    Example:

    >>> buffer = io.BytesIO()
    >>> Image.new("RGBA", (4, 3)).save(buffer, "PNG")
    >>> stored = sanitise_image(buffer.getvalue())
    >>> stored.width, stored.height, Image.open(io.BytesIO(stored.encoded)).mode
    (4, 3, 'RGB')
    """
    with _reasons(data):
        return _sanitise(data, max_side)


def preview(data: bytes, side: int) -> Image.Image:
    """Decode an image to be shown small: upright, RGB, by the rules of `sanitise_image`.

    Large JPEGs are decoded at a lower resolution, which takes a fraction of the time.

    Args:
        data: the encoded image.
        side: number of pixels to which the longer side is shrunk later.

    Returns:
        The image; its longer side has at least `side` pixels, if the encoded image has.

    Raises:
        BadImage: as `sanitise_image`, except for damage that decoders bear.

    Example:

    >>> buffer = io.BytesIO()
    >>> Image.new("RGBA", (40, 30)).save(buffer, "PNG")
    >>> preview(buffer.getvalue(), 20).mode
    'RGB'
    """
    with _reasons(data), Image.open(io.BytesIO(data), formats=_FORMATS) as image:
        _check_size(image)
        image.draft("RGB", (side, side))
        image.load()
        flat, _ = _flattened(image, data)
        return _turned(flat, _orientation(image)).convert("RGB")


@contextmanager
def _reasons(data: bytes) -> Iterator[None]:
    """Turn what decoding of some bytes raises into `BadImage`."""
    if not data:
        raise BadImage("the file is empty")
    try:
        yield
    except (BadImage, MemoryError):
        raise
    except Damaged as error:
        raise BadImage(str(error)) from error
    except UnidentifiedImageError as error:
        raise BadImage(_unidentified(data)) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadImage(f"more than {MAX_PIXELS:,} pixels") from error
    except Exception as error:  # Pillow's decoders raise nearly anything on broken input.
        raise BadImage(f"cannot be decoded: {' '.join(str(error).split()) or type(error).__name__}") from error


def _unidentified(data: bytes) -> str:
    """Return why Pillow finds no image in bytes."""
    checks = {b"\x89PNG\r\n\x1a\n": is_plain_png, b"\xff\xd8\xff": is_plain_jpeg}
    for start, is_plain in checks.items():
        if data.startswith(start):
            try:
                is_plain(data)
            except Damaged as error:
                return str(error)
    fix = "; convert HEIC to JPEG" if data[4:11] in (b"ftyphei", b"ftyphev", b"ftypmif") else ""
    if data.lower().endswith(_ENDINGS):
        fix = f"; these bytes are the name {one_line(repr(data), 60)}: read the file, in tf.data by tf.io.read_file"
    return f"not an image in a known format ({', '.join(_FORMATS)}){fix}"


def is_image(value: object) -> bool:
    """Whether a value is one image of `ImageLike`, and not several.

    Example:

    >>> is_image("dog.jpg"), is_image(["dog.jpg"]), is_image(np.zeros((5, 8, 8, 3), np.uint8))
    (True, False, False)
    """
    if isinstance(value, str | os.PathLike | bytes | bytearray | memoryview | Image.Image):
        return True
    return hasattr(value, "__array__") and np.ndim(value) in (2, 3)


def check_image(image: object, name: str = "image") -> None:
    """Refuse what is not one image of `ImageLike`; files and bytes are not read.

    Args:
        image: the value.
        name: name of the argument, for errors.

    Raises:
        InvalidArgumentError: naming the type, or the dtype and shape of an array.
    """
    if not is_image(image):
        received = getattr(image, "shape", type(image).__name__)
        raise invalid_argument(name, received, _IMAGE)
    if isinstance(image, str | os.PathLike) and "\0" in str(image):
        raise invalid_argument(name, one_line(ascii(str(image)), 60), _IMAGE, "Pass the content of a file as bytes.")
    if isinstance(image, str) and scheme(image):
        fix = "Download it first; `vsemb prepare TABLE --uris` downloads the images of a table."
        raise invalid_argument(name, image, _IMAGE, fix)
    # NumPy's strings are arrays, too.
    if not hasattr(image, "__array__") or isinstance(image, str | bytes | Image.Image):
        return
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8:
        fix = "Scale pixels to 0-255 and convert them: array.astype('uint8')"
        raise invalid_argument(name, f"{pixels.dtype} {pixels.shape}", _IMAGE, fix)
    if not pixels.size or (pixels.ndim == 3 and pixels.shape[2] not in (1, 3, 4)):
        raise invalid_argument(name, pixels.shape, _IMAGE)


def image_source(image: ImageLike) -> Path | bytes:
    """Return the file of an image, or its bytes where it is in memory.

    Args:
        image: a path, the bytes of a file, a PIL image, or what NumPy reads as uint8 (height, width, 3), such as a
            tensor; also (height, width) and with one or four channels. Pixels are written as PNG, upright, by the rules
            of `sanitise_image`. A transparent colour of up to 255 in a loaded RGB image is one of 8 bits: Pillow does
            not tell that the file had 16.

    Raises:
        InvalidArgumentError: for anything else.
        BadImage: for a PIL image that cannot be loaded, or whose colours are not known. Pillow shows grey PNGs of 2 and
            4 bits, and RGB PNGs of 16 bits, as 8 bits, so those with a transparent colour may be refused.

    Example:

    >>> image_source("dog.jpg"), image_source(np.zeros((2, 2, 3), np.uint8))[:4]
    (PosixPath('dog.jpg'), b'\\x89PNG')
    """
    check_image(image)
    if isinstance(image, str | os.PathLike):
        return Path(image)
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if not isinstance(image, Image.Image):
        pixels = np.asarray(image)
        image = Image.fromarray(pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)
    try:
        # Pillow forgets the depth of the file when it loads the pixels.
        if "transparency" in image.info and "RGB;16" in str(getattr(image, "tile", "")):
            raise BadImage(_DEPTH_LOST)
        image.load()
        flat, _ = _flattened(image)
    except (BadImage, MemoryError):
        raise
    except Exception as error:  # As in `sanitise_image`.
        raise BadImage(f"cannot be decoded: {one_line(error, 200)}") from error
    buffer = io.BytesIO()
    _turned(flat, _orientation(image)).save(buffer, "PNG")
    return buffer.getvalue()


def image_bytes(image: ImageLike) -> bytes:
    """Return an image as a dataset stores it: JPEG or PNG, upright, 8 bits, RGB or grey.

    Args:
        image: as `image_source`.

    Raises:
        DataError: if it cannot be read or decoded.
        InvalidArgumentError: for what is not an image.

    Example:

        encoded = image_bytes("dog.webp")
    """
    name = os.fspath(image) if isinstance(image, str | os.PathLike) else f"({type(image).__name__})"
    try:
        source = image_source(image)
        return sanitise_image(source if isinstance(source, bytes) else read_bytes(source)).encoded
    except InvalidArgumentError:
        raise
    except (OSError, ValueError) as error:
        raise DataError(f"Cannot read the image {name}: {reason_of(error)}.") from error
    except BadImage as error:
        raise DataError(f"Cannot read the image {name}: {error}.") from error


def _sanitise(data: bytes, max_side: int | None) -> StoredImage:
    with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
        _check_size(image)
        plain = _is_plain(image, data)
        image.load()
        if image.format == "PNG":
            require_pixels(data)
        orientation = _orientation(image)
        longest = max(image.size)
        too_large = max_side is not None and longest > max_side
        if orientation == 1 and not too_large and plain and _storable(image, data):
            return StoredImage(data, image.width, image.height)
        flat, lossless = _flattened(image, data)
        lossless = lossless or image.format in ("PNG", "GIF")
    flat = _turned(flat, orientation)
    upright = flat.size
    if max_side is not None and too_large:
        size = tuple(max(1, round(side * max_side / longest)) for side in upright)
        flat = flat.resize((size[0], size[1]), Image.Resampling.LANCZOS, reducing_gap=3.0)
    buffer = io.BytesIO()
    if lossless:
        flat.save(buffer, "PNG")
    else:
        flat.save(buffer, "JPEG", quality=JPEG_QUALITY, subsampling=0)
    scale = (flat.width / upright[0], flat.height / upright[1])
    return StoredImage(buffer.getvalue(), flat.width, flat.height, scale, orientation != 1)


def _check_size(image: Image.Image) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise BadImage(f"more than {MAX_PIXELS:,} pixels ({image.width} x {image.height})")
    if max(image.size) > _MAX_SIDE:
        raise BadImage(f"a side of more than {_MAX_SIDE:,} pixels ({image.width} x {image.height})")


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 where there is none or the EXIF block is broken."""
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # A picture is not worse for a broken EXIF block; viewers show it as it is.
        return 1
    return value if isinstance(value, int) and value in _TRANSPOSE else 1


def _turned(flat: Image.Image, orientation: int) -> Image.Image:
    flat = flat.transpose(_TRANSPOSE[orientation]) if orientation in _TRANSPOSE else flat
    # Pillow would write these into the file.
    for name in ("exif", "xmp", "XML:com.adobe.xmp", "transparency"):
        flat.info.pop(name, None)
    return flat


def _storable(image: Image.Image, data: bytes) -> bool:
    if image.mode not in ("L", "RGB"):
        return False
    if image.format in _JPEG:
        return True
    return image.format == "PNG" and "transparency" not in image.info and _png_depth(image, data) <= 8


def _is_plain(image: Image.Image, data: bytes) -> bool:
    if image.format in _JPEG:
        return is_plain_jpeg(data)
    return image.format == "PNG" and is_plain_png(data)


def _png_depth(image: Image.Image, data: bytes | None) -> int:
    """Return the bit depth in the header of a PNG, as Pillow shows 16-bit RGB as mode RGB; 8 for other images."""
    return data[24] if data is not None and image.format == "PNG" else 8


def _flattened(image: Image.Image, data: bytes | None = None) -> tuple[Image.Image, bool]:
    """Return (a grey or RGB image of 8 bits without alpha, whether it should be stored without loss).

    Args:
        image: a loaded image.
        data: bytes of its file; None for an image in memory.
    """
    mode = image.mode
    transparent = _transparent_colour(image, data)
    if transparent is not None:
        flat, _ = _eight_bits(image)
        pixels = np.array(flat)
        pixels[transparent] = 255
        return Image.fromarray(pixels), True
    if mode in ("P", "PA", "LA", "La", "RGBA", "RGBa") or "transparency" in image.info:
        # Pillow converts premultiplied grey to grey only.
        alpha = (image.convert("LA") if mode == "La" else image).convert("RGBA")
        white = Image.new("RGBA", alpha.size, "white")
        return Image.alpha_composite(white, alpha).convert("RGB"), True
    return _eight_bits(image)


def _eight_bits(image: Image.Image) -> tuple[Image.Image, bool]:
    """Return `_flattened` of an image without transparency."""
    mode = image.mode
    if mode == "1":
        return image.convert("L"), True
    # Those of a TIFF file.
    tags = getattr(image, "tag_v2", {})
    if _SIGNED in tags.get(_SAMPLE_FORMAT, ()):
        raise BadImage(_NO_RANGE.format("signed"))
    if mode == "I" or mode.startswith("I;16"):
        depth = 16 if mode != "I" or image.format in ("PNG", "PPM") else 32
        (depth,) = tags.get(_BITS_PER_SAMPLE, (depth,))
        if depth > 16:
            raise BadImage(_NO_RANGE.format("32-bit"))
        values = np.asarray(image) >> (depth - 8)
        if tags and tags.get(_PHOTOMETRIC, _WHITE_IS_ZERO) == _WHITE_IS_ZERO:
            # Pillow inverts 8 bits, and not 16.
            values = 255 - values
        return Image.fromarray(values.astype(np.uint8)), False
    if mode == "F":
        raise BadImage(_NO_RANGE.format("floating-point"))
    if mode == "CMYK" and image.format in _JPEG and "adobe_transform" not in image.info:
        raise BadImage("a CMYK or YCCK JPEG without Adobe's marker, so its colours are not known; convert it to RGB")
    return (image.copy() if mode in ("L", "RGB") else image.convert("RGB")), False


def _transparent_colour(image: Image.Image, data: bytes | None) -> np.ndarray | None:
    """Return where pixels have the transparent colour of a grey or RGB image, (height, width) bool, or None.

    Raises:
        BadImage: if the colour is not known, because it is of another depth than the pixels of an image in memory.
    """
    colour = image.info.get("transparency")
    if image.mode not in ("1", "L", "I", "I;16", "RGB") or colour is None or isinstance(colour, bytes):
        return None
    depth = _png_depth(image, data)
    wanted = np.array(colour)
    values = np.asarray(image.convert("L") if image.mode == "1" else image)
    if image.mode == "L":
        # Pillow scales grey of 2 and 4 bits to 8, but not the transparent one. Of 16 bits in the file, the lower count.
        most = 2 ** min(depth, 8) - 1
        wanted = (wanted & most) * (255 // most)
        # Grey of 4 bits has multiples of 17, and of 2 bits multiples of 85.
        if data is None and any(_may_be_scaled(values, colour, step) for step in (17, 85)):
            raise BadImage(_DEPTH_LOST)
    elif image.mode == "RGB" and depth == 16 and data is not None:
        values = values.astype(np.uint16) << 8 | _lower_bytes(data)
    elif image.mode == "RGB":
        if data is None and wanted.max() > 255:
            raise BadImage(_DEPTH_LOST)
        wanted = wanted & 255
    same = values == wanted
    return same.all(axis=2) if same.ndim == 3 else same


def _may_be_scaled(values: np.ndarray, colour: int, step: int) -> bool:
    """Return whether grey values may be multiples of a step, with some of a colour that is not scaled."""
    scaled = step * colour
    return bool(0 < scaled <= 255 and not (values % step).any() and (values == scaled).any())


def _lower_bytes(data: bytes) -> np.ndarray:
    """Return the lower 8 of the 16 bits of an RGB PNG, (height, width, 3); Pillow shows the upper ones."""
    with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
        # Read big-endian values as little-endian ones.
        image.tile = [tile._replace(args="RGB;16L") for tile in image.tile]
        return np.asarray(image)

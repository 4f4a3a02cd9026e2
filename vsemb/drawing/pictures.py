"""Picture files, boxes in pixels, crops, thumbnails, drawable text and contact sheets."""

from __future__ import annotations

import base64
import bisect
import dataclasses
import io
import math
import os
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps, UnidentifiedImageError

from vsemb.errors import DataError, invalid_argument, printable
from vsemb.files import refuse_foreign, replacing

if TYPE_CHECKING:
    from vsemb.data.store import Split

#: Maximum number of pictures per contact sheet, so that image viewers can open it.
MOST_TILES = 400
#: Colours of the background and of text.
PAPER, INK = "#faf7f0", "#2b2926"

_FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
_QUALITY, _SMALL_QUALITY, _WEBP_QUALITY = 92, 80, 50
# Field of EXIF that names the program, and its value in pictures of vsemb, which may be replaced.
_SOFTWARE, _VSEMB = 0x0131, "vsemb"
_TILE_PAPER = "#f4efe6"
Rectangle = tuple[int, int, int, int]
R = TypeVar("R", bound=Any)
Font: TypeAlias = "ImageFont.FreeTypeFont | ImageFont.ImageFont"


def check_picture_path(path: str | os.PathLike[str], images: Sequence[str | os.PathLike[str]] = ()) -> str:
    """Return the format of a picture by the ending of its name, `"PNG"` or `"JPEG"`.

    Args:
        path: the file to write.
        images: files that are read; the picture must not replace them.

    Raises:
        InvalidArgumentError: for any other ending, the path of an image, or an existing file that vsemb did not write,
            such as a photo.

    Example:

    >>> check_picture_path("aligned.jpg")
    'JPEG'
    """
    name = os.fspath(path)
    if Path(name).suffix.lower() not in _FORMATS:
        raise invalid_argument("out", name, f"a name that ends in one of {', '.join(_FORMATS)}")
    if os.path.realpath(name) in map(os.path.realpath, images):
        raise invalid_argument("out", name, "another file than the image, which it would replace")
    refuse_foreign(name, _is_ours)
    return _FORMATS[Path(name).suffix.lower()]


def with_picture(text: str, out: str | None) -> str:
    """Return the text of a result, with the file of its picture below, if there is one."""
    return text if out is None else f"{text}\n\n{printable(out)}"


def save_picture(picture: Image.Image, path: str | os.PathLike[str]) -> None:
    """Write a picture atomically, as PNG or JPEG by the ending of its name.

    Raises:
        InvalidArgumentError: for any other ending.
        DataError: if the file cannot be written.
    """
    format = check_picture_path(path)
    mark = Image.Exif()
    mark[_SOFTWARE] = _VSEMB
    options = {"quality": _QUALITY} if format == "JPEG" else {}
    with replacing(path) as temporary:
        picture.save(temporary, format, exif=mark, **options)


def _is_ours(path: Path) -> bool:
    """Return whether `save_picture` wrote a file."""
    try:
        with Image.open(path) as picture:
            return bool(picture.getexif().get(_SOFTWARE) == _VSEMB)
    except Exception:  # Pillow's decoders raise many types on broken input
        return False


def with_drawing(result: R, draw: Callable[[], Image.Image], out: str | os.PathLike[str] | None) -> R:
    """Write the drawing of a result.

    Args:
        result: a dataclass with a field `out`.
        draw: draws the picture.
        out: the file, as of `save_picture`; None for no drawing.

    Returns:
        The result, with the file as `out` if there is one.
    """
    if out is None:
        return result
    save_picture(draw(), out)
    return dataclasses.replace(result, out=os.fspath(out))


def read_picture(encoded: bytes, name: str, side: int | None = None) -> Image.Image:
    """Decode an image of a dataset to RGB.

    Args:
        encoded: JPEG or PNG bytes.
        name: name of the image in errors.
        side: side in pixels to which the image is shrunk later; large JPEGs are then decoded at a lower resolution.
            None decodes at full resolution.

    Raises:
        DataError: if the image is damaged.
    """
    try:
        with Image.open(io.BytesIO(encoded), formats=("JPEG", "PNG")) as image:
            if side is not None:
                image.draft("RGB", (2 * side, 2 * side))
            return image.convert("RGB")
    except (OSError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise DataError(f"The image {name!r} does not decode: {error}.") from error


def pixel_box(box: Sequence[float] | np.ndarray, size: tuple[int, int]) -> Rectangle:
    """Return a box in whole pixels, inside the image and at least one pixel wide and high.

    Args:
        box: [x, y, width, height] as fractions of the image's width and height.
        size: width and height of the image in pixels.

    Returns:
        (x, y, width, height) in pixels.

    Example:

    >>> pixel_box([0.25, 0.5, 0.5, 0.5], (200, 100))
    (50, 50, 100, 50)
    """
    x, width = _span(box[0], box[2], size[0])
    y, height = _span(box[1], box[3], size[1])
    return x, y, width, height


def box_text(box: Sequence[float]) -> str:
    """Return a box as text for tables."""
    return " ".join(map(str, box))


def _span(start: float, length: float, pixels: int) -> tuple[int, int]:
    first = min(max(round(float(start) * pixels), 0), pixels - 1)
    last = min(max(round(float(start + length) * pixels), first + 1), pixels)
    return first, last - first


def crop(image: Image.Image, box: Rectangle) -> Image.Image:
    """Return the part of an image inside a box in pixels from `pixel_box`."""
    x, y, width, height = box
    return image.crop((x, y, x + width, y + height))


def scaled_to(image: Image.Image, side: int) -> Image.Image:
    """Return an RGB image, scaled so that the longer side has `side` pixels."""
    scale = side / max(image.size)
    width, height = (max(1, round(length * scale)) for length in image.size)
    return image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3.0)


def decimals(values: Iterable[float]) -> int:
    """Return the number of decimals, at most 4, that show the largest value with three digits.

    Example:

    >>> decimals([0.25, -1.5]), decimals([0.04]), decimals([250.0]), decimals([])
    (2, 4, 0, 2)
    """
    largest = max((abs(float(value)) for value in values if math.isfinite(value)), default=1.0)
    if largest == 0:
        return 2
    return min(max(2 - math.floor(math.log10(largest)), 0), 4)


def drawable(text: str) -> str:
    """Return a text without control characters, and without accents, which Pillow's font lacks."""
    letters = unicodedata.normalize("NFKD", text)
    letters = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return "".join(letter if letter.isprintable() else " " for letter in letters)


def cut_text(text: str, font: Font, width: float) -> str:
    """Return a text truncated to a width in pixels, with an ellipsis if it is truncated."""
    text = drawable(text)
    if font.getlength(text) <= width:
        return text
    kept = bisect.bisect(range(1, len(text)), width, key=lambda count: font.getlength(text[:count] + "…"))
    return text[:kept] + "…"


def contact_sheet(tiles: Sequence[tuple[Image.Image, str]], side: int = 160) -> Image.Image:
    """Arrange pictures in rows, each with lines of text below it.

    Args:
        tiles: pictures of any size, with texts of one or more lines. Only the first `MOST_TILES` are shown.
        side: side in pixels of the square that each picture is scaled to.

    Returns:
        The contact sheet, RGB.

    Raises:
        InvalidArgumentError: if `tiles` is empty.

    Example:

    >>> contact_sheet([(Image.new("RGB", (30, 20)), "1.00")] * 5, side=100).size
    (332, 264)
    """
    if not tiles:
        raise invalid_argument("tiles", list(tiles), "one picture or more")
    tiles = tiles[:MOST_TILES]
    gap, size = 8, max(10, side // 11)
    font = ImageFont.load_default(size=size)
    below = size * (2 + max(text.count("\n") for _, text in tiles))
    columns = min(len(tiles), math.ceil(1.2 * math.sqrt(len(tiles))))
    rows = math.ceil(len(tiles) / columns)
    sheet = Image.new("RGB", (columns * (side + gap) + gap, rows * (side + below + gap) + gap), PAPER)
    pen = ImageDraw.Draw(sheet)
    for number, (picture, text) in enumerate(tiles):
        x = gap + number % columns * (side + gap)
        y = gap + number // columns * (side + below + gap)
        small = scaled_to(picture, side)
        sheet.paste(small, (x + (side - small.width) // 2, y + (side - small.height) // 2))
        for number_of_line, line in enumerate(text.split("\n")):
            middle = (x + side // 2, y + side + 2 + number_of_line * round(1.2 * size))
            pen.text(middle, cut_text(line, font, side), INK, font, "ma")
    return sheet


def thumbnail(split: Split, row: int, side: int) -> Image.Image:
    """Return a thumbnail of an image in a split: RGB, the longer side has `side` pixels.

    Raises:
        DataError: if the image is damaged, or the dataset holds only precomputed features.
    """
    return scaled_to(read_picture(split.read_image(row), split.keys[row], side), side)


def square_thumbnail(split: Split, row: int, side: int) -> Image.Image:
    """Return a thumbnail of an image in a split, centred on a black square of `side` pixels."""
    return ImageOps.pad(thumbnail(split, row, side), (side, side))


def text_tile(text: str, side: int) -> Image.Image:
    """Return a square of `side` pixels with a text, truncated to fit.

    Example:

    >>> text_tile("a dog on a beach", 96).size
    (96, 96)
    """
    tile = Image.new("RGB", (side, side), _TILE_PAPER)
    size = max(8, side // 8)
    font = ImageFont.load_default(size=size)
    lines = textwrap.wrap(text, max(1, round(1.75 * side / size)), max_lines=max(1, side // (size + 2)))
    pen = ImageDraw.Draw(tile)
    pen.multiline_text((side // 2, side // 2), "\n".join(lines), INK, font, "mm", spacing=1, align="center")
    return tile


def jpeg_bytes(image: Image.Image) -> bytes:
    """Return a small image as JPEG."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=_SMALL_QUALITY, optimize=True)
    return buffer.getvalue()


def data_uri(image: Image.Image) -> str:
    """Return an image as the `data:` URI of a JPEG."""
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg_bytes(image)).decode()}"


def webp_uri(image: Image.Image) -> str:
    """Return an image as the `data:` URI of a WebP, which has half the size of the JPEG of `data_uri`."""
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=_WEBP_QUALITY)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"

"""Small pictures of a dataset's images, and of sentences, for sheets and pages."""

from __future__ import annotations

import base64
import io
import textwrap

from PIL import Image, ImageDraw, ImageFont, UnidentifiedImageError

from vsemb.data.store import Split
from vsemb.errors import DataError

_PAPER, _INK = "#f4efe6", "#2b2926"
_QUALITY = 80


def thumbnail(split: Split, row: int, side: int) -> Image.Image:
    """Returns an image of a split, shrunk: RGB, the longer side `side` pixels.

    Raises:
        DataError: if the image is damaged, or the dataset holds precomputed features only.
    """
    encoded = split.read_image(row)
    try:
        with Image.open(io.BytesIO(encoded), formats=("JPEG", "PNG")) as image:
            # Lets JPEG decode at a fraction of its size.
            image.draft("RGB", (2 * side, 2 * side))
            small = image.convert("RGB")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise DataError(f"The image {split.keys[row]!r} of {split.name!r} does not decode: {error}.") from error
    scale = side / max(small.size)
    width, height = (max(1, round(length * scale)) for length in small.size)
    return small.resize((width, height), Image.Resampling.LANCZOS)


def square_thumbnail(split: Split, row: int, side: int) -> Image.Image:
    """Returns an image of a split in the middle of a black square of `side` pixels."""
    small = thumbnail(split, row, side)
    square = Image.new("RGB", (side, side))
    square.paste(small, ((side - small.width) // 2, (side - small.height) // 2))
    return square


def text_tile(text: str, side: int) -> Image.Image:
    """Returns a square of `side` pixels with as much of a text as fits on it.

    Example:

    >>> text_tile("a dog on a beach", 96).size
    (96, 96)
    """
    tile = Image.new("RGB", (side, side), _PAPER)
    size = max(8, side // 8)
    font = ImageFont.load_default(size=size)
    lines = textwrap.wrap(text, max(1, round(1.75 * side / size)), max_lines=max(1, side // (size + 2)))
    pen = ImageDraw.Draw(tile)
    pen.multiline_text((side // 2, side // 2), "\n".join(lines), _INK, font, "mm", spacing=1, align="center")
    return tile


def data_uri(image: Image.Image) -> str:
    """Returns an image as a `data:` address of a JPEG."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=_QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"

"""A folder that TensorBoard's embedding projector shows: vectors, what they stand for, and thumbnails.

    <directory>/
      projector_config.pbtxt      which tensors there are
      NAME.tsv                    vectors, one a line
      NAME.metadata.tsv           what each of them stands for, one a line, with a header
      NAME.sprite.jpg             their thumbnails, row by row in one sheet
      events.out.tfevents.…       a line of text

A directory without an event file is no run to TensorBoard, and invisible. Vectors are written as text:
TensorBoard takes a file for binary only where reading it as text fails, which a binary file may not do.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from vsemb.errors import DataError, invalid_argument
from vsemb.files import replacing_directory

#: Longest side of a sprite sheet in pixels, beyond which browsers' graphics refuse it.
MAX_SHEET = 8192
#: Largest and smallest side of a thumbnail in pixels.
MAX_SIDE, MIN_SIDE = 96, 64
#: So many thumbnails of the smallest side fit.
MAX_POINTS = (MAX_SHEET // MIN_SIDE) ** 2

CONFIG = "projector_config.pbtxt"
_QUALITY = 88
_EVENTS = "events.out.tfevents."
# Those that Python and JavaScript take for the end of a line, and NUL.
_SEPARATORS = re.compile(r"[\t-\r\x00\x1c-\x1e\x85\u2028\u2029]+")
_NAME = re.compile(r"[a-z][a-z0-9-]*")


@dataclass(frozen=True, eq=False)
class ProjectorTensor:
    """Vectors and what they stand for.

    Attributes:
        name: lower-case letters, digits and hyphens.
        embeddings: (n, dim) float32, finite.
        columns: name of a column -> n values; the first column labels the points.
        thumbnails: n images, all of one size, or None for points.
    """

    name: str
    embeddings: np.ndarray
    columns: Mapping[str, Sequence[object]]
    thumbnails: Sequence[Image.Image] | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise invalid_argument("name", self.name, "lower-case letters, digits and hyphens")
        if self.embeddings.ndim != 2 or not 1 <= len(self.embeddings) <= MAX_POINTS:
            allowed = f"two dimensions, the first from 1 to {MAX_POINTS}"
            raise invalid_argument("embeddings", self.embeddings.shape, allowed)
        if not np.isfinite(self.embeddings).all():
            raise DataError(f"The embeddings of {self.name!r} hold NaN or infinity; nothing was written.")
        described = {name: len(values) for name, values in self.columns.items()}
        if self.thumbnails is not None:
            described["thumbnails"] = len(self.thumbnails)
        if not self.columns or set(described.values()) != {len(self.embeddings)}:
            raise invalid_argument("columns", described, f"{len(self.embeddings)} values each")


def thumbnail_side(count: int) -> int:
    """Returns the side in pixels with which so many thumbnails fit a sprite sheet.

    Example:

    >>> thumbnail_side(100), thumbnail_side(10_000)
    (96, 81)
    """
    if not 1 <= count <= MAX_POINTS:
        raise invalid_argument("count", count, f"an integer from 1 to {MAX_POINTS}")
    return min(MAX_SIDE, MAX_SHEET // _columns(count))


def sprite_sheet(thumbnails: Sequence[Image.Image]) -> Image.Image:
    """Puts thumbnails of one size into a sheet, row by row, with as many places in a row as rows.

    Raises:
        InvalidArgumentError: for thumbnails of different sizes, or a sheet too large for a browser.
    """
    if not thumbnails or len({image.size for image in thumbnails}) != 1:
        sizes = sorted({image.size for image in thumbnails})
        raise invalid_argument("thumbnails", sizes[:3], "images of one size, at least one")
    width, height = thumbnails[0].size
    columns = _columns(len(thumbnails))
    if columns * max(width, height) > MAX_SHEET:
        received = f"{len(thumbnails)} of {width} x {height} pixels"
        raise invalid_argument("thumbnails", received, f"a sheet of {MAX_SHEET} x {MAX_SHEET} pixels")
    # Square, even where rows stay empty: TensorBoard 2.20 takes the number of rows for that of columns.
    sheet = Image.new("RGB", (columns * width, columns * height))
    for place, image in enumerate(thumbnails):
        sheet.paste(image, (place % columns * width, place // columns * height))
    return sheet


def check_projector_directory(out: str | os.PathLike[str]) -> None:
    """Refuses a directory that holds something else than what `write_projector` writes.

    Raises:
        DataError: if it does.
    """
    out = Path(out)
    if not out.exists():
        return
    ours = out.is_dir() and all(
        entry.is_file() and (entry.suffix in (".tsv", ".jpg", ".pbtxt") or entry.name.startswith(_EVENTS))
        for entry in out.iterdir()
    )
    if not ours or (any(out.iterdir()) and not (out / CONFIG).exists()):
        raise DataError(f"{out} exists and is no folder of the projector. Choose another --out.")


def write_projector(out: str | os.PathLike[str], tensors: Sequence[ProjectorTensor], title: str = "embeddings") -> Path:
    """Writes the folder, whole or not at all; an earlier one of the projector is replaced.

    Args:
        out: the directory.
        tensors: the first is shown first; their names are distinct.
        title: what the vectors are, shown among TensorBoard's texts.

    Returns:
        The directory.

    Raises:
        InvalidArgumentError: for no tensors, or two of one name.
        DataError: if `out` holds something else, or the file system refuses.

    Example:

        words = ProjectorTensor("words", vectors, {"word": ["dog", "cat"], "count": [20, 10]})
        write_projector("runs/vsepp/projector", [words])
    """
    import tensorflow as tf
    from google.protobuf import text_format
    from tensorboard.plugins.projector import ProjectorConfig

    names = [tensor.name for tensor in tensors]
    if not names or len(set(names)) != len(names):
        raise invalid_argument("tensors", names, "at least one, with distinct names")
    check_projector_directory(out)
    config = ProjectorConfig()
    with replacing_directory(out, overwrite=True) as folder:
        for tensor in tensors:
            shown = config.embeddings.add(
                tensor_name=tensor.name,
                tensor_path=f"{tensor.name}.tsv",
                metadata_path=f"{tensor.name}.metadata.tsv",
                tensor_shape=tensor.embeddings.shape,
            )
            np.savetxt(folder / shown.tensor_path, tensor.embeddings, fmt="%.7g", delimiter="\t")
            (folder / shown.metadata_path).write_text(_metadata(tensor.columns), encoding="utf-8")
            if tensor.thumbnails is not None:
                shown.sprite.image_path = f"{tensor.name}.sprite.jpg"
                shown.sprite.single_image_dim.extend(tensor.thumbnails[0].size)
                sprite_sheet(tensor.thumbnails).save(folder / shown.sprite.image_path, quality=_QUALITY)
        (folder / CONFIG).write_text(text_format.MessageToString(config), encoding="utf-8")
        writer = tf.summary.create_file_writer(str(folder))
        with writer.as_default():
            tf.summary.text("projector", f"{title}: {', '.join(names)}", step=0)
        writer.close()
    return Path(out)


def _columns(count: int) -> int:
    return math.isqrt(count - 1) + 1


def _metadata(columns: Mapping[str, Sequence[object]]) -> str:
    """Returns the lines; a single column has no header, since TensorBoard would take it for a value."""
    lines = [list(columns)] if len(columns) > 1 else []
    lines += [[str(value) for value in row] for row in zip(*columns.values(), strict=True)]
    return "".join("\t".join(_SEPARATORS.sub(" ", cell) for cell in line) + "\n" for line in lines)

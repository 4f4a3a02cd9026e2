"""A picture of class embeddings: near classes near each other, an image of each in its place.

Figure 6 of Reed et al. 2016: t-SNE (van der Maaten and Hinton 2008) of the mean text embedding of each class.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vsemb.errors import DataError, invalid_argument, needs_extra
from vsemb.runs.pictures import read_picture
from vsemb.systems.zero_shot.metrics import check_seed

#: Side of the picture and of an image in it, in pixels.
SIDE, THUMBNAIL = 1200, 72
_EDGE, _FONT, _INK = 24, 13, "#222222"
_FEWEST = 4
# Half the neighbours that t-SNE is used with elsewhere: classes are tens, not thousands.
_PERPLEXITY = 15.0


def check_picture(path: str | os.PathLike[str], classes: int) -> None:
    """Checks what can be known of a picture before anything is embedded.

    Args:
        path: the file to draw to.
        classes: the number of classes.

    Raises:
        InvalidArgumentError: if the file's name does not end in .png.
        DataError: for fewer than four classes.
        MissingExtraError: without scikit-learn.

    Example:

        check_picture("classes.png", len(names))
    """
    if Path(path).suffix.lower() != ".png":
        raise invalid_argument("picture", os.fspath(path), "a file whose name ends in .png")
    _check_classes(classes)
    _tsne()


def _check_classes(classes: int) -> None:
    if classes < _FEWEST:
        raise DataError(f"A picture needs at least {_FEWEST} classes. Received: {classes}.")


def _tsne() -> Any:
    with needs_extra("scikit-learn", "report"):
        from sklearn.manifold import TSNE
    return TSNE


def class_points(embeddings: np.ndarray, seed: int = 0) -> np.ndarray:
    """Lays classes out in two dimensions by t-SNE, with cosine distances.

    Args:
        embeddings: (c, dim) float, one a class, as `vsemb.systems.zero_shot.metrics.class_means` returns
            them.
        seed: of t-SNE, from 0 to 2**32 - 1; the same seed gives the same points.

    Returns:
        (c, 2) float64 in [0, 1], each axis filled.

    Raises:
        InvalidArgumentError: for a seed out of range.
        DataError: for fewer than four classes, or embeddings that are not finite.
        MissingExtraError: without scikit-learn.

    Example:

        points = class_points(class_means(texts, text_classes, len(names)))
    """
    check_seed(seed)
    _check_classes(len(embeddings))
    if not np.isfinite(embeddings).all():
        raise DataError("The embeddings of the classes hold NaN or infinity; nothing was drawn.")
    perplexity = min(_PERPLEXITY, (len(embeddings) - 1) / 3)
    # Lengths are of no interest: a class scores all images higher by a longer embedding, not other ones.
    directions = embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)
    # Random and not the principal axes: these are undefined where classes coincide.
    tsne = _tsne()(perplexity=perplexity, init="random", random_state=seed, method="exact")
    points = np.asarray(tsne.fit_transform(directions.astype(np.float64)), np.float64)
    low = points.min(axis=0)
    return (points - low) / np.maximum(points.max(axis=0) - low, 1e-12)


def draw_classes(points: np.ndarray, names: Sequence[str], images: Sequence[bytes]) -> Image.Image:
    """Draws an image of each class at the class's place, its name below it.

    Args:
        points: (c, 2) in [0, 1] from `class_points`.
        names: of the c classes.
        images: c encoded images, JPEG or PNG.

    Returns:
        RGB, `SIDE` x `SIDE`. Where classes overlap, later ones lie above.

    Example:

        draw_classes(points, ["cardinal", "crow"], [first, second]).save("classes.png")
    """
    picture = Image.new("RGB", (SIDE, SIDE), "white")
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default(size=_FONT)
    room = np.array([SIDE - THUMBNAIL - 2 * _EDGE, SIDE - THUMBNAIL - 2 * _EDGE - _FONT])
    corners = np.rint(_EDGE + np.asarray(points) * room).astype(int)
    for (x, y), name, encoded in zip(corners.tolist(), names, images, strict=True):
        small = read_picture(encoded, name)
        small.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
        picture.paste(small, (x + (THUMBNAIL - small.width) // 2, y + (THUMBNAIL - small.height) // 2))
    # Names come last, so that no image hides one.
    for (x, y), name in zip(corners.tolist(), names, strict=True):
        left, _, right, _ = pen.textbbox((0, 0), name, font=font)
        begin = min(max(x + (THUMBNAIL - right + left) / 2, 2), SIDE - (right - left) - 2)
        place = (begin, y + THUMBNAIL)
        pen.text(place, name, fill=_INK, font=font, stroke_width=2, stroke_fill="white")
    return picture

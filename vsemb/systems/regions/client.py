"""Words and the regions they belong to, as a client sends and gets them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vsemb.errors import invalid_argument
from vsemb.serving.client import Client, Embeddings, to_images, to_texts
from vsemb.serving.transports import Arrays, ServingError
from vsemb.systems.regions.alignment import AlignedWords

_LARGEST = float(np.finfo(np.float32).max)
_SHAPE = "n lists of boxes [x, y, w, h], fractions of the image's width and height"


@dataclass(frozen=True, eq=False)
class Alignment(AlignedWords):
    """What a model answers about the words of a sentence and the regions of an image.

    Attributes:
        valid: whether there was an image, and a word; where not, there are no words.
    """

    valid: bool


@dataclass(frozen=True, eq=False)
class RegionEmbeddings(Embeddings):
    """What images were embedded to, as sets of regions.

    Attributes:
        boxes: (n, regions, 4) float32, `[x, y, w, h]` as fractions of the image's width and height, the whole image
            first.
    """

    boxes: np.ndarray = field(kw_only=True)


def encode_regions(
    client: Client, images: Sequence[bytes | str | os.PathLike[str]], boxes: Sequence[Any] | None = None
) -> RegionEmbeddings:
    """Embeds the regions of images.

    Args:
        client: asks the model.
        images: as `Client.encode_image`.
        boxes: as `align`.

    Raises:
        DataError: if a file cannot be read.
        ServingError: as `Client.predict`.
    """
    contents = to_images(images)
    found = client.predict("encode_image", image_bytes=contents, **_box_inputs(boxes, len(contents)))
    return RegionEmbeddings(found["embedding"], found["valid"], boxes=found["boxes"])


def align(
    client: Client,
    images: Sequence[bytes | str | os.PathLike[str]],
    texts: Sequence[str | bytes],
    affinity: float | Sequence[float] = 0.0,
    boxes: Sequence[Any] | None = None,
) -> list[Alignment]:
    """Tells which region of an image each word of a sentence belongs to.

    Args:
        client: asks the model.
        images: n images, as `Client.encode_image`.
        texts: n sentences, one for each image.
        affinity: how much better it is for two neighbouring words to share a region, from 0, where each
            word has the region it fits best; one number, or one for each row.
        boxes: for a model that proposes no regions itself, n lists of candidates, best first, each
            `[x, y, w, h]` as fractions of the image's width and height.

    Returns:
        n of them; one that is not valid has no words.

    Raises:
        InvalidArgumentError: for a model that has no regions, other numbers of images and texts, or what
            is no affinity or box.
        DataError: if a file cannot be read.
        ServingError: as `Client.predict`.

    Example:

        for phrase in client.align(["dog.jpg"], ["a dog on a beach"], affinity=0.5)[0].phrases:
            print(phrase.text, phrase.box)
    """
    rows, contents = to_texts(texts), to_images(images)
    if len(rows) != len(contents):
        received = f"{len(rows)} texts for {len(contents)} images"
        raise invalid_argument("texts", received, "one for each image", "Repeat the image for each text.")
    affinities = to_affinities(affinity, len(rows))
    more = _box_inputs(boxes, len(rows))
    return alignments_of(client.predict("align", image_bytes=contents, text=rows, affinity=affinities, **more))


def _box_inputs(boxes: Sequence[Any] | None, rows: int) -> Arrays:
    return {} if boxes is None else {"boxes": to_boxes(boxes, rows)}


def alignments_of(answer: dict[str, np.ndarray]) -> list[Alignment]:
    """Reads the answer of the signature `align`.

    Args:
        answer: its outputs.

    Raises:
        ServingError: if a word has no box.

    Example:

    >>> answer = {
    ...     "boxes": np.float32([[[0, 0, 1, 1], [0.5, 0, 0.5, 1], [0, 0, 0, 0]]]),
    ...     "words": np.array([[b"a", b"red", b"bus", b""]], object),
    ...     "regions": np.array([[1, 1, 0, -1]]),
    ...     "scores": np.float32([[0.5, 1, 2, 0]]),
    ...     "valid": np.array([True]),
    ... }
    >>> [(phrase.text, phrase.region) for phrase in alignments_of(answer)[0].phrases]
    [('a red', 1), ('bus', 0)]
    """
    found = []
    for row, valid in enumerate(answer["valid"].tolist()):
        regions = answer["regions"][row]
        here = regions >= 0
        boxes = answer["boxes"][row]
        boxes = boxes[boxes.any(axis=1)]
        if regions.max(initial=-1) >= len(boxes):
            said = f"row {row} names the region {regions.max()} of {len(boxes)}"
            raise ServingError("INTERNAL", f"The model's answer cannot be read: {said}.", said)
        words = [word.decode("utf-8", errors="replace") for word in answer["words"][row][here]]
        found.append(Alignment(words, regions[here], answer["scores"][row][here], boxes, valid))
    return found


def to_affinities(affinity: float | Sequence[float], rows: int) -> np.ndarray:
    """Returns one affinity a row: (rows,) float32.

    Raises:
        InvalidArgumentError: for one that is negative or no finite number, or another number of them.

    Example:

    >>> to_affinities(0.5, 2).tolist(), to_affinities([0, 1], 2).tolist()
    ([0.5, 0.5], [0.0, 1.0])
    """
    try:
        given = np.asarray(affinity)
    except ValueError:  # Lists of several lengths in a list.
        given = np.asarray(None)
    # NaN is neither.
    fits = given.dtype.kind in "iuf" and bool(((given >= 0) & (given <= _LARGEST)).all())
    if not fits or given.shape not in ((), (rows,)):
        raise invalid_argument("affinity", affinity, f"a finite number >= 0, or a list of {rows} of them")
    return np.broadcast_to(given, (rows,)).astype(np.float32)


def to_boxes(boxes: Sequence[Any], rows: int) -> np.ndarray:
    """Returns candidate boxes as the input `boxes` of a model.

    The first of each row is padding, as the end of a shorter row is. Where requests of different lengths are
    put together, TensorFlow Serving fills a request up with its first element, and that must be no box.

    Args:
        boxes: (any number, 4) for each row, best first.
        rows: so many.

    Returns:
        (rows, 1 + longest, 4) float32.

    Raises:
        InvalidArgumentError: for another number of rows, or what is no box.

    Example:

    >>> to_boxes([[[0, 0, 0.5, 1]], []], 2).tolist()
    [[[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.5, 1.0]], [[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]]
    """
    if isinstance(boxes, str | bytes) or not hasattr(boxes, "__len__") or len(boxes) != rows:
        raise invalid_argument("boxes", boxes, _SHAPE, f"Give {rows} of them, one for each image.")
    parts = [_boxes(given, row) for row, given in enumerate(boxes)]
    filled = np.zeros((rows, 1 + max(map(len, parts), default=0), 4), np.float32)
    for row, part in enumerate(parts):
        filled[row, 1 : 1 + len(part)] = part
    return filled


def _boxes(given: Any, row: int) -> np.ndarray:
    fix = f"Those of image {row} are not: all numbers are finite, w and h above 0."
    try:
        with np.errstate(over="ignore"):
            found = np.asarray(given, np.float32)
    except (TypeError, ValueError) as error:
        raise invalid_argument("boxes", given, _SHAPE, fix) from error
    if not found.size:
        return np.zeros((0, 4), np.float32)
    if found.ndim != 2 or found.shape[1] != 4 or not np.isfinite(found).all() or (found[:, 2:] <= 0).any():
        raise invalid_argument("boxes", given, _SHAPE, fix)
    return found

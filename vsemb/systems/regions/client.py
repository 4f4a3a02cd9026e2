"""Client methods of served models on regions: `align` and `encode_regions`."""

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
    """The answer of a model: the words of a sentence, each with a region of an image.

    Attributes:
        valid: whether the image can be read and the sentence has a word; if false, `words` is empty.
    """

    valid: bool


@dataclass(frozen=True, eq=False)
class RegionEmbeddings(Embeddings):
    """Embeddings of images as sets of regions.

    Attributes:
        boxes: (n, regions, 4) float32, `[x, y, w, h]` as fractions of the image's width and height. The first box is
            the whole image.
    """

    boxes: np.ndarray = field(kw_only=True)


def encode_regions(
    client: Client, images: Sequence[bytes | str | os.PathLike[str]], boxes: Sequence[Any] | None = None
) -> RegionEmbeddings:
    """Embed the regions of images.

    Args:
        client: client of the served model.
        images: n images, see `Client.encode_image`.
        boxes: see `align`.

    Raises:
        DataError: if a file cannot be read.
        ServingError: see `Client.predict`.
    """
    contents = to_images(images)
    answer = client.predict("encode_image", image_bytes=contents, **_box_inputs(boxes, len(contents)))
    return RegionEmbeddings(answer["embedding"], answer["valid"], boxes=answer["boxes"])


def align(
    client: Client,
    images: Sequence[bytes | str | os.PathLike[str]],
    texts: Sequence[str | bytes],
    affinity: float | Sequence[float] = 0.0,
    boxes: Sequence[Any] | None = None,
) -> list[Alignment]:
    """Align the words of sentences with the regions of images.

    Args:
        client: client of the served model.
        images: n images, see `Client.encode_image`.
        texts: n sentences, one per image.
        affinity: bonus for two neighbouring words on one region, >= 0; one number, or one per row. At 0 each word takes
            its best region.
        boxes: candidates for a model that does not propose regions: n lists, best first, each box `[x, y, w, h]` as
            fractions of the image's width and height.

    Returns:
        n alignments; an invalid one has no words.

    Raises:
        InvalidArgumentError: if the model has no regions, the numbers of images and texts differ, or an affinity or box
            is invalid.
        DataError: if a file cannot be read.
        ServingError: see `Client.predict`.

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
    """Read the answer of the signature `align`.

    Args:
        answer: outputs of the signature.

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
    alignments = []
    for row, valid in enumerate(answer["valid"].tolist()):
        regions = answer["regions"][row]
        here = regions >= 0
        boxes = answer["boxes"][row]
        boxes = boxes[boxes.any(axis=1)]
        if regions.max(initial=-1) >= len(boxes):
            said = f"row {row} names the region {regions.max()} of {len(boxes)}"
            raise ServingError("INTERNAL", f"The model's answer cannot be read: {said}.", said)
        words = [word.decode("utf-8", errors="replace") for word in answer["words"][row][here]]
        alignments.append(Alignment(words, regions[here], answer["scores"][row][here], boxes, valid))
    return alignments


def to_affinities(affinity: float | Sequence[float], rows: int) -> np.ndarray:
    """Return one affinity per row: (rows,) float32.

    Raises:
        InvalidArgumentError: if an affinity is negative or not finite, or their number is wrong.

    Example:

    >>> to_affinities(0.5, 2).tolist(), to_affinities([0, 1], 2).tolist()
    ([0.5, 0.5], [0.0, 1.0])
    """
    try:
        values = np.asarray(affinity)
    except ValueError:  # Lists of several lengths in a list.
        values = np.asarray(None)
    # Comparisons with NaN are false.
    fits = values.dtype.kind in "iuf" and bool(((values >= 0) & (values <= _LARGEST)).all())
    if not fits or values.shape not in ((), (rows,)):
        raise invalid_argument("affinity", affinity, f"a finite number >= 0, or a list of {rows} of them")
    return np.broadcast_to(values, (rows,)).astype(np.float32)


def to_boxes(boxes: Sequence[Any], rows: int) -> np.ndarray:
    """Return candidate boxes as the input `boxes` of a model.

    The first box of each row is padding, and so are the last boxes of shorter rows. TensorFlow Serving pads requests
    of different lengths with their first element, so this element must be padding.

    Args:
        boxes: (n, 4) per row, best first; n may differ between rows.
        rows: number of rows.

    Returns:
        (rows, 1 + longest, 4) float32.

    Raises:
        InvalidArgumentError: if the number of rows is wrong, or a box is invalid.

    Example:

    >>> to_boxes([[[0, 0, 0.5, 1]], []], 2).tolist()
    [[[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.5, 1.0]], [[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]]
    """
    if isinstance(boxes, str | bytes) or not hasattr(boxes, "__len__") or len(boxes) != rows:
        raise invalid_argument("boxes", boxes, _SHAPE, f"Give {rows} of them, one for each image.")
    parts = [_boxes(of_image, row) for row, of_image in enumerate(boxes)]
    filled = np.zeros((rows, 1 + max(map(len, parts), default=0), 4), np.float32)
    for row, part in enumerate(parts):
        filled[row, 1 : 1 + len(part)] = part
    return filled


def _boxes(values: Any, row: int) -> np.ndarray:
    fix = f"The boxes of image {row} must have finite numbers, w and h above 0."
    try:
        with np.errstate(over="ignore"):
            boxes = np.asarray(values, np.float32)
    except (TypeError, ValueError) as error:
        raise invalid_argument("boxes", values, _SHAPE, fix) from error
    if not boxes.size:
        return np.zeros((0, 4), np.float32)
    if boxes.ndim != 2 or boxes.shape[1] != 4 or not np.isfinite(boxes).all() or (boxes[:, 2:] <= 0).any():
        raise invalid_argument("boxes", values, _SHAPE, fix)
    return boxes

"""Boxes that a detector found, in COCO's results format, made candidates for the regions of a dataset.

Format: https://cocodataset.org/#format-results - `[{"image_id", "category_id", "bbox": [x, y, w, h],
"score"}, ...]`, where a box is its upper left corner and its size, in pixels of the image that the detector
saw.
"""

from __future__ import annotations

import json
import os
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vsemb.errors import DataError, one_line
from vsemb.files import sha256_bytes
from vsemb.systems.regions.detection_matching import DetectedImages, ListedImages, plain_id, shown

if TYPE_CHECKING:
    from vsemb.data.store import Dataset

#: More boxes of an image than this, the best ones, are not looked at.
MOST_CANDIDATES = 1000

# Far beyond the pixels of any image, and what float32 still holds.
_LARGEST = 1e9
_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True)
class Detections:
    """The detected boxes of a dataset's images.

    Attributes:
        ids: int64 (boxes,), ascending, the image of each box.
        boxes: float32 (boxes, 4), `[x, y, w, h]` as fractions of the image's width and height, inside it;
            those of an image best first.
        scores: float32 (boxes,).
        notes: lines worth showing about what was left out or clipped.
    """

    ids: np.ndarray
    boxes: np.ndarray
    scores: np.ndarray
    notes: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        """Hex that changes with the boxes, their scores and their images."""
        return sha256_bytes(b"".join(part.tobytes() for part in (self.ids, self.boxes, self.scores)))

    def of(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gathers the boxes of some images.

        Args:
            ids: int64 (n,); images without a detection have none.

        Returns:
            `(boxes, scores)`: float32 (n, most, 4) and (n, most), best first; zeros are padding.
        """
        starts, ends = (np.searchsorted(self.ids, ids, side) for side in ("left", "right"))
        parts = [slice(start, end) for start, end in zip(starts, ends, strict=True)]
        return pad_rows([self.boxes[part] for part in parts]), pad_rows([self.scores[part] for part in parts])


def pad_rows(rows: list[np.ndarray]) -> np.ndarray:
    """Returns arrays (m, ...) of different lengths as one float32 (n, longest, ...), zeros behind.

    Example:

    >>> pad_rows([np.ones(1), np.ones(2)]).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    longest = max(map(len, rows))
    whole = np.zeros((len(rows), longest, *rows[0].shape[1:]), np.float32)
    for place, row in enumerate(rows):
        whole[place, : len(row)] = row
    return whole


def read_detections(
    path: str | os.PathLike[str], dataset: Dataset, images: str | os.PathLike[str] | None = None
) -> Detections:
    """Reads a detector's results for the images of a dataset.

    An `image_id` names an image by its key in the dataset, with or without folders and ending, or by the
    number in a file name such as `000000391895.jpg` or `COCO_val2014_000000391895.jpg`. Other ids need
    `images`, which lists their file names.

    Boxes are in pixels of the image that the detector saw. Its size comes from `images` where that has it.
    Otherwise it is that of the stored image, unless the dataset was prepared with a largest side that this
    image has: then it may have been larger, and its size must be given.

    Args:
        path: the results, COCO's JSON.
        dataset: the dataset.
        images: a COCO annotations file, or another object with `"images": [{"id", "file_name", "width",
            "height"}, ...]`, sizes optional.

    Returns:
        The boxes, clipped to their images; of each image the best `MOST_CANDIDATES`.

    Raises:
        DataError: if a file is broken, an entry lacks a field or has a number that is none, no image_id is
            one of the dataset's, two are the same image, or sizes are needed; entries and images are named.

    Example:

    ```python
    detections = read_detections("detections.json", Dataset.open("data/coco"))
    store = cache_regions(dataset, backbone, RegionConfig("detections"), detections=detections)
    ```
    """
    path = Path(path)
    found = _Found(path)
    matched = DetectedImages(dataset, None if images is None else ListedImages(Path(images)))
    rows = np.array([matched.find(image, path) for image in found.image_ids], np.int64)
    places = rows[found.images]  # Of each box, the row of its image; -1 where the dataset lacks it.
    if not (rows >= 0).any():
        raise DataError(matched.nothing_fits(path, found.image_ids))
    notes = []
    if (rows < 0).any():
        unknown = [image for image, row in zip(found.image_ids, rows, strict=True) if row < 0]
        notes.append(
            f"{(places < 0).sum():,} detections of {len(unknown):,} image_ids that {dataset.path} does not "
            f"have are left out ({shown(unknown)})."
        )
    known = places >= 0
    places, pixels, scores = places[known], found.boxes[known], found.scores[known]
    sizes, size_notes = matched.sizes(np.unique(places), path)
    boxes, inside, clip_notes = _clipped(pixels, sizes[places])
    notes += [*size_notes, *clip_notes]
    places, boxes, scores = places[inside], boxes[inside], scores[inside].astype(np.float32)
    ids = matched.ids[places]
    # Stable, so that equal scores keep the file's order.
    order = np.lexsort((-scores, ids))
    ids, boxes, scores = ids[order], boxes[order], scores[order]
    best = np.arange(len(ids)) - np.searchsorted(ids, ids) < MOST_CANDIDATES
    ids, boxes, scores = ids[best], boxes[best], scores[best]
    without = np.flatnonzero(~np.isin(matched.ids, ids))
    if len(without):
        notes.append(
            f"{len(without):,} of {len(matched.ids):,} images have no detection, so the whole image alone is "
            f"theirs ({shown([matched.keys[row] for row in without])})."
        )
    return Detections(ids, boxes, scores, tuple(notes))


def read_detections_of_one(
    path: str | os.PathLike[str], size: tuple[float, float]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Reads a detector's results for a single image, whatever its image_id.

    Args:
        path: the results, COCO's JSON.
        size: the width and height in pixels that the image had for the detector.

    Returns:
        boxes: float32 (n, 4), `[x, y, w, h]` as fractions of the image, inside it, the best
            `MOST_CANDIDATES`, best first.
        notes: lines worth showing about what was left out or clipped.

    Raises:
        DataError: if the file is broken, or has detections of several images.
    """
    path = Path(path)
    found = _Found(path)
    if len(found.image_ids) > 1:
        raise DataError(
            f"{path} has detections of {len(found.image_ids):,} images ({shown(found.image_ids)}). Keep "
            "those of this image alone."
        )
    boxes, inside, notes = _clipped(found.boxes, np.tile(np.asarray(size, np.float64), (len(found.boxes), 1)))
    order = np.argsort(-found.scores[inside], kind="stable")[:MOST_CANDIDATES]
    return boxes[inside][order], tuple(notes)


class _Found:
    """What stands in a results file, as arrays.

    Attributes:
        image_ids: the different ids, in order of appearance.
        images: int64 (boxes,), the place of each box's id among them.
        boxes: float64 (boxes, 4), in pixels.
        scores: float64 (boxes,).
    """

    def __init__(self, path: Path) -> None:
        self.image_ids: list[int | str] = []
        place_of: dict[int | str, int] = {}
        images, boxes, scores = array("q"), array("d"), array("d")
        for number, entry in enumerate(_entries(path)):
            try:
                image = plain_id(entry["image_id"], "image_id")
                box, score = entry["bbox"], entry["score"]
                if type(box) is not list or len(box) != 4:
                    raise TypeError(f"bbox must be [x, y, w, h], not {one_line(box, 60)}")
                for value in (*box, score):
                    if type(value) not in (int, float):
                        raise TypeError(f"bbox and score must be numbers, not {one_line(repr(value), 60)}")
                row = place_of.get(image)
                if row is None:
                    row = place_of[image] = len(self.image_ids)
                    self.image_ids.append(image)
                boxes.extend(box)
                scores.append(score)
                images.append(row)
            except KeyError as error:
                raise DataError(
                    f"{path}: detection {number} lacks {error}; each needs image_id, bbox and score."
                ) from error
            except (TypeError, OverflowError) as error:
                raise DataError(f"{path}: detection {number}: {one_line(error, 200)}.") from error
        if not scores:
            raise DataError(f"{path} holds no detection. For the whole images alone take a grid of 0 boxes.")
        self.images = np.frombuffer(images, np.int64)
        self.boxes = np.frombuffer(boxes, np.float64).reshape(-1, 4)
        self.scores = np.frombuffer(scores, np.float64)
        self._check(path)

    def _check(self, path: Path) -> None:
        # Comparisons with NaN are false.
        sane = (np.abs(self.boxes) < _LARGEST).all(axis=1) & (np.abs(self.scores) < _LARGEST)
        for bad, what in (
            (~sane, "a number that is NaN or too large"),
            ((self.boxes[:, 2:] < 0).any(axis=1), "a negative size"),
        ):
            if bad.any():
                number = int(np.argmax(bad))
                box, image = self.boxes[number].tolist(), self.image_ids[self.images[number]]
                raise DataError(
                    f"{path}: detection {number} (image_id {image!r}) has {what}: bbox {box}, score "
                    f"{self.scores[number]}. {int(bad.sum()):,} have."
                )
        if self.boxes.max() <= 1:
            raise DataError(
                f"{path}: no box reaches beyond 1, so these are fractions of the image, it seems; in COCO's "
                "format they are pixels."
            )


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the entries one by one: all of a large file as objects would take ten times its size."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise DataError(f"No detections at {path}.") from error
    except (OSError, ValueError) as error:
        raise DataError(f"The detections at {path} cannot be read: {error}.") from error
    skip, decode = _SPACE.match, json.JSONDecoder().raw_decode

    def at(place: int) -> int:
        match = skip(text, place)
        assert match is not None
        return match.end()

    place = at(0)
    if text[place : place + 1] != "[":
        raise DataError(
            f"{path} is not a COCO results file: it holds no list of detections. An annotations file, with "
            "images and their sizes, goes to --images."
        )
    place = at(place + 1)
    first = True
    while text[place : place + 1] != "]":
        try:
            if not first:
                if text[place : place + 1] != ",":
                    raise ValueError(f"a comma is missing at character {place}")
                place = at(place + 1)
            entry, place = decode(text, place)
        except (ValueError, RecursionError) as error:
            raise DataError(f"The detections at {path} cannot be read: {one_line(error, 200)}.") from error
        if not isinstance(entry, dict):
            raise DataError(f"{path} is not a COCO results file: {one_line(repr(entry), 60)} is no detection.")
        yield entry
        first, place = False, at(place)
    if at(place + 1) != len(text):
        raise DataError(f"The detections at {path} cannot be read: something follows their list.")


def _clipped(pixels: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Returns boxes in pixels as fractions, float32, clipped; which have any area; and notes."""
    corners = np.concatenate([pixels[:, :2], pixels[:, :2] + pixels[:, 2:]], axis=1)
    limits = np.tile(sizes, 2)
    clipped = np.clip(corners, 0, limits)
    # Detectors round: half of a pixel outside is nothing to speak of.
    far = (np.abs(corners - clipped) > 1).any(axis=1)
    fractions = clipped / limits
    size = fractions[:, 2:] - fractions[:, :2]
    boxes = np.concatenate([fractions[:, :2], size], axis=1).astype(np.float32)
    some = np.asarray((boxes[:, 2:] > 0).all(axis=1))
    notes = []
    if (~some).any():
        notes.append(f"{(~some).sum():,} boxes have no area inside their image and are left out.")
    if far.any():
        notes.append(
            f"{far.sum():,} of {len(far):,} boxes reach out of their image by more than a pixel and are "
            "clipped. If those are many, the sizes are wrong: give the detector's with --images FILE."
        )
    return boxes, some, notes

"""Detected boxes in COCO's results format, as candidates for the regions of a dataset.

Format: https://cocodataset.org/#format-results - `[{"image_id", "category_id", "bbox": [x, y, w, h],
"score"}, ...]`. A box is its upper left corner and its size, in pixels of the detector's input image.
"""

from __future__ import annotations

import json
import os
import re
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vsemb.errors import DataError, counted, one_line
from vsemb.files import read_json, read_text, reading, sha256_bytes

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset

#: Maximum number of boxes per image; the best ones are kept.
MOST_CANDIDATES = 1000

# Limit of coordinates: far beyond the pixels of any image, and within float32.
_LARGEST = 1e9
_SPACE = re.compile(r"[ \t\r\n]*")
_ENDING = re.compile(r"\.(?:jpe?g|png|gif|bmp|webp|tiff?|ppm)$", re.IGNORECASE)
# 000000391895 and COCO_val2014_000000391895 are the image 391895 of COCO.
_NUMBERED = re.compile(r"(?:COCO_[A-Za-z0-9]+_)?0*([0-9]+)")

_Size = tuple[float, float]


@dataclass(frozen=True)
class Detections:
    """Detected boxes of a dataset's images.

    Attributes:
        ids: int64 (boxes,), ascending, the image id of each box.
        boxes: float32 (boxes, 4), `[x, y, w, h]` as fractions of the image's width and height, inside the image. Boxes
            of one image are ordered best first.
        scores: float32 (boxes,), confidence of the detector.
        notes: one-line notes about skipped or clipped boxes.
    """

    ids: np.ndarray
    boxes: np.ndarray
    scores: np.ndarray
    notes: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        """SHA-256 of image ids, boxes and scores, as hex digits."""
        return sha256_bytes(b"".join(part.tobytes() for part in (self.ids, self.boxes, self.scores)))

    def of(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the boxes of some images.

        Args:
            ids: int64 (n,), image ids; images without detections get padding only.

        Returns:
            `(boxes, scores)`: float32 (n, most, 4) and (n, most), best first; zeros are padding.
        """
        starts = np.searchsorted(self.ids, ids, "left")
        ends = np.searchsorted(self.ids, ids, "right")
        parts = [slice(start, end) for start, end in zip(starts, ends, strict=True)]
        return pad_rows([self.boxes[part] for part in parts]), pad_rows([self.scores[part] for part in parts])


def pad_rows(rows: list[np.ndarray]) -> np.ndarray:
    """Stack arrays (m, ...) of different lengths as one float32 (n, longest, ...), padded with zeros at the end.

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
    path: str | os.PathLike[str], dataset: StoredDataset, images: str | os.PathLike[str] | None = None
) -> Detections:
    """Read a detector's results for the images of a dataset.

    An `image_id` is the key of an image in the dataset, with or without folders and ending, or the number in a file
    name such as `000000391895.jpg` or `COCO_val2014_000000391895.jpg`. Other ids need `images`, which lists their file
    names.

    Boxes are in pixels of the detector's input image. The size of this image comes from `images` if listed there.
    Otherwise the size of the stored image is used. In a dataset prepared with a largest side, a stored image with this
    side may have been larger, so its size must be listed.

    Args:
        path: JSON file with COCO results.
        dataset: the dataset.
        images: a COCO annotations file, or another object with `"images": [{"id", "file_name", "width",
            "height"}, ...]`, sizes optional.

    Returns:
        The boxes, clipped to their images; per image at most the best `MOST_CANDIDATES`.

    Raises:
        DataError: if a file is broken, an entry lacks a field or has an invalid number, or sizes are missing. Also if
            no image_id matches an image of the dataset, or two match the same one. Entries and images are named.

    Example:

    ```python
    detections = read_detections("detections.json", Dataset.open("data/coco"))
    config = RegionConfig("detections")
    store = cache_regions(dataset, backbone, config, weights="imagenet", detections=detections)
    ```
    """
    path = Path(path)
    results = _Results(path)
    matched = DetectedImages(dataset, path, None if images is None else Path(images))
    rows = np.array([matched.find(image) for image in results.image_ids], np.int64)
    places = rows[results.images]  # The row of each box's image; -1 if the dataset lacks it.
    if not (rows >= 0).any():
        raise DataError(matched.nothing_fits(results.image_ids))
    notes = []
    if (rows < 0).any():
        unknown = [image for image, row in zip(results.image_ids, rows, strict=True) if row < 0]
        notes.append(
            f"{(places < 0).sum():,} detections of {len(unknown):,} image_ids that {dataset.path} does not "
            f"have are left out ({_shown(unknown)})."
        )
    matching = places >= 0
    places, pixels, scores = places[matching], results.boxes[matching], results.scores[matching]
    notes += matched.check_sizes(np.unique(places))
    boxes, inside, clip_notes = clip_boxes(pixels, matched.sizes[places])
    notes += clip_notes
    places, boxes, scores = places[inside], boxes[inside], scores[inside].astype(np.float32)
    ids = matched.ids[places]
    # The sort is stable, so equal scores keep the file's order.
    order = np.lexsort((-scores, ids))
    ids, boxes, scores = ids[order], boxes[order], scores[order]
    best = np.arange(len(ids)) - np.searchsorted(ids, ids) < MOST_CANDIDATES
    ids, boxes, scores = ids[best], boxes[best], scores[best]
    without = np.flatnonzero(~np.isin(matched.ids, ids))
    if len(without):
        notes.append(
            f"{len(without):,} of {len(matched.ids):,} images have no detection, so the whole image alone is "
            f"theirs ({_shown([matched.keys[row] for row in without])})."
        )
    return Detections(ids, boxes, scores, tuple(notes))


def read_detections_of_one(
    path: str | os.PathLike[str], size: tuple[float, float]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Read a detector's results for a single image, with any image_id.

    Args:
        path: JSON file with COCO results.
        size: width and height of the detector's input image, in pixels.

    Returns:
        boxes: float32 (n, 4), `[x, y, w, h]` as fractions of the image, inside it; at most the best
            `MOST_CANDIDATES`, best first.
        notes: one-line notes about skipped or clipped boxes.

    Raises:
        DataError: if the file is broken, or has detections of several images.
    """
    path = Path(path)
    results = _Results(path)
    if len(results.image_ids) > 1:
        raise DataError(
            f"{path} has detections of {len(results.image_ids):,} images ({_shown(results.image_ids)}). Keep "
            "the detections of this image only."
        )
    sizes = np.tile(np.asarray(size, np.float64), (len(results.boxes), 1))
    boxes, inside, notes = clip_boxes(results.boxes, sizes)
    order = np.argsort(-results.scores[inside], kind="stable")[:MOST_CANDIDATES]
    return boxes[inside][order], tuple(notes)


class _Results:
    """Content of a results file as arrays.

    Attributes:
        image_ids: the different ids, in order of appearance.
        images: int64 (boxes,), index into `image_ids` per box.
        boxes: float64 (boxes, 4), in pixels.
        scores: float64 (boxes,), confidence of the detector.
    """

    def __init__(self, path: Path) -> None:
        places: dict[int | str, int] = {}
        images, boxes, scores = array("q"), array("d"), array("d")
        for number, entry in enumerate(_entries(path)):
            try:
                image = _plain_id(entry["image_id"], "image_id")
                box, score = entry["bbox"], entry["score"]
                if type(box) is not list or len(box) != 4:
                    raise TypeError(f"bbox must be [x, y, w, h]; got {one_line(box, 60)}")
                for value in (*box, score):
                    if type(value) not in (int, float):
                        raise TypeError(f"bbox and score must be numbers; got {one_line(repr(value), 60)}")
                boxes.extend(box)
                scores.append(score)
                images.append(places.setdefault(image, len(places)))
            except KeyError as error:
                raise DataError(
                    f"{path}: detection {number} lacks {error}; each needs image_id, bbox and score."
                ) from error
            except (TypeError, OverflowError) as error:
                raise DataError(f"{path}: detection {number}: {one_line(error, 200)}.") from error
        if not scores:
            raise DataError(f"{path} holds no detection. For the whole images alone take a grid of 0 boxes.")
        self.image_ids = list(places)
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
                f"{path}: the largest coordinate is {self.boxes.max():g}, so boxes seem to be fractions of the image; "
                "COCO's format needs pixels."
            )


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries one by one, since all entries as objects would take ten times the file's size."""
    with reading(path, "detections"):
        text = read_text(path, "utf-8-sig")
    decode = json.JSONDecoder().raw_decode

    def after(place: int) -> int:
        match = _SPACE.match(text, place)
        assert match is not None
        return match.end()

    place = after(0)
    if not text.startswith("[", place):
        raise DataError(
            f"{path} is not a COCO results file: it holds no list of detections. An annotations file, with "
            "images and their sizes, is given as `images`."
        )
    # The place is at "[" or ",", or at the "]" of an empty list.
    if text.startswith("]", after(place + 1)):
        place = after(place + 1)
    while not text.startswith("]", place):
        try:
            entry, end = decode(text, after(place + 1))
        except (ValueError, RecursionError) as error:
            raise DataError(f"The detections at {path} cannot be read: {one_line(error, 200)}.") from error
        if not isinstance(entry, dict):
            raise DataError(f"{path} is not a COCO results file: {one_line(repr(entry), 60)} is not a detection.")
        yield entry
        place = after(end)
        if text[place : place + 1] not in {"]", ","}:
            raise DataError(f"The detections at {path} cannot be read: a comma is missing at character {place}.")
    if after(place + 1) != len(text):
        raise DataError(f"The detections at {path} cannot be read: something follows their list.")


def clip_boxes(pixels: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Clip boxes in pixels.

    Returns:
        Boxes as float32 fractions, a bool mask of boxes with area, and notes.
    """
    corners = np.concatenate([pixels[:, :2], pixels[:, :2] + pixels[:, 2:]], axis=1)
    limits = np.tile(sizes, 2)
    clipped = np.clip(corners, 0, limits)
    # Detectors round, so half a pixel outside is normal.
    far = (np.abs(corners - clipped) > 1).any(axis=1)
    fractions = clipped / limits
    size = fractions[:, 2:] - fractions[:, :2]
    boxes = np.concatenate([fractions[:, :2], size], axis=1).astype(np.float32)
    has_area = np.asarray((boxes[:, 2:] > 0).all(axis=1))
    notes = []
    if (~has_area).any():
        notes.append(f"{(~has_area).sum():,} boxes have no area inside their image and are left out.")
    if far.any():
        notes.append(
            f"{far.sum():,} of {len(far):,} boxes reach out of their image by more than a pixel and are "
            "clipped. If there are many, the sizes are wrong: name a file with the detector's as `images`."
        )
    return boxes, has_area, notes


def name_forms(name: str) -> tuple[str | None, ...]:
    """Return the forms of an image's name, most exact first. Names match if they agree in the same form.

    Example:

    >>> name_forms("val2014/COCO_val2014_000000391895.jpg")[-3:]
    ('COCO_val2014_000000391895.jpg', 'COCO_val2014_000000391895', '391895')
    """
    name = name.strip()
    last = name.rpartition("/")[2]
    bare = _ENDING.sub("", last)
    numbered = _NUMBERED.fullmatch(bare)
    return name, _ENDING.sub("", name), last, bare, numbered[1] if numbered else None


def _shown(names: Sequence[object]) -> str:
    """Return the first three names for a message."""
    listed = ", ".join(one_line(repr(name), 60) for name in names[:3])
    return listed + (", …" if len(names) > 3 else "")


def _plain_id(value: object, name: str) -> int | str:
    """Return an id from JSON; 25.0 becomes 25.

    Args:
        value: the id.
        name: name of the field, for the message.

    Raises:
        TypeError: if the id is neither a whole number nor text.
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if type(value) is int or type(value) is str:
        return value
    raise TypeError(f"{name} must be a number or text; got {one_line(repr(value), 60)}")


def _listed_images(path: Path) -> dict[str, tuple[str, _Size | None]]:
    """Read the images that a COCO annotations file lists: id -> file name, and width and height if listed.

    Raises:
        DataError: if the file is not a COCO annotations file, an entry is broken, or an id occurs twice.
    """
    content = read_json(path, "list of images")
    entries = content.get("images") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries:
        raise DataError(f'{path} is not a COCO annotations file: it has no list "images".')
    images: dict[str, tuple[str, _Size | None]] = {}
    for number, entry in enumerate(entries):
        try:
            name, size = entry["file_name"], _size(entry)
            image = str(_plain_id(entry["id"], "id")).strip()
            if not isinstance(name, str) or not name.strip():
                raise TypeError(f"file_name must be text; got {one_line(repr(name), 60)}")
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise DataError(
                f"{path}: image {number} is broken ({one_line(repr(error), 200)}); it needs id and "
                "file_name, and should have width and height."
            ) from error
        if image in images:
            raise DataError(f"{path}: image id {image} occurs twice.")
        images[image] = name, size
    return images


def _size(entry: dict[str, Any]) -> _Size | None:
    sides: list[Any] = [entry.get("width"), entry.get("height")]
    if sides == [None, None]:
        return None
    for side in sides:
        if type(side) not in (int, float) or not 0 < side < float("inf"):
            raise TypeError(f"width and height must be numbers > 0; got {one_line(repr(side), 60)}")
    return float(sides[0]), float(sides[1])


class ImageNames:
    """Index of images by the forms of their names, see `name_forms`.

    Args:
        keys: keys of the images.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        # Number of a form and the name in this form -> the rows of the images with this name.
        self._rows: defaultdict[tuple[int, str | None], list[int]] = defaultdict(list)
        for row, key in enumerate(keys):
            for form in enumerate(name_forms(key)):
                self._rows[form].append(row)

    def matches(self, name: str) -> Iterator[list[int]]:
        """Yield the rows of the images with a name, for each form that an image has, most exact form first."""
        for number, form in enumerate(name_forms(name)):
            if form and (number, form) in self._rows:
                yield self._rows[number, form]


class DetectedImages:
    """Images of a dataset, found by the image ids of a detector.

    Args:
        dataset: the dataset.
        path: file with the detections, for messages.
        images: file with names and sizes of the ids; None without such a file.

    Attributes:
        ids: int64 (n,), ascending.
        keys: n keys of the images.
        sizes: float64 (n, 2), width and height of the detector's input images, in pixels.

    Raises:
        DataError: if the dataset has no image bytes, or the file with names is broken.
    """

    def __init__(self, dataset: StoredDataset, path: Path, images: Path | None) -> None:
        self._dataset, self._path, self._images = dataset, path, images
        self._listed = None if images is None else _listed_images(images)
        splits = [dataset.split(name) for name in dataset.splits]
        sizes = np.concatenate([split.sizes for split in splits])
        ids = np.concatenate([split.ids for split in splits])
        keys = [key for split in splits for key in split.keys]
        order = np.argsort(ids)
        self.ids = ids[order]
        self.keys: list[str] = [keys[place] for place in order]
        self._stored = sizes[order].astype(np.float64)
        # Sizes of the detector's input images, and whether they come from the list.
        self.sizes = self._stored.copy()
        self._is_listed = np.zeros(len(order), bool)
        self._called: dict[int, int | str] = {}
        self._names = ImageNames(self.keys)

    def find(self, image: int | str) -> int:
        """Return the row of an image_id; -1 if the dataset lacks the image.

        Raises:
            DataError: if the image_id matches several images, or another image_id matches the same image.
        """
        name, size = str(image), None
        if self._listed is not None:
            entry = self._listed.get(name.strip())
            if entry is None:
                return -1
            name, size = entry
        rows = next(self._names.matches(name), [])
        if not rows:
            return -1
        if len(rows) > 1:
            raise DataError(
                f"{self._path}: image_id {image!r} may be several images of {self._dataset.path}: "
                f"{_shown([self.keys[row] for row in rows])}. Use whole keys as ids."
            )
        (row,) = rows
        other = self._called.setdefault(row, image)
        if str(other).strip() != str(image).strip():
            raise DataError(
                f"{self._path}: image_ids {other!r} and {image!r} are both taken for the image "
                f"{self.keys[row]!r} of {self._dataset.path}. Use its whole key, and "
                "remove detections of images that the dataset lacks."
            )
        if size is not None:
            self.sizes[row] = size
            self._is_listed[row] = True
        return row

    def check_sizes(self, rows: np.ndarray) -> list[str]:
        """Check that `sizes` are the sizes of the detector's input images.

        Args:
            rows: int64 (k,), rows of images with detections.

        Returns:
            One-line notes.

        Raises:
            DataError: if an image may have been larger than the stored one, or was rotated by 90 degrees.
        """
        notes = self._compare(rows[self._is_listed[rows]])
        limit = self._dataset.manifest.get("writing", {}).get("max_side")
        if limit is None:
            return notes
        unlisted = rows[~self._is_listed[rows]]
        # Shrunk images have exactly the largest side; smaller images are stored unchanged.
        doubtful = unlisted[self._stored[unlisted].max(axis=1) >= limit]
        if doubtful.size:
            raise DataError(
                f"{self._dataset.path} was prepared with max_side={limit}, so {counted(len(doubtful), 'image')} may "
                f"have been larger when their boxes were found ({_shown([self.keys[row] for row in doubtful])}). "
                f"Give the sizes of the images of {self._path} as `images`, a COCO annotations file with "
                "file_name, width and height."
            )
        return notes

    def _compare(self, rows: np.ndarray) -> list[str]:
        """Compare the shapes of listed images with the stored ones."""
        sizes, stored = self.sizes[rows], self._stored[rows]
        ratio, stored_ratio = sizes[:, 0] / sizes[:, 1], stored[:, 0] / stored[:, 1]
        # The sides of shrunk images are rounded to pixels.
        slack = 1 + 0.01 + (1 / stored).sum(axis=1)
        same = np.maximum(ratio / stored_ratio, stored_ratio / ratio) <= slack
        turned = np.maximum(ratio * stored_ratio, 1 / (ratio * stored_ratio)) <= slack

        def example(images: np.ndarray) -> str:
            first = int(np.argmax(images))
            width, height = sizes[first]
            here = "{:.0f} x {:.0f}".format(*stored[first])
            return f"first {self.keys[rows[first]]!r}: {width:.0f} x {height:.0f} there and {here} here"

        bad = turned & ~same
        if bad.any():
            raise DataError(
                f"{self._images} has {counted(int(bad.sum()), 'image')} turned on their side ({example(bad)}), "
                "so their boxes would be wrong. Run the detector on upright images."
            )
        if same.all():
            return []
        images = counted(int((~same).sum()), "image has", "images have")
        return [
            f"{images} another shape in {self._images} ({example(~same)}); their boxes are scaled to the stored images."
        ]

    def nothing_fits(self, image_ids: Sequence[int | str]) -> str:
        """Return the message for results without an image_id of the dataset."""
        if self._listed is None:
            by = ""
            advice = (
                "They must be keys, with or without folders and ending, or the numbers in file names such as "
                "000000391895.jpg; for other ids list id and file_name in a file that `images` names, as "
                "COCO's annotations do."
            )
        else:
            by = f" by the file names in {self._images}"
            advice = "Its ids must match the detections, and its file names the keys."
        return (
            f"None of the {len(image_ids):,} image_ids of {self._path} is an image of {self._dataset.path}{by}: "
            f"they are {_shown(image_ids)}, and the keys {_shown(self.keys)}. {advice}"
        )

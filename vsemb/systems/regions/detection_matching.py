"""Which image of a dataset a detector's image_id is, and how large it was for the detector."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vsemb.data.all_images import filled_splits
from vsemb.errors import DataError, one_line
from vsemb.files import read_json

if TYPE_CHECKING:
    from vsemb.data.store import Dataset

_SHOWN = 3
_ENDING = re.compile(r"\.(?:jpe?g|png|gif|bmp|webp|tiff?|ppm)$", re.IGNORECASE)
# 000000391895 and COCO_val2014_000000391895: the image 391895 of COCO.
_NUMBERED = re.compile(r"(?:COCO_[A-Za-z0-9]+_)?0*([0-9]+)")


def name_forms(name: str) -> tuple[str | None, ...]:
    """Returns the ways to call an image, most exact first; names are compared way by way.

    Example:

    >>> name_forms("val2014/COCO_val2014_000000391895.jpg")[-3:]
    ('COCO_val2014_000000391895.jpg', 'COCO_val2014_000000391895', '391895')
    """
    name = name.strip()
    last = name.rpartition("/")[2]
    bare = _ENDING.sub("", last)
    numbered = _NUMBERED.fullmatch(bare)
    return name, _ENDING.sub("", name), last, bare, numbered[1] if numbered else None


def shown(names: Sequence[object]) -> str:
    """Returns the first few of some names, for a message."""
    listed = ", ".join(one_line(repr(name), 60) for name in names[:_SHOWN])
    return listed + (", …" if len(names) > _SHOWN else "")


def plain_id(value: object, name: str) -> int | str:
    """Returns an id as it stands in JSON; one written as 25.0 is 25.

    Args:
        value: the id.
        name: what it is called, for the message.

    Raises:
        TypeError: if it is neither a whole number nor text.
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if type(value) is int or type(value) is str:
        return value
    raise TypeError(f"{name} must be a number or text, not {one_line(repr(value), 60)}")


class ListedImages:
    """The images that a COCO annotations file lists: their file names and sizes by id.

    Args:
        path: a JSON file, an object with `images`.

    Raises:
        DataError: if it is none, or an entry is broken or has the id of another.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        content = read_json(path, "list of images")
        entries = content.get("images") if isinstance(content, dict) else None
        if not isinstance(entries, list) or not entries:
            raise DataError(f'{path} is not a COCO annotations file: it has no list "images".')
        self._entries: dict[str, tuple[str, tuple[float, float] | None]] = {}
        for number, entry in enumerate(entries):
            try:
                name, size = entry["file_name"], self._size(entry)
                image = str(plain_id(entry["id"], "id")).strip()
                if not isinstance(name, str) or not name.strip():
                    raise TypeError(f"file_name must be text, not {one_line(repr(name), 60)}")
            except (KeyError, TypeError, AttributeError, OverflowError) as error:
                raise DataError(
                    f"{path}: image {number} is broken ({one_line(repr(error), 200)}); it needs id and "
                    "file_name, and should have width and height."
                ) from error
            if image in self._entries:
                raise DataError(f"{path}: image id {image} occurs twice.")
            self._entries[image] = name, size

    @staticmethod
    def _size(entry: dict[str, Any]) -> tuple[float, float] | None:
        sides: list[Any] = [entry.get("width"), entry.get("height")]
        if sides == [None, None]:
            return None
        for side in sides:
            if type(side) not in (int, float) or not 0 < side < float("inf"):
                raise TypeError(f"width and height must be numbers > 0, not {one_line(repr(side), 60)}")
        width, height = map(float, sides)
        return width, height

    def get(self, image: int | str) -> tuple[str, tuple[float, float] | None] | None:
        """Returns file name and (width, height), None where not known, of an id; None if not listed."""
        return self._entries.get(str(image).strip())


class DetectedImages:
    """The images of a dataset, found by what detectors call them.

    Args:
        dataset: the dataset.
        listed: names and sizes of the ids, if there is a list.

    Attributes:
        ids: int64 (n,), ascending.
        keys: n.

    Raises:
        DataError: if the dataset holds no image bytes.
    """

    def __init__(self, dataset: Dataset, listed: ListedImages | None) -> None:
        self._dataset = dataset
        self._listed = listed
        entries = [entry for name in filled_splits(dataset) for entry in dataset.split(name).entries]
        entries.sort(key=lambda entry: entry["id"])
        if not all(entry.get("width") for entry in entries):
            raise DataError(f"{dataset.path} holds no image bytes, only precomputed features.")
        self.ids = np.array([entry["id"] for entry in entries], np.int64)
        self.keys: list[str] = [entry["key"] for entry in entries]
        self._stored = np.array([[entry["width"], entry["height"]] for entry in entries], np.float64)
        self._sizes: dict[int, tuple[float, float]] = {}
        self._called: dict[int, int | str] = {}
        forms = [name_forms(key) for key in self.keys]
        # Way by way: name -> row, or the rows of several images that have it.
        self._rows: list[dict[str, list[int]]] = [{} for _ in forms[0]]
        for row, names in enumerate(forms):
            for by_name, name in zip(self._rows, names, strict=True):
                if name is not None:
                    by_name.setdefault(name, []).append(row)

    def find(self, image: int | str, path: Path) -> int:
        """Returns the row of an image_id of the detections in `path`; -1 if the dataset has no such image.

        Raises:
            DataError: if it may be several images, or another image_id is the same image.
        """
        name, size = str(image), None
        if self._listed is not None:
            entry = self._listed.get(image)
            if entry is None:
                return -1
            name, size = entry
        for by_name, form in zip(self._rows, name_forms(name), strict=True):
            rows = by_name.get(form, []) if form else []
            if len(rows) > 1:
                raise DataError(
                    f"{path}: image_id {image!r} may be several images of {self._dataset.path}: "
                    f"{shown([self.keys[row] for row in rows])}. Call them by their whole keys."
                )
            if rows:
                other = self._called.setdefault(rows[0], image)
                if str(other).strip() != str(image).strip():
                    raise DataError(
                        f"{path}: image_ids {other!r} and {image!r} are both taken for the image "
                        f"{self.keys[rows[0]]!r} of {self._dataset.path}. Call it by its whole key, and "
                        "leave out images that the dataset does not have."
                    )
                if size is not None:
                    self._sizes[rows[0]] = size
                return rows[0]
        return -1

    def sizes(self, rows: np.ndarray, path: Path) -> tuple[np.ndarray, list[str]]:
        """Returns the sizes in pixels that images had for the detector.

        Args:
            rows: int64 (k,), the images that have detections.
            path: the detections, for the message.

        Returns:
            `(sizes, notes)`: float64 (n, 2) of all images, width and height, right in `rows`; lines worth
            showing.

        Raises:
            DataError: if an image may have been larger than the stored one, or was turned.
        """
        sizes, notes = self._stored.copy(), []
        known = np.array([row for row in rows if int(row) in self._sizes], np.int64)
        if len(known):
            sizes[known] = [self._sizes[int(row)] for row in known]
            notes += self._compare(known, sizes[known])
        limit = self._dataset.manifest.get("writing", {}).get("max_side")
        unknown = np.setdiff1d(rows, known)
        # What was shrunk has the largest side exactly; all smaller images are stored as they were.
        if limit is not None and (doubtful := unknown[self._stored[unknown].max(axis=1) >= limit]).size:
            raise DataError(
                f"{self._dataset.path} was prepared with --max-side {limit}, so {len(doubtful):,} images may "
                f"have been larger when their boxes were found ({shown([self.keys[r] for r in doubtful])}). "
                f"Give the sizes of the images of {path}: --images FILE, a COCO annotations file with "
                "file_name, width and height."
            )
        return sizes, notes

    def _compare(self, rows: np.ndarray, sizes: np.ndarray) -> list[str]:
        """Compares the shapes of images with the stored ones."""
        assert self._listed is not None
        stored = self._stored[rows]
        ratio, stored_ratio = sizes[:, 0] / sizes[:, 1], stored[:, 0] / stored[:, 1]
        # Sides of shrunk images are rounded to pixels.
        slack = 1 + 0.01 + (1 / stored).sum(axis=1)
        same, turned = (
            np.maximum(a / b, b / a) <= slack for a, b in ((ratio, stored_ratio), (1 / ratio, stored_ratio))
        )

        def example(which: np.ndarray) -> str:
            first = int(np.argmax(which))
            width, height = sizes[first]
            here = "{:.0f} x {:.0f}".format(*stored[first])
            return f"first {self.keys[rows[first]]!r}: {width:.0f} x {height:.0f} there and {here} here"

        if (bad := turned & ~same).any():
            raise DataError(
                f"{self._listed.path} has {int(bad.sum()):,} images turned on their side ({example(bad)}), "
                "so their boxes would lie elsewhere. Detect in images that are upright, as EXIF says."
            )
        if same.all():
            return []
        return [
            f"{int((~same).sum()):,} images are of other shape in {self._listed.path} ({example(~same)}); "
            "their boxes are taken as parts of the image's sides."
        ]

    def nothing_fits(self, path: Path, image_ids: Sequence[int | str]) -> str:
        """Returns what to say where no image_id is an image of the dataset."""
        by = "" if self._listed is None else f" by the file names in {self._listed.path}"
        advice = (
            "They must be keys, with or without folders and ending, or the numbers in file names such as "
            "000000391895.jpg; for other ids list id and file_name with --images FILE, as COCO's annotations "
            "do."
        )
        if self._listed is not None:
            advice = "Its ids must be those of the detections, and its file names the keys."
        return (
            f"None of the {len(image_ids):,} image_ids of {path} is an image of {self._dataset.path}{by}: "
            f"they are {shown(image_ids)}, and the keys {shown(self.keys)}. {advice}"
        )

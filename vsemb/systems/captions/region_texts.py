"""Texts of regions: from a file of Visual Genome or in COCO's form, or phrases of captions that name objects."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.data.store import Split, StoredDataset
from vsemb.errors import DataError, one_line
from vsemb.files import read_json
from vsemb.systems.regions.detections import DetectedImages, clip_boxes
from vsemb.systems.regions.pointing import box_iou, named_objects, object_nouns

#: Minimum intersection over union of two annotated boxes of one region.
SAME = 0.5


@dataclass(frozen=True, eq=False)
class RegionTexts:
    """Annotated regions of a split, one box and one text each.

    Attributes:
        rows: int64 (n,), row of the image in the split, ascending.
        boxes: float32 (n, 4), `[x, y, w, h]` as fractions of the image's width and height.
        texts: n texts.
        notes: one-line notes about annotations that were left out or clipped.
    """

    rows: np.ndarray
    boxes: np.ndarray
    texts: list[str]
    notes: tuple[str, ...] = ()

    def references(self) -> list[list[str]]:
        """Return the texts of each annotation's region: its own, and others of boxes with an IoU of `SAME` or more.

        Example:

        >>> boxes = np.array([[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.4], [0.5, 0.5, 0.5, 0.5]], np.float32)
        >>> RegionTexts(np.zeros(3, int), boxes, ["a dog", "dog", "a ball"]).references()
        [['a dog', 'dog'], ['dog', 'a dog'], ['a ball']]
        """
        references = []
        for row in np.unique(self.rows):
            (same,) = np.nonzero(self.rows == row)
            for place, overlaps in zip(same, box_iou(self.boxes[same], self.boxes[same]) >= SAME, strict=True):
                others = [self.texts[other] for other in same[overlaps] if other != place]
                references.append([self.texts[place], *others])
        return references


def read_region_texts(
    path: str | os.PathLike[str], dataset: StoredDataset, part: Split, images: str | os.PathLike[str] | None = None
) -> RegionTexts:
    """Read region annotations of the images of a split.

    Args:
        path: `region_descriptions.json` of Visual Genome, `[{"id", "regions": [{"image_id", "phrase", "x", "y",
            "width", "height"}, ...]}, ...]`, or COCO's form, `{"images": [...], "annotations": [{"image_id", "bbox":
            [x, y, w, h], "caption"}, ...]}`. Boxes are in pixels.
        dataset: the dataset.
        part: the split.
        images: COCO annotations with names and sizes of the images, see
            `vsemb.systems.regions.detections.read_detections`; default: the list `images` of the file, if it has one.

    Raises:
        DataError: if the file is of another form, an entry is broken, or no image is of the split.
    """
    path = Path(path)
    content = read_json(path, "region annotations")
    if images is None and isinstance(content, dict) and content.get("images"):
        images = path
    matched = DetectedImages(dataset, path, None if images is None else Path(images))
    entries = list(_entries(path, content))
    places = {image: matched.find(image) for image in dict.fromkeys(image for image, _, _ in entries)}
    of_image = np.array([places[image] for image, _, _ in entries], np.int64)
    inside = (of_image >= 0) & np.isin(matched.ids[of_image], part.ids)
    if not inside.any():
        raise DataError(f"{path} must have annotations of the split {part.name!r}; got none of its images.")
    matched.check_sizes(np.unique(of_image[inside]))
    pixels = np.array([box for _, box, _ in entries], np.float64)[inside]
    boxes, some, notes = clip_boxes(pixels, matched.sizes[of_image[inside]])
    rows = np.searchsorted(part.ids, matched.ids[of_image[inside]])[some]
    texts = [entries[place][2] for place in np.flatnonzero(inside)[some]]
    order = np.argsort(rows, kind="stable")
    return RegionTexts(rows[order], boxes[some][order], [texts[place] for place in order], tuple(notes))


def _entries(path: Path, content: Any) -> Iterator[tuple[int | str, list[float], str]]:
    """Yield image id, box in pixels and text of each annotation."""
    annotations = []
    try:
        if isinstance(content, dict):
            for entry in content["annotations"]:
                annotations.append((entry["image_id"], entry["bbox"], entry["caption"]))
        else:
            for region in itertools.chain.from_iterable(image["regions"] for image in content):
                box = [region[name] for name in ("x", "y", "width", "height")]
                annotations.append((region["image_id"], box, region["phrase"]))
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{path} must be region descriptions of Visual Genome, or COCO annotations with captions; got "
            f"{one_line(repr(error), 100)}."
        ) from error
    for number, (image, box, text) in enumerate(annotations):
        whole = isinstance(image, int | str) and isinstance(text, str) and bool(text.strip())
        if not (whole and len(box) == 4 and all(type(side) in (int, float) for side in box)):
            raise DataError(f"{path}: annotation {number} must have an image_id, four numbers and a text.")
        yield image, box, text


def named_region_texts(part: Split) -> RegionTexts:
    """Return the phrases of captions that name one object each, with the object's box.

    Args:
        part: a split with boxes of objects and alignments of words, like that of `vsemb scenes`. A phrase is a run of
            neighbouring words that name one object, with a noun among them.

    Raises:
        DataError: if no word names an object.
    """
    rows, boxes, texts = [], [], []
    for row in range(len(part)):
        for caption, alignment in zip(part.captions_of(row), part.alignments[row], strict=True):
            words, named = caption.split(), named_objects(alignment)
            nouns = object_nouns(named)
            whose: list[tuple[int, ...]] = [named.get(word, ()) for word in range(len(words))]
            for objects, run in itertools.groupby(range(len(words)), whose.__getitem__):
                places = list(run)
                if len(objects) == 1 and nouns.intersection(places):
                    rows.append(row)
                    boxes.append(part.objects[row][objects[0]]["box"] / np.tile(part.sizes[row], 2))
                    texts.append(" ".join(words[place] for place in places))
    if not rows:
        raise DataError(f"The words of the split {part.name!r} name no objects. Give --annotations FILE.")
    return RegionTexts(np.array(rows, np.int64), np.array(boxes, np.float32), texts)

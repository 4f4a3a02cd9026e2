"""RefCOCO, RefCOCO+ and RefCOCOg: expressions that name one object each, for the protocol `pointing`.

Files: `refs(unc).p`, `refs(umd).p` or `refs(google).p`, a pickled list of objects with their expressions, and
`instances.json`, COCO's images, boxes and categories.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from vsemb.data.readers import Reader
from vsemb.data.readers.source import (
    BadRows,
    Source,
    existing,
    file_name,
    find_images,
    image_folders,
    image_path,
    split_name,
    the_file,
    typed_fields,
)
from vsemb.data.records import ImageRecord
from vsemb.errors import DataError, one_line
from vsemb.files import read_json
from vsemb.pickles import read_plain_pickle

_NAME, _BOXES = re.compile(r"refs\(\w+\)\.p"), "instances.json"
_FOLDERS = ("images", "train2014", "images/train2014")


@dataclass
class _Image:
    """The expressions of an image, gathered from all of its objects."""

    name: str
    split: str = ""
    objects: dict[int, dict[str, Any]] = field(default_factory=dict)
    expressions: list[tuple[str, int]] = field(default_factory=list)


@dataclass(frozen=True)
class RefCoco(Reader, kind="refcoco"):
    """RefCOCO, RefCOCO+ or RefCOCOg, whose expressions name boxes, for `vsemb evaluate --protocol pointing`.

    The source is a file refs(unc).p or refs(umd).p, or the folder of one, with instances.json beside it. Every word of
    an expression names the object.

    Attributes:
        images: folder of COCO's images, a path or URI; default: `images` or `train2014` in the folder or beside it.
    """

    images: str | os.PathLike[str] | None = None

    next_command: ClassVar[str | None] = "vsemb regions {data} --backbone MobileNetV2"

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        folder = path if path.is_dir() else path.parent
        return bool(_files(path)) and (folder / _BOXES).is_file()

    def read(self, source: str | os.PathLike[str]) -> Source:
        path = existing(source)
        file = the_file(path, _files, "files refs(...).p")
        bad = BadRows()
        images = _expressions(file, *_boxes(file.parent / _BOXES, bad), bad)
        usual = [place / name for place in (file.parent, file.parent.resolve().parent) for name in _FOLDERS]
        folder = find_images([image.name for image in images], image_folders(self.images, *usual))
        records: list[ImageRecord] = []
        for image in images:
            with bad:
                places = {number: place for place, number in enumerate(image.objects)}
                captions, alignments = [], []
                for caption, number in image.expressions:
                    captions.append(caption)
                    alignments.append(tuple((word, places[number]) for word in range(len(caption.split()))))
                where = image_path(folder, image.name)
                objects = tuple(image.objects.values())
                records.append(
                    ImageRecord(image.name, tuple(captions), image.split, where, None, objects, tuple(alignments))
                )
        bad.require(file, records)
        return Source("refcoco", path.resolve().name, records, files=(file, file.parent / _BOXES), bad=tuple(bad))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.glob("refs*.p") if _NAME.fullmatch(file.name))
    return [path] if path.suffix == ".p" else []


def _boxes(path: Path, bad: BadRows) -> tuple[dict[int, _Image], dict[int, tuple[int, dict[str, Any]]]]:
    """Return image id -> image, and object id -> its image id, label and box."""
    content = read_json(path, "file of boxes")
    images, notes, categories = typed_fields(str(path), content, images=list, annotations=list, categories=list)
    labels: dict[int, str] = {}
    for place, entry in enumerate(categories):
        with bad:
            number, name = typed_fields(f"{path}: category {place}", entry, id=int, name=str)
            _add(labels, f"{path}: category {place}", number, name)
    names: dict[int, str] = {}
    for place, entry in enumerate(images):
        with bad:
            number, name = typed_fields(f"{path}: image {place}", entry, id=int, file_name=str)
            _add(names, f"{path}: image {place}", number, file_name(name))
    objects: dict[int, tuple[int, dict[str, Any]]] = {}
    for place, entry in enumerate(notes):
        where = f"{path}: annotation {place}"
        with bad:
            number, image, box, category = typed_fields(where, entry, id=int, image_id=int, bbox=list, category_id=int)
            sides = [float(side) for side in box if type(side) in (int, float) and math.isfinite(side)]
            if len(sides) != 4 or len(box) != 4 or min(sides) < 0 or not (sides[2] and sides[3]):
                raise DataError(f"{where}: the box must be [x, y, w, h], in pixels; got {one_line(repr(box), 80)}.")
            _add(objects, where, number, (image, {"label": labels.get(category, ""), "box": sides}))
    # Several ids of one file are one image.
    images_by_name = {name: _Image(name) for name in names.values()}
    return {number: images_by_name[name] for number, name in names.items()}, objects


def _add(values: dict[int, Any], where: str, number: int, value: Any) -> None:
    """Add a value with an id.

    Raises:
        DataError: if another value has the id.
    """
    if values.setdefault(number, value) != value:
        raise DataError(f"{where} has the id {number} of an earlier one, which differs.")


def _expressions(
    file: Path, images: dict[int, _Image], objects: dict[int, tuple[int, dict[str, Any]]], bad: BadRows
) -> list[_Image]:
    """Return the images with expressions, in the order of the file."""
    content = read_plain_pickle(file)
    if not isinstance(content, list):
        raise DataError(f"{file} must be a list of objects with expressions; got {type(content).__name__}.")
    described: dict[str, _Image] = {}
    for place, entry in enumerate(content):
        where = f"{file}: object {place}"
        with bad:
            number, split, sentences = typed_fields(where, entry, ann_id=int, split=str, sentences=list)
            texts = [typed_fields(where, sentence, sent=str)[0] for sentence in sentences]
            expressions = [(text, number) for text in texts if text.split()]
            if number not in objects or objects[number][0] not in images or not expressions:
                raise DataError(f"{where} must have an expression, and {_BOXES} the box and the image of {number}.")
            image = images[objects[number][0]]
            if image.split not in ("", split_name(split)):
                raise DataError(f"{where} puts {image.name} into the split {split}; it is in {image.split} already.")
            image.split = split_name(split)
            image.objects[number] = objects[number][1]
            image.expressions += expressions
            described[image.name] = image
    return list(described.values())

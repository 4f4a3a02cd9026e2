"""CUB-200-2011 (birds) with the descriptions of Reed et al. 2016.

Sources: Wah et al. 2011 (`images.txt`, `images/001.Black_footed_Albatross/*.jpg`, attributes of classes in
percent); https://github.com/reedscot/cvpr2016 (descriptions, and lists of classes that make splits without
a common class).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vsemb.data.dataset import Dataset
from vsemb.data.readers.source import Source, existing, find_images, image_path, text_lines
from vsemb.data.records import ImageRecord
from vsemb.errors import DataError
from vsemb.systems.zero_shot.attributes import ClassAttributes, write_attributes
from vsemb.systems.zero_shot.readers.description_folders import DescriptionFolders, unlisted

_VALUES = "attributes/class_attribute_labels_continuous.txt"


@dataclass(frozen=True)
class ClassSource(Source):
    """Images with classes.

    Attributes:
        attributes: of the classes, where they are known.
    """

    attributes: ClassAttributes | None = None

    @property
    def knows_more(self) -> bool:
        return super().knows_more or self.attributes is not None

    def finish(self, dataset: Dataset) -> None:
        if self.attributes is not None:
            write_attributes(dataset.path, self.attributes)


def read(
    source: str | os.PathLike[str],
    *,
    images: str | os.PathLike[str] | None = None,
    descriptions: str | os.PathLike[str] | None = None,
) -> ClassSource:
    """Reads CUB-200-2011.

    Args:
        source: the folder `CUB_200_2011`, or the one that holds it.
        images: the images folder; default: `images/` in it.
        descriptions: the folder `text_c10` or the one that holds it, with `trainclasses.txt`,
            `valclasses.txt` and `testclasses.txt` in or beside it; by default it is looked for around
            `source`.

    Returns:
        the source; its attributes are those of the 200 classes, from 0 to 1, where their file is present;
        where it is not, a note names it.

    Raises:
        DataError: if a file is missing or broken, or no image or no description is found.
    """
    root = existing(source)
    root = root / "CUB_200_2011" if (root / "CUB_200_2011").is_dir() else root
    listing = root / "images.txt"
    names = _numbered(listing)
    texts = DescriptionFolders(descriptions, (root, root.parent, root / "cvpr2016_cub", root.parent / "cvpr2016_cub"))
    folder = find_images(names, [root / "images" if images is None else Path(images)])
    records, left_out = [], []
    for name in names:
        class_folder, _, file = name.rpartition("/")
        if not class_folder:
            raise DataError(f"{listing}: the image {name!r} lies in no class folder.")
        if class_folder not in texts.splits:
            left_out.append(class_folder)
            continue
        records.append(
            ImageRecord(
                name,
                texts.texts(class_folder, Path(file).stem),
                texts.splits[class_folder],
                image_path(folder, name),
                class_name=class_name(class_folder),
            )
        )
    attributes, files = _attributes(root)
    missing = [] if attributes else [f"{_VALUES} is not in {root}, so the classes have no attributes."]
    return ClassSource(
        "cub",
        root.resolve().name,
        records,
        files=(listing, *texts.files, *files),
        options={"descriptions_sha256": texts.sha256()},
        total=len(records),
        notes=(*texts.notes, *unlisted(left_out), *missing),
        attributes=attributes,
    )


def class_name(folder: str) -> str:
    """Returns the name of a class from that of its folder.

    Example:

    >>> class_name("001.Black_footed_Albatross")
    'Black footed Albatross'
    """
    number, dot, rest = folder.partition(".")
    return (rest if dot and number.isdecimal() else folder).replace("_", " ")


def _numbered(path: Path) -> list[str]:
    """Returns the names of a file of lines NUMBER NAME."""
    names = []
    for number, line in enumerate(text_lines(path), 1):
        if not line.strip():
            continue
        _, space, name = line.strip().partition(" ")
        if not space:
            raise DataError(f"{path}, line {number}: expected NUMBER NAME. Received: {line[:60]!r}.")
        names.append(name.strip())
    if not names:
        raise DataError(f"{path} is empty.")
    return names


def _attributes(root: Path) -> tuple[ClassAttributes | None, list[Path]]:
    values = root / _VALUES
    if not values.is_file():
        return None, []
    classes = _numbered(root / "classes.txt")
    rows = []
    for number, line in enumerate(text_lines(values), 1):
        if not line.strip():
            continue
        try:
            rows.append([float(value) / 100 for value in line.split()])
        except ValueError as error:
            raise DataError(f"{values}, line {number}: not numbers ({error}).") from error
    if len(rows) != len(classes):
        raise DataError(f"{values} has {len(rows)} lines for the {len(classes)} classes of classes.txt.")
    files = [root / "classes.txt", values]
    # The archive puts the names of the attributes beside the folder of the images.
    places = (root / "attributes" / "attributes.txt", root / "attributes.txt", root.parent / "attributes.txt")
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        names = [f"attribute {number}" for number in range(1, len(rows[0]) + 1)]
    else:
        names = _numbered(found)
        files.append(found)
    return (
        ClassAttributes(
            tuple(names), {class_name(name): np.array(row) for name, row in zip(classes, rows, strict=True)}
        ),
        files,
    )

"""Flickr30k Entities: captions whose phrases are linked to boxes (Plummer et al. 2015), for `--protocol pointing`.

Files: `Sentences/ID.txt`, one caption per line with phrases such as `[/EN#283/people Two young guys]`;
`Annotations/ID.xml`, the boxes of each entity number; `train.txt`, `val.txt` and `test.txt`, the images of each split.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree

from vsemb.data.readers import Reader
from vsemb.data.readers.source import BadRows, Source, existing, find_images, image_folders, image_path, text_lines
from vsemb.data.records import ImageRecord
from vsemb.errors import DataError, one_line
from vsemb.files import read_text, reading

_PHRASE = re.compile(r"\[/EN#(\d+)/(\S+) ([^\]]*)\]")
_SPLITS = ("train", "val", "test")
_FOLDERS = ("flickr30k-images", "flickr30k_images", "images")

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Entities(Reader, kind="entities"):
    """Flickr30k Entities, whose phrases name boxes, for `vsemb evaluate --protocol pointing`.

    The folder holds Annotations/, Sentences/ and the lists of splits.

    Attributes:
        images: images folder, a path or URI; default: `flickr30k-images` in the folder, or beside it.
    """

    images: str | os.PathLike[str] | None = None

    next_command: ClassVar[str | None] = "vsemb regions {data} --backbone MobileNetV2"

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        return (path / "Annotations").is_dir() and (path / "Sentences").is_dir()

    def read(self, source: str | os.PathLike[str]) -> Source:
        folder = existing(source)
        lists = [folder / f"{split}.txt" for split in _SPLITS if (folder / f"{split}.txt").is_file()]
        if not lists or not self.recognizes(folder):
            raise DataError(f"{folder} must hold Annotations, Sentences and train.txt, val.txt or test.txt.")
        members: dict[str, str] = {}
        for file in lists:
            members |= {line.strip(): file.stem for line in text_lines(file) if line.strip()}
        usual = [place / name for place in (folder, folder.resolve().parent) for name in _FOLDERS]
        where = find_images([f"{image}.jpg" for image in members], image_folders(self.images, *usual))
        records: list[ImageRecord] = []
        bad = BadRows()
        for image, split in members.items():
            with bad:
                objects, numbers = read_boxes(folder / "Annotations" / f"{image}.xml")
                lines = text_lines(existing(folder / "Sentences" / f"{image}.txt"))
                linked = [linked_phrases(line, numbers) for line in lines if line.strip()]
                if not linked:
                    raise DataError(f"{folder / 'Sentences' / image}.txt holds no caption.")
                captions, alignments = zip(*linked, strict=True)
                path = image_path(where, f"{image}.jpg")
                records.append(
                    ImageRecord(f"{image}.jpg", captions, split, path, objects=tuple(objects), alignments=alignments)
                )
        bad.require(folder, records)
        return Source("entities", folder.resolve().name, records, files=tuple(lists), bad=tuple(bad))


def read_boxes(path: Path) -> tuple[list[dict[str, Any]], dict[str, list[int]]]:
    """Read the boxes of an image.

    Args:
        path: an XML file of `Annotations`.

    Returns:
        objects: `label` and `box`, `[x, y, w, h]` in pixels, of each box.
        numbers: number of an entity -> its objects.

    Raises:
        DataError: if the file is missing or malformed.
    """
    with reading(path):
        text = read_text(path, "utf-8-sig")
    objects: list[dict[str, Any]] = []
    numbers: dict[str, list[int]] = {}
    try:
        # A declaration of entities can expand to gigabytes.
        if "<!" in text:
            raise ValueError("it has a document type")
        for item in ElementTree.fromstring(text).iter("object"):
            box = item.find("bndbox")
            if box is None:
                continue
            left, top, right, bottom = (float(box.findtext(side, "")) for side in ("xmin", "ymin", "xmax", "ymax"))
            if not (0 <= left < right and 0 <= top < bottom):
                raise ValueError(f"a box is empty: {left:g} {top:g} {right:g} {bottom:g}")
            names = [name.text or "" for name in item.iter("name")]
            for name in names:
                numbers.setdefault(name, []).append(len(objects))
            objects.append({"label": "+".join(names), "box": [left, top, right - left, bottom - top]})
    except (ElementTree.ParseError, ValueError) as error:
        raise DataError(f"{path} must be an annotation of Flickr30k Entities: {one_line(error, 100)}.") from error
    return objects, numbers


def linked_phrases(line: str, numbers: dict[str, Sequence[int]] | dict[str, list[int]]) -> tuple[str, Pairs]:
    """Return a caption without marks, and the objects that its words name.

    Args:
        line: a line of `Sentences`.
        numbers: number of an entity -> its objects.

    Returns:
        caption: the caption, words separated by single spaces.
        pairs: (word, object) pairs, words counted from 0; every word of a phrase names all boxes of its entity.

    Example:

    >>> linked_phrases("[/EN#7/people Two men] and [/EN#8/animals a dog] .", {"7": [0, 2]})
    ('Two men and a dog .', ((0, 0), (0, 2), (1, 0), (1, 2)))
    """
    words: list[str] = []
    pairs: list[tuple[int, int]] = []
    place = 0
    for match in _PHRASE.finditer(line):
        words += line[place : match.start()].split()
        phrase = match[3].split()
        spoken = range(len(words), len(words) + len(phrase))
        pairs += [(word, item) for word in spoken for item in numbers.get(match[1], ())]
        words += phrase
        place = match.end()
    return " ".join([*words, *line[place:].split()]), tuple(pairs)

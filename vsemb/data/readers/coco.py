"""COCO captions: `captions_*.json` with image folders.

Format: https://cocodataset.org/#format-data - `{"images": [{"id", "file_name"}], "annotations":
[{"id", "image_id", "caption"}]}`, one file per split.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from vsemb.data.readers import Reader
from vsemb.data.readers.source import (
    BadRows,
    Source,
    existing,
    file_name,
    find_images,
    head,
    image_folders,
    image_path,
    split_name,
    typed_fields,
)
from vsemb.data.records import ImageRecord
from vsemb.data.uris import RemoteFolder
from vsemb.errors import DataError
from vsemb.files import read_json

# captions_train2017.json -> train, 2017
_FILE_NAME = re.compile(r"captions_([a-z]+?)_?(\d{4})?\.json")


@dataclass(frozen=True)
class Coco(Reader, kind="coco"):
    """COCO captions: `captions_*.json`, or a folder with the files of one year, itself or in `annotations/`.

    Entries with the same file are one image.

    Attributes:
        images: images folder, a path or URI, or the path of the folder above `train2017/` and `val2017/`; default:
            searched near the JSON file.
        split: put all images into this split; default: the split in the name of each file (`captions_val2017.json`).
    """

    images: str | os.PathLike[str] | None = None
    split: str | None = None

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        if path.is_dir():
            return bool(_named_files(path))
        return path.suffix == ".json" and any(name in head(path) for name in ('"file_name"', '"image_id"'))

    def read(self, source: str | os.PathLike[str]) -> Source:
        path = existing(source)
        files = _caption_files(path) if path.is_dir() else [path]
        records: list[ImageRecord] = []
        bad = BadRows()
        for file in files:
            split, stem = self.split, ""
            name = _FILE_NAME.fullmatch(file.name)
            if name is not None:
                split = split or split_name(name[1])
                stem = "".join(part or "" for part in name.groups())
            if split is None:
                raise DataError(
                    f"The name {file.name} does not say which split it is (as captions_val2017.json does); "
                    "name it with `split`."
                )
            folders = image_folders(self.images, file.parent.parent, file.parent)
            records += _records(file, split, stem, folders, bad)
        bad.require(path, records)
        notes: tuple[str, ...] = ()
        if self.split is not None and len(files) > 1:
            notes = (f"{len(files)} files put into split {self.split}.",)
        options = {} if self.split is None else {"split": self.split}
        return Source("coco", path.resolve().name, records, tuple(files), options, notes, tuple(bad))


def _named_files(folder: Path) -> dict[Path, str | None]:
    """Return caption file -> year, None for a name without a year."""
    years = {}
    for file in sorted(folder.glob("annotations/captions_*.json")) or sorted(folder.glob("captions_*.json")):
        name = _FILE_NAME.fullmatch(file.name)
        if name is not None:
            years[file] = name[2]
    return years


def _caption_files(folder: Path) -> list[Path]:
    years = _named_files(folder)
    files = list(years)
    if not files:
        raise DataError(f"{folder} holds no captions_*.json, neither itself nor in annotations/.")
    if len(set(years.values())) > 1:
        # The releases of several years contain the same images, with other file names and in other splits.
        names = ", ".join(file.name for file in files)
        raise DataError(f"{folder} holds captions of several years ({names}); name one file.")
    return sorted(files, key=lambda file: ("train" not in file.name, file.name))


def _records(file: Path, split: str, stem: str, folders: list[Path | RemoteFolder], bad: BadRows) -> list[ImageRecord]:
    content = read_json(file, "COCO captions file")
    plain = content if isinstance(content, dict) else {}
    entries, annotations = plain.get("images"), plain.get("annotations")
    if not isinstance(entries, list) or not isinstance(annotations, list):
        raise DataError(f"{file} must be a COCO captions file, with the lists images and annotations.")
    # Ids are compared as text, because 7 and "7" are the same id in files of different programs.
    names: dict[str, str] = {}
    captions: dict[str, dict[str, str]] = {}
    for place, entry in enumerate(entries):
        with bad:
            number, name = typed_fields(f"{file}: image {place}", entry, id=int | str, file_name=str)
            if str(number) in names:
                raise DataError(f"{file}: image {place} has the id {number!r} of an earlier one.")
            names[str(number)], captions[str(number)] = name, {}
    seen = set()
    for place, note in enumerate(annotations):
        where = f"{file}: annotation {place}"
        with bad:
            identity, number, text = typed_fields(where, note, id=int | str, image_id=int | str, caption=str)
            if str(identity) in seen:
                raise DataError(f"{where} has the id {identity!r} of an earlier one.")
            seen.add(str(identity))
            if str(number) not in captions:
                raise DataError(f"{where} describes image {number!r}, which is not listed.")
            captions[str(number)][str(identity)] = text
    if not names:
        return []
    candidates: list[Path | RemoteFolder] = []
    for root in folders:
        if isinstance(root, Path):
            candidates += [root / stem, root / "images" / stem] if stem else []
            candidates += [root / "images", root]
        else:
            candidates.append(root)
    merged: dict[str, dict[str, str]] = {}
    for number, name in names.items():
        merged.setdefault(file_name(name, candidates), {}).update(captions[number])
    folder = find_images(list(merged), candidates)
    records = []
    for name, texts in merged.items():
        with bad:
            image = image_path(folder, name)
            records.append(ImageRecord(name, tuple(texts.values()), split, image, caption_ids=tuple(texts)))
    return records

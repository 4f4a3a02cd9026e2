"""COCO captions: `captions_*.json` with image folders.

Format: https://cocodataset.org/#format-data - `{"images": [{"id", "file_name"}], "annotations":
[{"id", "image_id", "caption"}]}`, one file per split.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from vsemb.data.readers.source import Source, existing, find_images, head, image_folders, image_path, split_name
from vsemb.data.records import ImageRecord
from vsemb.data.uris import RemoteFolder
from vsemb.errors import DataError
from vsemb.files import read_json

# captions_train2017.json -> train, 2017
_FILE_NAME = re.compile(r"captions_([a-z]+?)_?(\d{4})?\.json")


def recognises(path: Path) -> bool:
    """Return whether a path is a COCO captions file, or a folder that holds some."""
    if path.is_dir():
        return bool(_named_files(path))
    return path.suffix == ".json" and any(name in head(path) for name in ('"file_name"', '"image_id"'))


def read(
    source: str | os.PathLike[str],
    *,
    images: str | os.PathLike[str] | None = None,
    split: str | None = None,
) -> Source:
    """Read COCO captions.

    Args:
        source: a captions JSON file, or a folder that holds `captions_*.json` of one year, itself or in
            `annotations/`.
        images: the images folder, by path or URI, or the path of the folder above `train2017/` and
            `val2017/`; default: looked for
            around the JSON file.
        split: put all images into this split; default: by the names of the files (`captions_val2017.json`).

    Raises:
        DataError: if a file is broken, has duplicate ids or dangling references, or no image is found.
    """
    path = existing(source)
    files = _caption_files(path) if path.is_dir() else [path]
    records: list[ImageRecord] = []
    for file in files:
        found = _FILE_NAME.fullmatch(file.name)
        if found is None and split is None:
            raise DataError(
                f"The name {file.name} does not say which split it is (as captions_val2017.json does); "
                "give it with --split."
            )
        stem = "".join(part or "" for part in found.groups()) if found else ""
        folders = image_folders(images, file.parent.parent, file.parent)
        records += _records(file, split or split_name(found[1] if found else ""), stem, folders)
    notes = (f"{len(files)} files put into split {split}.",) if split is not None and len(files) > 1 else ()
    options = {} if split is None else {"split": split}
    return Source("coco", path.resolve().name, records, tuple(files), options, notes)


def _named_files(folder: Path) -> dict[Path, str | None]:
    """Return the caption files of a folder -> their year."""
    found = sorted(folder.glob("annotations/captions_*.json")) or sorted(folder.glob("captions_*.json"))
    return {file: match[2] for file in found if (match := _FILE_NAME.fullmatch(file.name))}


def _caption_files(folder: Path) -> list[Path]:
    years = _named_files(folder)
    files = list(years)
    if not files:
        raise DataError(f"{folder} holds no captions_*.json, neither itself nor in annotations/.")
    if len(set(years.values())) > 1:
        # The yearly releases share their images under other names and splits.
        names = ", ".join(file.name for file in files)
        raise DataError(f"{folder} holds captions of several years ({names}); name one file.")
    return sorted(files, key=lambda file: ("train" not in file.name, file.name))


def _records(file: Path, split: str, stem: str, folders: list[Path | RemoteFolder]) -> list[ImageRecord]:
    content = read_json(file, "COCO captions file")
    try:
        entries, annotations = content["images"], content["annotations"]
        names = _unique(file, "image id", [(entry["id"], entry["file_name"]) for entry in entries])
        _unique(file, "annotation id", [(note["id"], None) for note in annotations])
        captions: dict[Any, list[tuple[str, str]]] = {number: [] for number in names}
        for note in annotations:
            if note["image_id"] not in captions:
                raise DataError(f"{file}: annotation {note['id']} describes image {note['image_id']}, not listed.")
            captions[note["image_id"]].append((note["caption"], str(note["id"])))
        if not all(isinstance(name, str) for name in names.values()):
            raise TypeError("file_name must be text")
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{file} is not a COCO captions file ({error!r}): it needs images with id and file_name, and "
            "annotations with id, image_id and caption."
        ) from error
    candidates: list[Path | RemoteFolder] = []
    for root in folders:
        if isinstance(root, Path):
            candidates += [root / stem, root / "images" / stem] if stem else []
            candidates += [root / "images", root]
        else:
            candidates.append(root)
    folder = find_images(list(names.values()), candidates)
    return [
        ImageRecord(
            name,
            tuple(text for text, _ in captions[number]),
            split,
            image_path(folder, name),
            caption_ids=tuple(identity for _, identity in captions[number]),
        )
        for number, name in names.items()
    ]


def _unique(file: Path, what: str, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    for key, value in pairs:
        if key in result:
            raise DataError(f"{file}: {what} {key!r} occurs twice.")
        result[key] = value
    return result

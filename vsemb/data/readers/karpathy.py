"""Karpathy's `dataset_*.json` (Flickr8k, Flickr30k, COCO) with an images folder.

Source: https://cs.stanford.edu/people/karpathy/deepimagesent/ - `{"images": [{"filename", "filepath"?,
"imgid", "split", "sentids"?, "sentences": [{"raw", "sentid"?, ...}]}]}`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from vsemb.data.readers import Reader
from vsemb.data.readers.source import (
    BadRows,
    RestVal,
    Source,
    check_text,
    file_name,
    find_images,
    head,
    image_folders,
    image_path,
    row_split,
    split_with_restval,
    the_file,
)
from vsemb.data.records import ImageRecord
from vsemb.errors import DataError, counted
from vsemb.files import read_json


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("dataset_*.json")) or sorted(folder.glob("dataset.json"))


@dataclass(frozen=True)
class Karpathy(Reader, kind="karpathy"):
    """A Karpathy JSON file, `dataset_*.json`, or the folder that holds exactly one.

    It is known for Flickr8k, Flickr30k and COCO.

    Attributes:
        images: images folder, a path or URI; default: `images/` beside the file, or the file's own folder.
        restval: treatment of COCO's split `restval`: `train` merges it into train, as papers do; `keep` makes it a
            split of its own; `drop` leaves it out.
    """

    images: str | os.PathLike[str] | None = None
    restval: RestVal = "train"

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        files = _files(path) if path.is_dir() else [path]
        return any(file.suffix == ".json" and '"sentences"' in head(file) for file in files)

    def read(self, source: str | os.PathLike[str]) -> Source:
        path = the_file(source, _files, "files dataset_*.json")
        content = read_json(path, "Karpathy JSON file")
        entries = content.get("images") if isinstance(content, dict) else None
        if not isinstance(entries, list) or not entries:
            raise DataError(f'{path} is not a Karpathy JSON file: it has no list "images" with something in it.')
        bad = BadRows()
        seen: set[tuple[str, str]] = set()
        images: list[_Image] = []
        for number, entry in enumerate(entries):
            where = f"{path}: image {number}"
            with bad:
                image = _image(where, entry)
                identities = {("filename", image.name)}
                if entry.get("imgid") is not None:
                    identities.add(("imgid", str(entry["imgid"])))
                for field, value in sorted(identities & seen):
                    raise DataError(f"{where} has the {field} {value!r} of an earlier one.")
                seen |= identities
                images.append(image)
        bad.require(path, images)
        notes = []
        rest = sum(image.split == "restval" for image in images)
        if rest and self.restval != "keep":
            fate = "put into train" if self.restval == "train" else "left out"
            notes.append(f"{counted(rest, 'image')} of restval {fate}.")
        folders = image_folders(self.images, path.parent / "images", path.parent, path.parent.parent / "images")
        # COCO's entries name their folder (train2014). Local copies have these folders, or one folder of all images.
        files = [f"{image.folder}/{image.name}" if image.folder else image.name for image in images]
        try:
            folder = find_images(files, folders)
        except DataError:
            files = [image.name for image in images]
            folder = find_images(files, folders)
        records = []
        for image, file in zip(images, files, strict=True):
            split = split_with_restval(image.split, self.restval)
            if split is None:
                continue
            with bad:
                location = image_path(folder, file)
                records.append(ImageRecord(image.name, image.captions, split, location, caption_ids=image.caption_ids))
        return Source("karpathy", path.name, records, (path,), {"restval": self.restval}, tuple(notes), tuple(bad))


class _Image(NamedTuple):
    name: str
    folder: str
    split: str
    captions: tuple[str, ...]
    caption_ids: tuple[str, ...]


def _image(where: str, entry: Any) -> _Image:
    try:
        name, folder, split = entry["filename"], entry.get("filepath") or "", entry["split"]
        captions = tuple(sentence["raw"] for sentence in entry.get("sentences", ()))
        ids = _sentence_ids(entry)
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{where} is not a Karpathy entry ({error!r}); it needs filename, split and sentences with raw."
        ) from error
    texts = {"filename": [name], "filepath": [folder], "split": [split], "raw": captions, "sentid": ids}
    for field, values in texts.items():
        for value in values:
            check_text(where, field, value)
    return _Image(file_name(name), folder, row_split(where, entry) or split, captions, ids)


def _sentence_ids(entry: dict[str, Any]) -> tuple[str, ...]:
    """Return the ids of an image's captions, from the sentences or the image; empty unless all have one."""
    sentences = entry.get("sentences", ())
    for ids in ([sentence.get("sentid") for sentence in sentences], entry.get("sentids")):
        if isinstance(ids, list) and len(ids) == len(sentences) and all(map(_is_id, ids)):
            return tuple(str(number).strip() for number in ids)
    return ()


def _is_id(value: Any) -> bool:
    return isinstance(value, (int, str)) and not isinstance(value, bool) and bool(str(value).strip())

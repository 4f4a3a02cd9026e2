"""Karpathy's `dataset_*.json` (Flickr8k, Flickr30k, COCO) with an images folder.

Source: https://cs.stanford.edu/people/karpathy/deepimagesent/ - `{"images": [{"filename", "filepath"?,
"imgid", "split", "sentids"?, "sentences": [{"raw", "sentid"?, ...}]}]}`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vsemb.data.readers import Reader
from vsemb.data.readers.source import (
    BadRows,
    Source,
    check_text,
    existing,
    file_name,
    find_images,
    head,
    image_folders,
    image_path,
    split_name,
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
    restval: Literal["train", "keep", "drop"] = "train"

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        files = _files(path) if path.is_dir() else [path]
        return any(file.suffix == ".json" and '"sentences"' in head(file) for file in files)

    def read(self, source: str | os.PathLike[str]) -> Source:
        path = existing(source)
        if path.is_dir():
            path = the_file(_files(path), path, "files dataset_*.json")
        content = read_json(path, "Karpathy JSON file")
        entries = content.get("images") if isinstance(content, dict) else None
        if not isinstance(entries, list) or not entries:
            raise DataError(f'{path} is not a Karpathy JSON file: it has no list "images" with something in it.')
        bad, seen, parsed = BadRows(), set[tuple[str, Any]](), []
        for place, entry in enumerate(entries):
            with bad:
                found = _entry(path, place, entry)
                identities = {("filename", found[0])}
                if entry.get("imgid") is not None:
                    identities.add(("imgid", str(entry["imgid"])))
                for field, value in sorted(identities & seen):
                    raise DataError(f"{path}: image {place} has the {field} {value!r} of an earlier one.")
                seen |= identities
                parsed.append(found)
        bad.require(path, parsed)
        notes = []
        rest = sum(split == "restval" for _, _, split, _, _ in parsed)
        if rest and self.restval != "keep":
            fate = "put into train" if self.restval == "train" else "left out"
            notes.append(f"{counted(rest, 'image')} of restval {fate}.")
        folders = image_folders(self.images, path.parent / "images", path.parent, path.parent.parent / "images")
        # COCO's entries name their folder (train2014). Local copies have these folders, or one folder of all images.
        names = [f"{below}/{name}" if below else name for name, below, *_ in parsed]
        try:
            folder = find_images(names, folders)
        except DataError:
            names = [name for name, *_ in parsed]
            folder = find_images(names, folders)
        records = []
        for (name, _, split, captions, ids), file in zip(parsed, names, strict=True):
            if split != "restval" or self.restval != "drop":
                part = "train" if split == "restval" and self.restval == "train" else split
                with bad:
                    records.append(ImageRecord(name, captions, part, image_path(folder, file), caption_ids=ids))
        return Source("karpathy", path.name, records, (path,), {"restval": self.restval}, tuple(notes), tuple(bad))


def _entry(path: Path, place: int, entry: Any) -> tuple[str, str, str, tuple[str, ...], tuple[str, ...]]:
    """Return (file name, folder, split, captions, ids of the captions) of one image."""
    where = f"{path}: image {place}"
    try:
        name, folder, split = entry["filename"], entry.get("filepath") or "", entry["split"]
        captions = tuple(sentence["raw"] for sentence in entry.get("sentences", ()))
        ids = _sentence_ids(entry)
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{where} is not a Karpathy entry ({error!r}); it needs filename, split and sentences with raw."
        ) from error
    for field, texts in {
        "filename": [name],
        "filepath": [folder],
        "split": [split],
        "raw": captions,
        "sentid": ids,
    }.items():
        for text in texts:
            check_text(where, field, text)
    return file_name(name), folder, split_name(split), captions, ids


def _sentence_ids(entry: dict[str, Any]) -> tuple[str, ...]:
    """Return the ids of an image's captions, from the sentences or the image; empty unless all have one."""
    sentences = entry.get("sentences", ())
    listed = entry.get("sentids")
    for ids in ([sentence.get("sentid") for sentence in sentences], listed):
        if isinstance(ids, list) and len(ids) == len(sentences) and all(map(_is_id, ids)):
            return tuple(str(number).strip() for number in ids)
    return ()


def _is_id(value: Any) -> bool:
    return isinstance(value, (int, str)) and not isinstance(value, bool) and bool(str(value).strip())

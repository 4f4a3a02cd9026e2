"""Karpathy's `dataset_*.json` (Flickr8k, Flickr30k, COCO) with an images folder.

Source: https://cs.stanford.edu/people/karpathy/deepimagesent/ - `{"images": [{"filename", "filepath"?,
"imgid", "split", "sentids"?, "sentences": [{"raw", "sentid"?, ...}]}]}`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from vsemb.data.readers.source import Source, existing, find_images, image_path, split_name
from vsemb.data.records import ImageRecord
from vsemb.data.uris import RemoteFolder, images_folder
from vsemb.errors import DataError, invalid_argument
from vsemb.files import read_json


def read(
    source: str | os.PathLike[str],
    *,
    images: str | os.PathLike[str] | None = None,
    restval: str = "train",
) -> Source:
    """Reads a Karpathy JSON file.

    Args:
        source: the JSON file, or a folder that holds exactly one `dataset_*.json`.
        images: the images folder, a path or URI; default: `images/` beside the JSON file, or the JSON
            file's own folder.
        restval: what becomes of COCO's split `restval`: `"train"` joins it to train (as everyone does),
            `"keep"` leaves it a split of its own, `"drop"` leaves it out.

    Raises:
        DataError: if the file is broken, names an image twice, or no image is found.
    """
    if restval not in ("train", "keep", "drop"):
        raise invalid_argument("restval", restval, "train, keep or drop")
    path = _json_file(existing(source))
    content = read_json(path, "Karpathy JSON file")
    entries = content.get("images") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries:
        raise DataError(f'{path} is not a Karpathy JSON file: it has no list "images" with something in it.')
    parsed = [_entry(path, place, entry) for place, entry in enumerate(entries)]
    ids = [_sentence_ids(entry) for entry in entries]
    for field in ("filename", "imgid"):
        _check_unique(path, field, [entry.get(field) for entry in entries])
    notes = []
    if restval != "keep":
        rest = sum(split == "restval" for _, _, split, _ in parsed)
        if rest:
            notes.append(f"{rest} images of restval " + ("join train." if restval == "train" else "left out."))
    beside = path.parent
    roots: list[Path | RemoteFolder] = [beside / "images", beside, beside.parent / "images"]
    if images is not None:
        roots = [images_folder(images)]
    if images is not None and not roots[0].is_dir():
        raise DataError(f"No images folder at {images}.")
    # COCO's entries name their folder (train2014); people keep it, or throw all images together.
    below = [f"{folder}/{name}" if folder else name for name, folder, _, _ in parsed]
    flat = [name for name, _, _, _ in parsed]
    try:
        folder, names = find_images(below, roots), below
    except DataError:
        folder, names = find_images(flat, roots), flat
    records = []
    for (name, _, split, captions), file, numbers in zip(parsed, names, ids, strict=True):
        if split == "restval" and restval != "keep":
            if restval == "drop":
                continue
            split = "train"
        records.append(ImageRecord(name, captions, split, image_path(folder, file), caption_ids=numbers))
    return Source(
        "karpathy",
        path.name,
        records,
        files=(path,),
        options={"restval": restval},
        total=len(records),
        notes=tuple(notes),
    )


def _json_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = sorted(path.glob("dataset_*.json")) or sorted(path.glob("dataset.json"))
    if len(found) != 1:
        listing = f" ({', '.join(file.name for file in found)})" if found else ""
        raise DataError(f"{path} holds {len(found)} files dataset_*.json{listing}; name the one to read.")
    return found[0]


def _entry(path: Path, place: int, entry: Any) -> tuple[str, str, str, tuple[str, ...]]:
    """Returns (file name, folder, split, captions) of one image."""
    try:
        name, folder, split = entry["filename"], entry.get("filepath") or "", entry["split"]
        captions = tuple(sentence["raw"] for sentence in entry.get("sentences", ()))
        if not all(isinstance(text, str) for text in (name, folder, split)):
            raise TypeError("filename, filepath and split must be text")
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path}: image {place} is not a Karpathy entry ({error!r}); it needs filename, split and "
            "sentences with raw."
        ) from error
    return name, folder, split_name(split), captions


def _sentence_ids(entry: dict[str, Any]) -> tuple[str, ...]:
    """Returns the ids of an image's captions, from the sentences or the image; empty unless all have one."""
    sentences = entry.get("sentences", ())
    listed = entry.get("sentids")
    for ids in ([sentence.get("sentid") for sentence in sentences], listed):
        if isinstance(ids, list) and len(ids) == len(sentences) and all(map(_is_id, ids)):
            return tuple(str(number).strip() for number in ids)
    return ()


def _is_id(value: Any) -> bool:
    return isinstance(value, (int, str)) and not isinstance(value, bool) and bool(str(value).strip())


def _check_unique(path: Path, field: str, values: list[Any]) -> None:
    seen = set()
    for value in values:
        if value is not None and value in seen:
            raise DataError(f"{path}: {field} {value!r} occurs twice; every image needs its own.")
        seen.add(value)

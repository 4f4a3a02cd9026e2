"""The manifest and index files of a dataset on disk: their names, their order, their fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsemb.data.columns import write_index
from vsemb.data.records import check_split_name
from vsemb.errors import DataError
from vsemb.files import find_damaged, read_json, replacing, require_contained, sha256_file, write_json

FORMAT = "vsemb-dataset"
VERSION = 3
MANIFEST = "manifest.json"

# Bytes of an index up to which it is read in full each time its dataset is opened; about a tenth of a second.
_READ_IN_FULL = 128 << 20
_USUAL_ORDER = {"train": 0, "val": 1, "test": 2}


def ordered_splits(names: Iterable[str]) -> list[str]:
    """Return split names as train, val, test, then the others by alphabet.

    Example:

    >>> ordered_splits(["test", "extra", "train"])
    ['train', 'test', 'extra']
    """
    return sorted(names, key=lambda name: (_USUAL_ORDER.get(name, 3), name))


def shard_name(split: str, number: int, count: int | None = None) -> str:
    """Return the file name of a shard; without `count` the name it has while the count is unknown.

    Example:

    >>> shard_name("train", 0, 4)
    'train-00000-of-00004.tfrecord'
    """
    suffix = "" if count is None else f"-of-{count:05d}"
    return f"{split}-{number:05d}{suffix}.tfrecord"


def index_name(split: str) -> str:
    """Return the file name of a split's index."""
    return f"{split}.index.arrow"


def fingerprint(content_sha256: Mapping[str, str]) -> str:
    """Return the fingerprint of a dataset.

    The index files hold ids, keys, captions, the source's own ids of captions and the SHA-256 of every image's bytes,
    and no path or time. Two datasets with one fingerprint therefore have the same images and captions. Attributes of
    classes have a fingerprint of their own.

    Args:
        content_sha256: split name -> hex SHA-256 of the content of its index, see `write_index`.
    """
    digest = hashlib.sha256()
    for split in ordered_splits(content_sha256):
        digest.update(f"{split} {content_sha256[split]}\n".encode())
    return digest.hexdigest()


def read_manifest(path: Path) -> dict[str, Any]:
    """Read and check the manifest of the dataset at `path`.

    Raises:
        DataError: if it is missing, broken, or written by another version.
    """
    if not (path / MANIFEST).exists():
        reason = "no such directory"
        if path.is_file():
            reason = "it is a file"
        elif path.is_dir():
            reason = f"it holds no {MANIFEST}, which is written last"
        raise DataError(
            f"No dataset at {path}: {reason}. Give the directory that `vsemb prepare` or `vsemb scenes` wrote."
        )
    manifest = read_json(path / MANIFEST, "dataset manifest")
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(f"{path / MANIFEST} is not the manifest of a {FORMAT}.")
    require_contained(path, "dataset")
    if manifest.get("version") != VERSION:
        raise DataError(
            f"The dataset at {path} has version {manifest.get('version')!r}; this vsemb reads version "
            f"{VERSION}. Prepare it again."
        )
    try:
        splits = manifest["splits"]
        for name, split in splits.items():
            check_split_name(name)
            counts = (split["images"], split["captions"], split["index_bytes"])
            readable = all(isinstance(count, int) for count in counts) and isinstance(split["content"], str)
            if not readable or len(split["shards"]) != len(split["bytes"]):
                raise TypeError(name)
            for file in (*split["shards"], split["index"], split["index_sha256"]):
                if Path(file).name != file:
                    raise DataError(
                        f"The files of the dataset {path} must lie in its directory; {MANIFEST} names {file!r}. "
                        "Do not use a dataset of others that names other files."
                    )
        if not splits or not isinstance(manifest["name"], str) or not isinstance(manifest["fingerprint"], str):
            raise TypeError("splits, name or fingerprint")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"The dataset manifest {path / MANIFEST} is damaged ({error!r}).") from error
    return manifest


def check_files(path: Path, manifest: Mapping[str, Any]) -> None:
    """Check that every index and shard has its size, and that indexes have their content; `vsemb check` reads all.

    Indexes above 128 MiB are read when their size or time of change differs from that of the last reading.

    Raises:
        DataError: naming the file that is missing or damaged.
    """
    for split in manifest["splits"].values():
        sizes = {split["index"]: split["index_bytes"], **dict(zip(split["shards"], split["bytes"], strict=True))}
        for name, size in sizes.items():
            stored = (path / name).stat().st_size if (path / name).exists() else None
            if stored != size:
                state = "is missing" if stored is None else f"has {stored} bytes instead of {size}"
                raise DataError(f"The dataset at {path} is damaged: {name} {state}. Prepare it again.")
        name, digest = split["index"], split["index_sha256"]
        if split["index_bytes"] <= _READ_IN_FULL:
            damaged = sha256_file(path / name) != digest
        else:
            damaged = find_damaged(path, {name: digest}) is not None
        if damaged:
            raise DataError(f"The dataset at {path} is damaged: {name} is not what was written. Prepare it again.")
    if fingerprint({name: split["content"] for name, split in manifest["splits"].items()}) != manifest["fingerprint"]:
        raise DataError(f"The dataset at {path} is damaged: {MANIFEST} has another fingerprint. Prepare it again.")


@dataclass(frozen=True)
class FinishedSplit:
    """A split whose shards are written.

    Attributes:
        images: how many there are.
        captions: how many there are.
        shards: size in bytes and hex SHA-256 of each, in order.
        entries: what its index holds of each image, in order; read once.
    """

    images: int
    captions: int
    shards: Sequence[tuple[int, str]]
    entries: Iterable[Mapping[str, Any]]


def write_index_and_manifest(
    directory: Path,
    described: Mapping[str, Any],
    splits: Mapping[str, FinishedSplit],
    skipped: Sequence[Mapping[str, str]],
    dropped: int,
) -> None:
    """Write the index files and then the manifest.

    Args:
        directory: the dataset's.
        described: its name, source and writing options, see `vsemb.data.writing.writer.description`.
        splits: the splits that have images.
        skipped: `key` and `reason` of the images left out, in source order.
        dropped: empty captions left out.
    """
    parts: dict[str, Any] = {}
    hashes: dict[str, str] = {}
    for name in ordered_splits(splits):
        split = splits[name]
        index = directory / index_name(name)
        with replacing(index) as temporary:
            hashes[name] = write_index(temporary, split.entries)
        parts[name] = {
            "images": split.images,
            "captions": split.captions,
            "shards": [shard_name(name, number, len(split.shards)) for number in range(len(split.shards))],
            "bytes": [size for size, _ in split.shards],
            "sha256": [digest for _, digest in split.shards],
            "index": index.name,
            "index_bytes": index.stat().st_size,
            "index_sha256": sha256_file(index),
            "content": hashes[name],
        }
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        **described,
        "splits": parts,
        "skipped": [{"key": image["key"], "reason": image["reason"]} for image in skipped],
        "dropped_captions": dropped,
        "fingerprint": fingerprint(hashes),
    }
    write_json(directory / MANIFEST, manifest)

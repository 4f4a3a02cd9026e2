"""`vsemb check`: reads a dataset once and says what of it is damaged."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vsemb import registry
from vsemb.console import progress
from vsemb.data.columns import content_line
from vsemb.data.manifest import fingerprint, read_manifest
from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError
from vsemb.files import inside, read_json, sha256_file

_NAMED = 5
# Images that are decoded at a time, and their size in pixels.
_BATCH, _SIDE = 64, 8


def check_dataset(path: str | os.PathLike[str]) -> Iterator[str]:
    """Read the indexes, shards, caches and annotations of a dataset, and yield a line for each damage.

    Images are decoded, too. Caches are features, regions and token ids. Memory does not grow with the dataset, except
    for annotations and boxes.

    Args:
        path: its directory.

    Raises:
        DataError: if the dataset is missing, or its manifest cannot be read.

    Example:

        for line in check_dataset("data/flickr8k"):
            print(line)
    """
    path = Path(path)
    manifest = read_manifest(path)
    splits = manifest["splits"]
    if fingerprint({name: record["content"] for name, record in splits.items()}) != manifest["fingerprint"]:
        yield f"{path / 'manifest.json'}: the fingerprint is not that of the splits"
        return
    whole = True
    for name, record in splits.items():
        for line in [*_index(path, name, record), *_shards(path, name, record)]:
            whole = False
            yield line
    yield from _tokens(path)
    if not whole:
        return  # What belongs to a dataset is opened with it.
    dataset = Dataset.open(path)
    for name in dataset.splits:
        yield from _undecodable(dataset.split(name), path)
    caches = [registry.load(reference) for reference in registry.entries("caches").values()]
    checks: list[Callable[[], Any]] = [
        *(partial(dataset.annotation, name) for name in registry.entries("annotations")),
        *(partial(cache.open, folder, dataset, verify=True) for cache in caches for folder in cache.folders(dataset)),
    ]
    for check in checks:
        try:
            check()
        except DataError as error:
            yield str(error)


def _index(path: Path, name: str, record: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the index of a split."""
    file = path / record["index"]
    if file.exists() and file.stat().st_size == record["index_bytes"] and sha256_file(file) != record["index_sha256"]:
        # Arrow reads offsets without a check, so a damaged one may end the process.
        yield f"{file}: its content is not what was written"
        return
    try:
        split = Split(path, name, record)
        found = file.stat().st_size
        if found != record["index_bytes"]:
            yield f"{file}: {found} bytes instead of {record['index_bytes']}"
        _ = split.ids, split.caption_offsets
        digest = hashlib.sha256()
        for entry in progress(split.index.entries(), desc=f"index of {name}", total=len(split), unit="image"):
            digest.update(content_line(entry))
        if digest.hexdigest() != record["content"]:
            yield f"{file}: its content is not what was written"
        if np.any((numbers := split.index.numbers("shard")) < 0) or numbers.max() >= max(len(record["shards"]), 1):
            yield f"{file}: images in shards that do not exist"
    except DataError as error:
        yield f"{file}: {error}"
    except (ValueError, UnicodeDecodeError) as error:
        yield f"{file}: a value cannot be read ({error})"


def _shards(path: Path, name: str, record: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the shards of a split; of one that changed, which images."""
    numbered = enumerate(zip(record["shards"], record["sha256"], strict=True))
    count = len(record["shards"])
    for number, (shard, digest) in progress(numbered, desc=f"shards of {name}", total=count, unit="shard"):
        if not (path / shard).exists():
            yield f"{path / shard}: missing"
        elif sha256_file(path / shard) != digest:
            yield f"{path / shard}: its content is not what was written{_damaged(path, name, record, number)}"


def _undecodable(split: Split, path: Path) -> Iterator[str]:
    """Yield the images of a split that do not decode in graph, as in training; earlier versions stored some."""
    if not split.has_images:
        return
    from vsemb.image.decode import decode_images

    keys, bad = iter(split.keys), []
    with progress(total=len(split), desc=f"images of {split.name}", unit="image") as bar:
        for _, encoded in split.encoded_images().batch(_BATCH).prefetch(1):
            # A small size: JPEGs are decoded at a reduced scale.
            valid = decode_images(encoded, _SIDE)[1].numpy()
            bad += [key for decoded, key in zip(valid, keys, strict=False) if not decoded]
            bar.update(len(valid))
    if bad:
        yield f"{path}: images of {split.name} do not decode: {_named(bad)}. Prepare it again"


def _named(keys: list[str]) -> str:
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return f"{', '.join(map(repr, keys[:_NAMED]))}{more}"


def _tokens(path: Path) -> Iterator[str]:
    """Yield the kept token ids that are damaged."""
    for manifest in sorted(path.glob("tokens/*/manifest.json")):
        for name, digest in read_json(manifest).get("sha256", {}).items():
            try:
                whole = sha256_file(inside(manifest.parent, name)) == digest
            except OSError:
                whole = False
            if not whole:
                file = manifest.parent / name
                yield f"{file}: its content is not what was written. Delete {manifest.parent}; it is made again"


def _damaged(path: Path, name: str, record: dict[str, Any], number: int) -> str:
    """Return the keys of the images of a shard that are damaged, as a part of a line."""
    try:
        split = Split(path, name, record)
        keys = []
        for row in np.flatnonzero(split.index.numbers("shard") == number):
            try:
                split.read_image(int(row))
            except DataError:
                keys.append(split.keys[row])
    except DataError:
        return ""
    return f"; images {_named(keys)}" if keys else "; all images are whole"

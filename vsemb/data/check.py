"""`vsemb.check`: read a dataset once and name its damage."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vsemb import registry
from vsemb.acts import act
from vsemb.console import progress
from vsemb.data.columns import content_line
from vsemb.data.duplicates import shared_images
from vsemb.data.manifest import fingerprint, read_manifest
from vsemb.data.store import Split, StoredDataset
from vsemb.errors import DataError
from vsemb.files import inside, read_json, sha256_file
from vsemb.results import Result

_NAMED = 5
# Images that are decoded at a time, and their size in pixels.
_BATCH, _SIDE = 64, 8


@dataclass(frozen=True, repr=False)
class Checked(Result):
    """Result of `check`.

    Attributes:
        data: directory of the dataset.
        damaged: a line for each damage.
        shared: a line for two splits that have images in common. This does not count as damage.
    """

    data: str
    damaged: tuple[str, ...]
    shared: tuple[str, ...]

    @property
    def failure(self) -> str | None:
        if not self.damaged:
            return None
        places = "one place" if len(self.damaged) == 1 else f"{len(self.damaged)} places"
        return f"{self.data} is damaged in {places}, see above. Prepare it again."

    def to_json(self) -> dict[str, Any]:
        return {"data": self.data, "damaged": list(self.damaged), "shared": list(self.shared)}

    def __str__(self) -> str:
        whole = () if self.damaged else (f"{self.data}: no damage found.",)
        return "\n".join([*self.damaged, *self.shared, *whole])


@act
def check(data: StoredDataset | str | os.PathLike[str]) -> Checked:
    """Read a dataset once and name its damage: one line per index, shard, cache or annotation.

    Images are decoded, too. Caches are features, regions and token ids. Images that two splits have in common are
    named; they do not count as damage. Other functions check the sizes of files only, so that ten million images open
    at once. Memory does not grow with the dataset, except for annotations and boxes.

    Args:
        data: a prepared dataset.

    Returns:
        The damage. The command fails if there is any.

    Raises:
        DataError: if the dataset is missing, or its manifest cannot be read.

    Example:

        print(vsemb.check("data/flickr8k"))
    """
    path = data.path if isinstance(data, StoredDataset) else Path(data)
    damaged = tuple(_damage(path))
    # Columns of a damaged index cannot be read.
    shared = () if damaged else tuple(shared_images(StoredDataset.open(path)))
    return Checked(str(path), damaged, shared)


def _damage(path: Path) -> Iterator[str]:
    manifest = read_manifest(path)
    splits = manifest["splits"]
    if fingerprint({name: record["content"] for name, record in splits.items()}) != manifest["fingerprint"]:
        yield f"{path / 'manifest.json'}: the fingerprint is not that of the splits"
        return
    damage = []
    for name, record in splits.items():
        damage += [*_index(path, name, record), *_shards(path, name, record)]
    yield from damage
    yield from _tokens(path)
    if damage:
        return  # What belongs to a dataset is opened with it.
    dataset = StoredDataset.open(path)
    for name in dataset.splits:
        yield from _undecodable(dataset.split(name), path)
    for name in registry.entries("annotations"):
        yield from _error(partial(dataset.annotation, name))
    for reference in registry.entries("caches").values():
        cache = registry.load(reference)
        for folder in cache.folders(dataset):
            yield from _error(partial(cache.open, folder, dataset, verify=True))


def _error(check: Callable[[], object]) -> Iterator[str]:
    """Yield the error of a check, if it fails."""
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
        size = file.stat().st_size
        if size != record["index_bytes"]:
            yield f"{file}: {size} bytes instead of {record['index_bytes']}"
        _ = split.ids, split.caption_offsets
        digest = hashlib.sha256()
        for entry in progress(split.index.entries(), desc=f"index of {name}", total=len(split), unit="image"):
            digest.update(content_line(entry))
        if digest.hexdigest() != record["content"]:
            yield f"{file}: its content is not what was written"
        shards = split.index.numbers("shard")
        if shards.min() < 0 or shards.max() >= max(len(record["shards"]), 1):
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

    decoded: list[np.ndarray] = []
    with progress(total=len(split), desc=f"images of {split.name}", unit="image") as bar:
        for _, encoded in split.encoded_images().batch(_BATCH).prefetch(1):
            # A small size: JPEGs are decoded at a reduced scale.
            decoded.append(decode_images(encoded, _SIDE)[1].numpy())
            bar.update(len(decoded[-1]))
    bad = np.flatnonzero(~np.concatenate(decoded))
    if len(bad):
        yield f"{path}: images of {split.name} do not decode: {_named(split.keys[bad])}. Prepare it again"


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

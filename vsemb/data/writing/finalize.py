"""The last files of a dataset: an index for each split, and the manifest, which makes it one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsemb.data.manifest import (
    FORMAT,
    MANIFEST,
    VERSION,
    fingerprint,
    index_name,
    ordered_splits,
    shard_name,
)
from vsemb.files import replacing, sha256_file, write_json


@dataclass(frozen=True)
class FinishedSplit:
    """A split whose shards are written.

    Attributes:
        images: how many there are.
        captions: how many there are.
        shards: size in bytes and hex SHA-256 of each, in order.
        lines: the lines of its index, in order; read once.
    """

    images: int
    captions: int
    shards: Sequence[tuple[int, str]]
    lines: Iterable[str]


def write_index_and_manifest(
    directory: Path,
    described: Mapping[str, Any],
    splits: Mapping[str, FinishedSplit],
    skipped: Sequence[Mapping[str, str]],
    dropped: int,
) -> None:
    """Writes the index files and then the manifest.

    Args:
        directory: the dataset's.
        described: its name, source and writing options, see `vsemb.data.store.description`.
        splits: those that have images.
        skipped: `key` and `reason` of the images left out, in source order.
        dropped: empty captions left out.
    """
    parts: dict[str, Any] = {}
    hashes: dict[str, str] = {}
    for name in ordered_splits(splits):
        split = splits[name]
        with (
            replacing(directory / index_name(name)) as temporary,
            open(temporary, "w", encoding="utf-8", newline="\n") as file,
        ):
            file.writelines(split.lines)
        hashes[name] = sha256_file(directory / index_name(name))
        parts[name] = {
            "images": split.images,
            "captions": split.captions,
            "shards": [shard_name(name, number, len(split.shards)) for number in range(len(split.shards))],
            "bytes": [size for size, _ in split.shards],
            "sha256": [digest for _, digest in split.shards],
            "index": index_name(name),
        }
    manifest = {"format": FORMAT, "version": VERSION, **described, "splits": parts}
    manifest["skipped"] = [{"key": item["key"], "reason": item["reason"]} for item in skipped]
    manifest["dropped_captions"] = dropped
    manifest["fingerprint"] = fingerprint(hashes)
    write_json(directory / MANIFEST, manifest)

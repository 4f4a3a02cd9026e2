"""The files of an index: what `SearchIndex.open` reads and `write_index` writes.

<directory>/
  embeddings.npy   float32 or float16 (items, dim), memory-mapped
  ids.npy          int64 (items,), the image of each item
  keys.json        the name of each item
  items.json       split, key of the image and caption of each item, where they are known
  backend/         what finds candidates, where not every item is scored
  manifest.json    of which run, dataset and splits, how stored, with the SHA-256 of the other files
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.errors import DataError, InvalidArgumentError, VsembError
from vsemb.files import read_json, sha256_file, write_json
from vsemb.search.backends import BACKENDS, Backend
from vsemb.search.source import IndexSettings, IndexSource, Item, StaleIndexError

FORMAT, VERSION = "vsemb-index", 2
MANIFEST, BACKEND = "manifest.json", "backend"
_ITEMS = "items.json"
_FILES = ("embeddings.npy", "ids.npy", "keys.json")
#: All that lies in an index.
NAMES = frozenset((*_FILES, _ITEMS, BACKEND, MANIFEST))
_ROWS = 1 << 16


def is_index(directory: str | os.PathLike[str]) -> bool:
    """Whether a directory says of itself that it is an index, of whatever version."""
    path = Path(directory) / MANIFEST
    if not path.is_file():
        return False
    try:
        manifest = read_json(path, "index manifest")
    except DataError:
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def read_manifest(directory: Path) -> dict[str, Any]:
    """Reads a manifest.

    Raises:
        StaleIndexError: if it is of another version.
        DataError: if it is missing, or none of an index.
    """
    manifest = read_json(directory / MANIFEST, "index manifest")
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(f"{directory / MANIFEST} is not an index manifest (format {FORMAT!r}).")
    if manifest.get("version") != VERSION:
        raise StaleIndexError(
            f"The index {directory} has version {manifest.get('version')}, not {VERSION}. "
            "Make it again with `vsemb index`."
        )
    return manifest


def stored_settings(directory: Path) -> IndexSettings:
    """Returns how an index is stored and searched, as it says itself; the default where it does not."""
    try:
        return IndexSettings(**read_json(directory / MANIFEST, "index manifest")["settings"])
    except (VsembError, KeyError, TypeError, ValueError):
        return IndexSettings()


def read_parts(directory: Path, expected: IndexSource | None) -> dict[str, Any]:
    """Reads and verifies an index.

    Args:
        directory: where it lies.
        expected: what it must have been made from; None takes it as it is.

    Returns:
        The fields of a `SearchIndex`.

    Raises:
        StaleIndexError: if it was made from something else, or is of another version.
        DataError: if it is missing or damaged.
        MissingExtraError: if its backend is not installed.
    """
    manifest = read_manifest(directory)
    try:
        source = IndexSource(**{**manifest["source"], "splits": tuple(manifest["source"]["splits"])})
        settings = IndexSettings(**manifest["settings"])
        found, digests = dict(manifest["backend"]), dict(manifest["sha256"])
        recorded, shape = dict(manifest["recorded"]), (int(manifest["items"]), int(manifest["dim"]))
        if missing := set(_FILES) - set(digests):
            raise KeyError(f"no SHA-256 of {sorted(missing)[0]}")
    except InvalidArgumentError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{directory / MANIFEST} is broken: {error}. Make it again.") from error
    if expected is not None:
        _refuse_stale(directory, source, expected)
    _verify(directory, digests)
    # Nothing is written; but memory that may not be written, TensorFlow copies.
    embeddings = np.load(directory / "embeddings.npy", mmap_mode="c", allow_pickle=False)
    ids = np.load(directory / "ids.npy", allow_pickle=False)
    keys = read_json(directory / "keys.json", "index keys")
    items = _read_items(directory, ids, keys) if _ITEMS in digests else None
    if embeddings.shape != shape or not len(ids) == len(keys) == shape[0]:
        raise DataError(f"The files of the index {directory} do not fit each other. Make the index again.")
    backend = None if settings.codes is None else _open_backend(directory, settings.codes, found, shape[0])
    return {
        "embeddings": embeddings,
        "ids": ids,
        "keys": keys,
        "source": source,
        "items": items,
        "settings": settings,
        "backend": backend,
        "recorded": recorded,
    }


def write_parts(
    directory: Path,
    embeddings: np.ndarray,
    ids: np.ndarray,
    keys: Sequence[str],
    source: IndexSource,
    items: Sequence[Item] | None,
    settings: IndexSettings,
    recorded: Mapping[str, Any],
) -> dict[str, Any]:
    """Writes all files of an index into an empty directory; returns the manifest."""
    kept = np.asarray(embeddings, np.dtype(settings.kept))
    np.save(directory / "embeddings.npy", kept, allow_pickle=False)
    np.save(directory / "ids.npy", np.asarray(ids, np.int64), allow_pickle=False)
    write_json(directory / "keys.json", list(keys))
    if items is not None:
        write_json(directory / _ITEMS, [[item.split, item.image_key, item.caption] for item in items])
    found: dict[str, Any] = {}
    backend = None if settings.codes is None else BACKENDS[settings.codes]
    if backend is not None:
        (directory / BACKEND).mkdir()
        found = backend.build(kept, directory / BACKEND, settings.parameters)
    try:
        files = [path.relative_to(directory) for path in directory.rglob("*") if path.is_file()]
        if backend is not None and backend.changes:
            files = [path for path in files if BACKEND not in path.parts]
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "source": dataclasses.asdict(source),
            "settings": dataclasses.asdict(settings),
            "backend": found,
            "recorded": dict(recorded),
            "items": len(ids),
            "dim": embeddings.shape[1],
            "sha256": {path.as_posix(): sha256_file(directory / path) for path in sorted(files)},
        }
        write_json(directory / MANIFEST, manifest)
    except BaseException:
        if backend is not None:
            backend.discard(found)
        raise
    return manifest


def discard_backend(manifest: Mapping[str, Any] | None) -> None:
    """Removes what the backend of an index has elsewhere, after the index itself is gone."""
    if manifest is None:
        return
    settings, found = manifest.get("settings"), manifest.get("backend")
    # It may be damaged.
    if isinstance(settings, dict) and isinstance(found, dict) and settings.get("backend") in (*BACKENDS,):
        BACKENDS[settings["backend"]].discard(found)


def first_not_finite(embeddings: np.ndarray) -> tuple[int, int] | None:
    """Returns the first row that is not finite and how many are not; None where all are."""
    bad = [
        start + np.flatnonzero(~np.isfinite(embeddings[start : start + _ROWS]).all(axis=1))
        for start in range(0, len(embeddings), _ROWS)
    ]
    rows = np.concatenate(bad) if bad else np.zeros(0, np.int64)
    return (int(rows[0]), len(rows)) if len(rows) else None


def _refuse_stale(directory: Path, source: IndexSource, expected: IndexSource) -> None:
    for field in dataclasses.fields(IndexSource):
        old, new = getattr(source, field.name), getattr(expected, field.name)
        if old != new:
            raise StaleIndexError(
                f"The index {directory} was made from another {field.name} ({str(old)[:40]}, not "
                f"{str(new)[:40]}). Make it again with `vsemb index`."
            )


def _verify(directory: Path, digests: Mapping[str, str]) -> None:
    for name, digest in digests.items():
        try:
            found = sha256_file(directory / name)
        except OSError as error:
            raise DataError(f"The index file {directory / name} cannot be read: {error.strerror}.") from error
        if found != digest:
            raise DataError(f"The index file {directory / name} is damaged. Make the index again.")


def _read_items(directory: Path, ids: np.ndarray, keys: Sequence[str]) -> list[Item]:
    rows = read_json(directory / _ITEMS, "index items")
    return [Item(int(number), key, *row) for number, key, row in zip(ids, keys, rows, strict=True)]


def _open_backend(directory: Path, codes: str, parameters: Mapping[str, Any], items: int) -> Backend:
    try:
        backend = BACKENDS[codes].open(directory / BACKEND, parameters)
        found = len(backend)
    except (KeyError, TypeError, OSError, ValueError, OverflowError) as error:
        if isinstance(error, ImportError | InvalidArgumentError):
            raise
        raise DataError(f"The index {directory} is damaged: {error}. Make it again.") from error
    if found != items:
        backend.close()
        raise DataError(f"The backend of the index {directory} holds {found} items, not {items}. Make the index again.")
    return backend

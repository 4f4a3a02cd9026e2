"""The files of an index, see `read_index` and `write_index`.

    <directory>/
        embeddings.npy   float32 or float16 (items, dim), memory-mapped
        ids.npy          int64 (items,), the image of each item
        items.arrow      name of each item, and its split, image key and caption, if known; memory-mapped
        stamps.npy       int64 (items, 2), only of image files: size in bytes, modification time in nanoseconds
        backend/         files of the candidate backend
        manifest.json    run, dataset, splits, settings, and the SHA-256 of the other files

An index of another run or dataset is refused, since embeddings of other weights are not comparable.

An index may come from others. Its files must be regular files below its directory, and its manifest names no address:
the parameters in `Backend.unstored` come from the user alone. Data outside the directory, such as a collection of a
cluster, is removed with the index only where this directory is the one that was written with it, not a copy.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from vsemb.data.columns import Column, open_columns, write_columns
from vsemb.errors import DataError, InvalidArgumentError, VsembError
from vsemb.files import inside, read_json, reading, replacing_directory, require_contained, sha256_file, write_json
from vsemb.searching.backends import BACKENDS, Backend
from vsemb.searching.index import IndexSettings, IndexSource, Item, SearchIndex, StaleIndexError

FORMAT, VERSION = "vsemb-index", 3
MANIFEST, BACKEND = "manifest.json", "backend"
_ITEMS, _STAMPS = "items.arrow", "stamps.npy"
_FILES = ("embeddings.npy", "ids.npy", _ITEMS)
_COLUMNS = pa.schema([pa.field(name, pa.string()) for name in ("key", "split", "image_key", "caption")])
#: Names of all files of an index.
NAMES = frozenset((*_FILES, _STAMPS, BACKEND, MANIFEST))


def is_index(directory: str | os.PathLike[str]) -> bool:
    """Return whether a directory has the manifest of an index, of any version."""
    return (_manifest(directory) or {}).get("format") == FORMAT


def stored_settings(directory: Path) -> IndexSettings:
    """Return the settings of an index; the default settings if its manifest cannot be read."""
    try:
        settings = IndexSettings(**(_manifest(directory) or {})["settings"])
    except (VsembError, KeyError, TypeError, ValueError):
        return IndexSettings()
    return dataclasses.replace(settings, parameters=_stored(settings))


def _manifest(directory: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the manifest of an index, which may be damaged; None if it cannot be read."""
    try:
        manifest = read_json(Path(directory) / MANIFEST, "index manifest")
    except DataError:
        return None
    return manifest if isinstance(manifest, dict) else None


def read_index(directory: str | os.PathLike[str], expected: IndexSource | None = None) -> SearchIndex:
    """Open an index and verify its files.

    Args:
        directory: directory of the index.
        expected: required source of the index; None for any source.

    Raises:
        StaleIndexError: if the index has another source or version.
        DataError: if the index is missing or damaged.
        MissingExtraError: if the backend is not installed.

    Example:

        index = read_index("indexes/photos")
    """
    return _read(Path(directory), expected, {})


def _read(directory: Path, expected: IndexSource | None, given: Mapping[str, Any]) -> SearchIndex:
    """Open an index, with the unstored parameters of its backend."""
    require_contained(directory, "index")
    manifest = read_json(directory / MANIFEST, "index manifest")
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(f"{directory / MANIFEST} is not an index manifest (format {FORMAT!r}).")
    require_contained(directory, "index")
    if manifest.get("version") != VERSION:
        raise StaleIndexError(
            f"The index {directory} has version {manifest.get('version')}, not {VERSION}. "
            "Make it again with `vsemb index`."
        )
    try:
        source = IndexSource(**{**manifest["source"], "splits": tuple(manifest["source"]["splits"])})
        settings = IndexSettings(**manifest["settings"])
        found, digests = dict(manifest["backend"]), dict(manifest["sha256"])
        recorded, shape = dict(manifest["recorded"]), (int(manifest["items"]), int(manifest["dim"]))
        if missing := set(_FILES) - set(digests):
            raise KeyError(f"no SHA-256 of {sorted(missing)[0]}")
    except (InvalidArgumentError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{directory / MANIFEST} is broken: {error}. Make it again.") from error
    finder = settings.candidate_backend
    unstored = () if finder is None else finder.unstored
    if named := {*unstored} & {*settings.parameters, *found}:
        raise StaleIndexError(
            f"The index {directory} names {', '.join(sorted(named))} of its backend, which only the user may name; "
            "older versions stored it. Make it again with `vsemb index`."
        )
    if expected is not None:
        _refuse_stale(directory, source, expected)
    for name, digest in digests.items():
        with reading(directory / name, "index file"):
            damaged = sha256_file(inside(directory, name)) != digest
        if damaged:
            raise DataError(f"The index file {directory / name} is damaged. Make the index again.")
    # Copy on write: TensorFlow would copy read-only memory.
    embeddings = np.load(directory / "embeddings.npy", mmap_mode="c", allow_pickle=False)
    ids = np.load(directory / "ids.npy", mmap_mode="r", allow_pickle=False)
    table = open_columns(directory / _ITEMS, _COLUMNS, "Make the index again.")
    keys, *rest = (Column(table[name].chunks) for name in _COLUMNS.names)
    items = None if table["split"].null_count else IndexItems(ids, (keys, *rest))
    if embeddings.shape != shape or not len(ids) == len(keys) == shape[0]:
        raise DataError(f"The files of the index {directory} do not fit each other. Make the index again.")
    stamps = np.load(directory / _STAMPS, allow_pickle=False) if _STAMPS in digests else None
    backend = None if finder is None else _open_backend(directory, finder, {**found, **given}, shape[0])
    return SearchIndex(embeddings, ids, keys, source, items, settings, backend, recorded, stamps)


class IndexItems(Sequence[Item]):
    """The items of an index, read from its memory-mapped columns on access."""

    def __init__(self, ids: np.ndarray, columns: Sequence[Column]) -> None:
        self._ids = ids
        self._columns = columns

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, row: Any) -> Any:
        values = (column[row] for column in self._columns)
        if isinstance(row, slice):
            return [Item(*each) for each in zip(self._ids[row].tolist(), *values, strict=True)]
        return Item(int(self._ids[row]), *values)


def _refuse_stale(directory: Path, source: IndexSource, expected: IndexSource) -> None:
    for field in dataclasses.fields(IndexSource):
        old, new = getattr(source, field.name), getattr(expected, field.name)
        if old != new:
            raise StaleIndexError(
                f"The index {directory} was made from another {field.name} ({str(old)[:40]}, not "
                f"{str(new)[:40]}). Make it again with `vsemb index`."
            )


def _open_backend(directory: Path, finder: type[Backend], parameters: Mapping[str, Any], items: int) -> Backend:
    try:
        backend = finder.open(directory / BACKEND, parameters)
        found = len(backend)
    except (KeyError, TypeError, OSError, ValueError, OverflowError) as error:
        if isinstance(error, ImportError | InvalidArgumentError):
            raise
        raise DataError(f"The index {directory} is damaged: {error}. Make it again.") from error
    if found != items:
        backend.close()
        raise DataError(f"The backend of the index {directory} holds {found} items, not {items}. Make the index again.")
    return backend


def check_index_directory(directory: str | os.PathLike[str], settings: IndexSettings | None = None) -> None:
    """Check before embedding that an index can be written to a directory.

    Args:
        directory: directory of the index.
        settings: settings of the index; None for exact search.

    Raises:
        DataError: if the directory holds other files than an index.
        MissingExtraError: if the backend is not installed.
    """
    directory = Path(directory)
    if directory.exists() and not _replaceable(directory):
        raise DataError(f"{directory} must be an index or not exist; it holds other files. Choose another --out.")
    if settings is not None and settings.candidate_backend is not None:
        settings.candidate_backend.check()


def _replaceable(directory: Path) -> bool:
    """Return whether a directory is empty or holds only an index, which may be damaged."""
    if not directory.is_dir():
        return False
    names = {path.name for path in directory.iterdir()}
    if not names:
        return True
    if MANIFEST not in names or names - NAMES:  # Datasets have a manifest, too.
        return False
    manifest = _manifest(directory)
    return manifest is None or manifest.get("format") == FORMAT


def write_index(
    directory: str | os.PathLike[str],
    embeddings: np.ndarray,
    ids: np.ndarray,
    keys: Sequence[str] | None,
    source: IndexSource,
    *,
    items: Sequence[Item] | None = None,
    settings: IndexSettings | None = None,
    recorded: Mapping[str, Any] | None = None,
    stamps: np.ndarray | None = None,
) -> SearchIndex:
    """Write an index atomically; an older index is replaced.

    Args:
        directory: directory of the index.
        embeddings: (items, dim) float32, finite, normalized.
        ids: (items,) int64, the image of each item.
        keys: n names of the items; None takes them from `items`.
        source: source of the embeddings.
        items: the items, which search results show; None if unknown.
        settings: settings of storage and search; None for exact search in float32.
        recorded: further facts as JSON values, such as the paths of run and dataset.
        stamps: (items, 2) int64, sizes in bytes and modification times in nanoseconds of image files; None for others.

    Returns:
        The opened index.

    Raises:
        DataError: if the numbers of rows differ, an embedding is not finite, the directory holds other files, or a file
            cannot be written.
        MissingExtraError: if the backend is not installed.
        InvalidArgumentError: if a parameter of the backend is out of range.

    Example:

        index = write_index("indexes/mine", embeddings, ids, keys, IndexSource("", "", (), "image", "cosine"))
    """
    directory, settings = Path(directory), settings or IndexSettings()
    embeddings = np.ascontiguousarray(embeddings, np.float32)
    named: Sequence[Any] = (items or ()) if keys is None else keys
    counts = {len(embeddings), len(ids), len(named), len(named if items is None else items)}
    if embeddings.ndim != 2 or len(counts) != 1 or not len(ids):
        raise DataError(
            f"An index must have items; got embeddings {embeddings.shape}, {len(ids)} ids, "
            f"{len(named)} keys{'' if items is None else f', {len(items)} items'}."
        )
    # The float64 sum of a row is finite if and only if all its float32 values are finite.
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(~np.isfinite(embeddings.sum(axis=1, dtype=np.float64)))
    if len(bad):
        first = named[int(bad[0])]
        raise DataError(f"The embedding of {getattr(first, 'key', first)!r} is not finite; {len(bad)} are not.")
    check_index_directory(directory, settings)
    older = _manifest(directory)
    # Before the directory is replaced.
    discard_older = _discarding(directory, older or {})
    backend = settings.candidate_backend
    stored = _stored(settings)
    given = {name: value for name, value in settings.parameters.items() if name not in stored}
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "source": dataclasses.asdict(source),
        "settings": {**dataclasses.asdict(settings), "parameters": stored},
        "backend": {},
        "recorded": dict(recorded or {}),
        "items": len(ids),
        "dim": embeddings.shape[1],
    }
    try:
        with replacing_directory(directory, overwrite=True) as temporary:
            kept = embeddings.astype(settings.kept, copy=False)
            np.save(temporary / "embeddings.npy", kept, allow_pickle=False)
            np.save(temporary / "ids.npy", np.asarray(ids, np.int64), allow_pickle=False)
            rows = map(vars, items) if items is not None else ({"key": key} for key in keys or ())
            write_columns(temporary / _ITEMS, _COLUMNS, rows)
            if stamps is not None:
                np.save(temporary / _STAMPS, stamps, allow_pickle=False)
            if backend is not None:
                (temporary / BACKEND).mkdir()
                manifest["backend"] = backend.build(kept, temporary / BACKEND, settings.parameters)
            files = sorted(path.relative_to(temporary) for path in temporary.rglob("*") if path.is_file())
            manifest["sha256"] = {
                path.as_posix(): sha256_file(temporary / path)
                for path in files
                if backend is None or not backend.changes or BACKEND not in path.parts
            }
            write_json(temporary / MANIFEST, manifest)
    except BaseException:
        if backend is not None and manifest["backend"]:
            backend.discard({**manifest["backend"], **given}, ours=True)
        raise
    if backend is not None:
        backend.replaced(directory / BACKEND)
    discard_older(given)
    return _read(directory, source, given)


def _stored(settings: IndexSettings) -> dict[str, Any]:
    """Return the parameters of a backend that an index stores."""
    backend = settings.candidate_backend
    unstored = () if backend is None else backend.unstored
    return {name: value for name, value in settings.parameters.items() if name not in unstored}


def _discarding(directory: Path, manifest: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], None]:
    """Return a function that removes data of an index outside its directory, after the index was removed.

    Args:
        directory: of the index that will be removed.
        manifest: its manifest, which may be damaged or of others.

    Returns:
        A function of the unstored parameters that the user gave.
    """
    settings, found = manifest.get("settings"), manifest.get("backend")
    if not (isinstance(settings, dict) and isinstance(found, dict) and settings.get("backend") in (*BACKENDS,)):
        return lambda given: None
    backend = BACKENDS[settings["backend"]]
    kept = {name: value for name, value in found.items() if name not in backend.unstored}
    ours = backend.owns(directory / BACKEND, kept)
    return lambda given: backend.discard({**kept, **given}, ours)

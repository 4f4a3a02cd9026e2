"""The files of an index, see `read_index` and `write_index`.

    <directory>/
        embeddings.npy   float32 or float16 (items, dim), memory-mapped
        ids.npy          int64 (items,), the image of each item
        items.arrow      name of each item, and its split, image key and caption, if known; memory-mapped
        stamps.npy       int64 (items, 2), only of image files: size in bytes, modification time in nanoseconds
        backend/         files of the finder
        manifest.json    run, dataset, splits, search backend, and the SHA-256 of the other files

An index of another run or dataset is refused, since embeddings of other weights are not comparable.

An index may come from others. Its files must be regular files below its directory, and its manifest names no address:
the fields in `SearchBackend.unstored` come from the user alone. Data outside the directory, such as a collection of a
cluster, is removed with the index only where this directory is the one that was written with it, not a copy.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from vsemb import registry
from vsemb.data.columns import Column, open_columns, write_columns
from vsemb.errors import DataError, InvalidArgumentError, VsembError
from vsemb.files import inside, read_json, reading, replacing_directory, require_contained, sha256_file, write_json
from vsemb.searching.backends.backend import Finder, SearchBackend
from vsemb.searching.backends.exact import Exact
from vsemb.searching.index import IndexSource, Item, SearchIndex, StaleIndexError, check_backend

FORMAT, VERSION = "vsemb-index", 3
MANIFEST, BACKEND = "manifest.json", "backend"
_ITEMS, _STAMPS = "items.arrow", "stamps.npy"
_FILES = ("embeddings.npy", "ids.npy", _ITEMS)
_COLUMNS = pa.schema([pa.field(name, pa.string()) for name in ("key", "split", "image_key", "caption")])
#: Names of all files of an index.
NAMES = frozenset((*_FILES, _STAMPS, BACKEND, MANIFEST))


def stored_backend(directory: Path) -> SearchBackend:
    """Return the search backend of an index; the default one if its manifest cannot be read."""
    try:
        kind, values = _settings_of(_manifest(directory) or {})
        return kind(**{name: value for name, value in values.items() if name not in kind.unstored})
    except (VsembError, KeyError, TypeError, ValueError):
        return Exact()


def _settings_of(manifest: Mapping[str, Any]) -> tuple[type[SearchBackend], dict[str, Any]]:
    """Return the class of the search backend that a manifest names, and its fields."""
    settings = manifest["settings"]
    kind: type[SearchBackend] = registry.find_part("search backend", settings["backend"], "backend")
    return kind, {"dtype": settings["dtype"], **settings["parameters"]}


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
    return _read(Path(directory), expected)


def _read(directory: Path, expected: IndexSource | None, named: SearchBackend | None = None) -> SearchIndex:
    """Open an index; `named` is the backend with the fields that the index does not store."""
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
        kind, values = _settings_of(manifest)
        made, digests = dict(manifest["backend"]), dict(manifest["sha256"])
        _refuse_unstored(directory, kind, {*values, *made})
        backend = kind(**values)
        recorded, shape = dict(manifest["recorded"]), (int(manifest["items"]), int(manifest["dim"]))
        if missing := set(_FILES) - set(digests):
            raise KeyError(f"no SHA-256 of {sorted(missing)[0]}")
    except (InvalidArgumentError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{directory / MANIFEST} is broken: {error}. Make it again.") from error
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
    finder = _open_finder(directory, named or backend, made, shape[0]) if backend.approximate else None
    return SearchIndex(embeddings, ids, keys, source, items, backend, finder, recorded, stamps)


def _refuse_unstored(directory: Path, kind: type[SearchBackend], names: Collection[str]) -> None:
    """Refuse an index that names what the user alone decides.

    Raises:
        StaleIndexError: naming the fields.
    """
    if named := sorted({*kind.unstored} & {*names}):
        raise StaleIndexError(
            f"The index {directory} names {', '.join(named)} of its backend, which only the user may name; "
            "older versions stored it. Make it again with `vsemb index`."
        )


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


def _open_finder(directory: Path, backend: SearchBackend, made: Mapping[str, Any], items: int) -> Finder:
    try:
        finder = backend.open(directory / BACKEND, made)
        held = len(finder)
    except (KeyError, TypeError, OSError, ValueError, OverflowError) as error:
        if isinstance(error, ImportError | InvalidArgumentError):
            raise
        raise DataError(f"The index {directory} is damaged: {error}. Make it again.") from error
    if held != items:
        finder.close()
        raise DataError(f"The backend of the index {directory} holds {held} items, not {items}. Make the index again.")
    return finder


def check_index_directory(directory: str | os.PathLike[str], backend: SearchBackend | None = None) -> None:
    """Check before embedding that an index can be written to a directory.

    Args:
        directory: directory of the index.
        backend: search backend of the index; None for exact search.

    Raises:
        DataError: if the directory holds other files than an index.
        MissingExtraError: if the backend is not installed.
    """
    directory = Path(directory)
    if directory.exists() and not _replaceable(directory):
        raise DataError(f"{directory} must be an index or not exist; it holds other files. Choose another directory.")
    if backend is not None:
        backend.require_library()


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
    backend: SearchBackend | None = None,
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
        backend: search backend; None for exact search in float32.
        recorded: further facts as JSON values, such as the paths of run and dataset.
        stamps: (items, 2) int64, sizes in bytes and modification times in nanoseconds of image files; None for others.

    Returns:
        The opened index.

    Raises:
        DataError: if the numbers of rows differ, an embedding is not finite, the directory holds other files, or a file
            cannot be written.
        MissingExtraError: if the backend is not installed.
        InvalidArgumentError: if a field of the backend does not fit the items, or its finder the similarity.

    Example:

        index = write_index("indexes/mine", embeddings, ids, keys, IndexSource("", "", (), "image", "cosine"))
    """
    directory, backend = Path(directory), backend or Exact()
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
    check_backend(backend, source.scored_by)
    check_index_directory(directory, backend)
    older = _manifest(directory)
    # Before the directory is replaced.
    discard_older = _discarding(directory, older or {}, backend)
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "source": dataclasses.asdict(source),
        "settings": {"backend": backend.kind, "dtype": backend.dtype, "parameters": backend.parameters},
        "backend": {},
        "recorded": dict(recorded or {}),
        "items": len(ids),
        "dim": embeddings.shape[1],
    }
    try:
        with replacing_directory(directory, overwrite=True) as temporary:
            kept = embeddings.astype(backend.kept, copy=False)
            np.save(temporary / "embeddings.npy", kept, allow_pickle=False)
            np.save(temporary / "ids.npy", np.asarray(ids, np.int64), allow_pickle=False)
            rows = map(vars, items) if items is not None else ({"key": key} for key in keys or ())
            write_columns(temporary / _ITEMS, _COLUMNS, rows)
            if stamps is not None:
                np.save(temporary / _STAMPS, stamps, allow_pickle=False)
            if backend.approximate:
                (temporary / BACKEND).mkdir()
                manifest["backend"] = backend.build(kept, temporary / BACKEND)
            files = sorted(path.relative_to(temporary) for path in temporary.rglob("*") if path.is_file())
            manifest["sha256"] = {
                path.as_posix(): sha256_file(temporary / path)
                for path in files
                if not backend.changes or BACKEND not in path.parts
            }
            write_json(temporary / MANIFEST, manifest)
    except BaseException:
        if manifest["backend"]:
            backend.discard(manifest["backend"], ours=True)
        raise
    backend.replaced(directory / BACKEND)
    discard_older()
    return _read(directory, source, backend)


def _discarding(directory: Path, manifest: Mapping[str, Any], backend: SearchBackend) -> Callable[[], None]:
    """Return a function that removes data of an index outside its directory, after the index was removed.

    Args:
        directory: of the index that will be removed.
        manifest: its manifest, which may be damaged or of others.
        backend: backend of the new index. Its fields that are not stored are used for the older one, too.
    """
    try:
        kind, _ = _settings_of(manifest)
        made = {name: value for name, value in manifest["backend"].items() if name not in kind.unstored}
    except (VsembError, KeyError, TypeError, ValueError, AttributeError):
        return lambda: None
    older = backend if isinstance(backend, kind) else kind()
    ours = kind.owns(directory / BACKEND, made)
    return lambda: older.discard(made, ours)

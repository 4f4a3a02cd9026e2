"""Writing an index."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.errors import DataError
from vsemb.files import read_json, replacing_directory
from vsemb.search.backends import BACKENDS
from vsemb.search.index import SearchIndex
from vsemb.search.source import IndexSettings, IndexSource, Item
from vsemb.search.storage import (
    BACKEND,
    FORMAT,
    MANIFEST,
    NAMES,
    discard_backend,
    first_not_finite,
    write_parts,
)


def check_index_directory(directory: str | os.PathLike[str], settings: IndexSettings | None = None) -> None:
    """Checks what can be known before the work of embedding: the place, and that the backend is installed.

    Raises:
        DataError: if the directory holds something that is no index.
        MissingExtraError: if the backend is not installed.
    """
    directory = Path(directory)
    if directory.exists() and not _replaceable(directory):
        raise DataError(f"{directory} exists and is no index; choose another directory.")
    if settings is not None and settings.codes is not None:
        BACKENDS[settings.codes].check()


def write_index(
    directory: str | os.PathLike[str],
    embeddings: np.ndarray,
    ids: np.ndarray,
    keys: Sequence[str],
    source: IndexSource,
    *,
    items: Sequence[Item] | None = None,
    settings: IndexSettings | None = None,
    recorded: Mapping[str, Any] | None = None,
) -> SearchIndex:
    """Writes an index, whole or not at all, over an older one where there is one.

    Args:
        directory: where.
        embeddings: (items, dim) float32, finite, normalised.
        ids: (items,) int64.
        keys: names of the items.
        source: what they were made from.
        items: what the rows stand for, so that nothing else is needed to show results.
        settings: how they are stored and searched; None for exactly, as float32.
        recorded: JSON that is kept with it, such as where run and dataset were.

    Returns:
        The index, opened.

    Raises:
        DataError: for items that do not fit each other or are not finite, a directory that holds
            something else, or a file system that refuses.
        MissingExtraError: if the backend is not installed.
        InvalidArgumentError: for a parameter that the backend refuses.
    """
    directory, settings = Path(directory), settings or IndexSettings()
    embeddings = np.ascontiguousarray(embeddings, np.float32)
    counts = {len(embeddings), len(ids), len(keys), *(() if items is None else (len(items),))}
    if embeddings.ndim != 2 or len(counts) != 1 or not len(ids):
        raise DataError(
            f"An index needs items. Received: embeddings {embeddings.shape}, {len(ids)} ids, "
            f"{len(keys)} keys{'' if items is None else f', {len(items)} items'}."
        )
    bad = first_not_finite(embeddings)
    if bad is not None:
        raise DataError(f"The embedding of {keys[bad[0]]!r} is not finite; {bad[1]} are not.")
    check_index_directory(directory, settings)
    older = _older(directory)
    manifest = None
    try:
        with replacing_directory(directory, overwrite=True) as temporary:
            manifest = write_parts(temporary, embeddings, ids, keys, source, items, settings, recorded or {})
    except BaseException:
        discard_backend(manifest)
        raise
    if settings.codes is not None:
        BACKENDS[settings.codes].replaced(directory / BACKEND)
    discard_backend(older)
    return SearchIndex.open(directory, source)


def _replaceable(directory: Path) -> bool:
    """Whether nothing but an index, perhaps a damaged one, is lost with a directory."""
    if not directory.is_dir():
        return False
    names = {path.name for path in directory.iterdir()}
    if not names:
        return True
    if MANIFEST not in names or names - NAMES:  # Datasets have a manifest, too.
        return False
    manifest = _older(directory)
    return manifest is None or manifest.get("format") == FORMAT


def _older(directory: Path) -> dict[str, Any] | None:
    """The manifest of the index that is about to be replaced, as far as it can be read."""
    try:
        manifest = read_json(directory / MANIFEST, "index manifest")
    except DataError:
        return None
    return manifest if isinstance(manifest, dict) else None

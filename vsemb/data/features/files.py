"""The files of cached features: written so that a kill loses at most seconds, checked before use."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.errors import DataError, counted, one_line, reason_of
from vsemb.files import (
    hard_link_or_copy,
    locked,
    read_json,
    replacing_directory,
    require_regular,
    sha256_bytes,
    sha256_file,
    write_json,
)

FORMAT = "vsemb-features"
VERSION = 1
WEIGHTS_NAME = "backbone.weights.h5"
CLASSIFIER_NAME = "classifier.weights.h5"
_BLOCK_BYTES = 64 << 20
_COMMIT_SECONDS = 2.0


class FeatureWriter:
    """Write a features folder: a context manager that fills a hidden work folder and renames it at the end.

    Committed batches are kept if the process dies. The next writer of the same folder continues after them if its
    `state` is the same; otherwise it starts again.

    Args:
        directory: the folder to make.
        ids: int64 (n,), all image ids, ascending.
        shape: the shape of one row: (dim,), or (crops, dim), or (regions, dim).
        state: a JSON object that identifies the computation.
        dtype: of the features.
        beside: name -> shape of one row of other arrays, float32, kept beside the features.
        order: ids in the order of writing; None for that of `ids`. Work in another order is not continued.
        kind: format and version that the manifest names.

    Attributes:
        done: the number of rows that are written already, in the order of writing.
        work: the work folder; weights put in it, of the backbone and its classifier, become part of the
            folder.

    Raises:
        DataError: if another process is filling the same folder, or the disk is full.
    """

    def __init__(
        self,
        directory: Path,
        ids: np.ndarray,
        shape: tuple[int, ...],
        state: dict[str, Any],
        *,
        dtype: type[np.floating[Any]] = np.float32,
        beside: Mapping[str, tuple[int, ...]] | None = None,
        order: np.ndarray | None = None,
        kind: tuple[str, int] = (FORMAT, VERSION),
    ):
        self.directory = directory
        self.work = directory.parent / f".{directory.name}.partial"
        self.done = 0
        self._ids = ids
        self._order = ids if order is None else order
        self._kind = kind
        self._shape = (len(ids), *shape)
        self._specs = {"features": (dtype, self._shape)}
        for name, other in (beside or {}).items():
            self._specs[name] = (np.float32, (len(ids), *other))
        self._state = {**state, "shape": list(self._shape), "ids_sha256": sha256_bytes(ids.tobytes())}
        self._arrays: dict[str, np.memmap[Any, Any]] = {}
        self._checksums = dict.fromkeys(self._specs, 0)
        self._committed_at = time.monotonic()

    def __enter__(self) -> FeatureWriter:
        with contextlib.ExitStack() as stack:
            busy = f"Another process is making the features in {self.directory}; wait for it."
            stack.enter_context(locked(self.work, busy))
            stack.callback(self._arrays.clear)
            with self._disk_errors():
                self._open()
            self._held = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._held.close()

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DataError(f"Cannot write {self.work}: {reason_of(error)}.") from error

    def _open(self) -> None:
        paths = {name: self.work / f"{name}.npy" for name in self._specs}
        progress = self.work / "progress.json"
        if progress.is_file() and self._continues(progress, paths):
            for name, path in paths.items():
                self._arrays[name] = np.lib.format.open_memmap(path, mode="r+")
            return
        progress.unlink(missing_ok=True)
        for name, (dtype, shape) in self._specs.items():
            path = paths[name]
            self._arrays[name] = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
            if hasattr(os, "posix_fallocate"):
                # Reserved now: a disk that fills up later would kill a process that writes to mapped memory.
                with open(path, "rb+") as file:
                    os.posix_fallocate(file.fileno(), 0, path.stat().st_size)

    def _continues(self, progress: Path, paths: Mapping[str, Path]) -> bool:
        """Read how far an interrupted writer came; return whether its work is of this state, and undamaged."""
        try:
            kept = read_json(progress, "progress of features")
            if kept["state"] != self._state:
                return False
            places = np.searchsorted(self._ids, self._order[: kept["done"]])
            for name, (dtype, shape) in self._specs.items():
                array = load_array(paths[name])
                if array.dtype != dtype or array.shape != shape or len(places) != kept["done"]:
                    return False
                step = max(1, _BLOCK_BYTES // max(1, array[:1].nbytes))
                for start in range(0, len(places), step):
                    self._add_checksum(name, array[places[start : start + step]])
            intact = bool(self._checksums == kept["checksums"])
        except (DataError, KeyError, TypeError):
            intact = False
        if intact:
            self.done = len(places)
        else:
            self.start_afresh()
        return intact

    def start_afresh(self) -> None:
        """Write all rows again, also the rows of an interrupted writer."""
        self.done = 0
        self._checksums = dict.fromkeys(self._specs, 0)

    def _add_checksum(self, name: str, rows: np.ndarray) -> None:
        self._checksums[name] = zlib.crc32(np.ascontiguousarray(rows).data, self._checksums[name])

    def write(self, ids: np.ndarray, rows: np.ndarray, **beside: np.ndarray) -> None:
        """Write the rows of some images; every couple of seconds, commits what was written.

        Args:
            ids: int64 (n,), the images.
            rows: (n, ...), their features.
            **beside: rows of each array beside the features.
        """
        places = np.searchsorted(self._ids, ids)
        for name, array in self._arrays.items():
            array[places] = rows if name == "features" else beside[name]
            self._add_checksum(name, array[places])
        self.done += len(ids)
        if time.monotonic() - self._committed_at > _COMMIT_SECONDS:
            self.commit()

    def array(self, name: str) -> np.ndarray:
        """Return what was written so far: `features`, or an array beside them; rows not written yet are zeros."""
        return self._arrays[name]

    def commit(self) -> None:
        """Make sure that the rows written so far survive a crash."""
        for array in self._arrays.values():
            array.flush()
        write_json(self.work / "progress.json", {"state": self._state, "done": self.done, "checksums": self._checksums})
        self._committed_at = time.monotonic()

    def finish(self, manifest: dict[str, Any]) -> None:
        """Complete the manifest and turn the work folder into the features folder."""
        if self.done != len(self._ids):
            raise DataError(f"{self.done} of {len(self._ids)} rows of features were written to {self.work}.")
        whole = {
            "format": self._kind[0],
            "version": self._kind[1],
            **manifest,
            "dim": self._shape[-1],
            "rows": len(self._ids),
            "ids_sha256": sha256_bytes(self._ids.tobytes()),
            "finite": True,
        }
        self.commit()
        with self._disk_errors():
            for name in self._specs:
                whole[f"{name}_sha256"] = sha256_file(self.work / f"{name}.npy")
            np.save(self.work / "ids.npy", self._ids)
            write_json(self.work / "manifest.json", whole)
            with replacing_directory(self.directory) as temporary:
                arrays = [f"{name}.npy" for name in self._specs]
                for name in (*arrays, "ids.npy", "manifest.json", WEIGHTS_NAME, CLASSIFIER_NAME):
                    if (self.work / name).exists():
                        # A link and not a move: until the new folder is complete, the old one must be.
                        hard_link_or_copy(self.work / name, temporary / name)
            shutil.rmtree(self.work)


def load_array(path: Path) -> np.ndarray:
    """Map a .npy file into memory without unpickling anything; raise DataError for an unreadable file."""
    try:
        return np.load(require_regular(path), mmap_mode="r", allow_pickle=False)
    except Exception as error:
        # NumPy parses the header as Python source, with errors of many types.
        raise DataError(f"The file {path} cannot be read: {one_line(error)}.") from error


def blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yields float32 blocks of at most 64 MB, in order, so that a mapped array is never all in memory."""
    step = max(1, _BLOCK_BYTES // max(1, 4 * int(np.prod(rows.shape[1:]))))
    for start in range(0, len(rows), step):
        yield np.ascontiguousarray(rows[start : start + step], np.float32)


def not_finite(rows: np.ndarray) -> np.ndarray:
    """Return the numbers of the rows that hold NaN or infinity."""
    finite = [np.isfinite(block).all(axis=tuple(range(1, block.ndim))) for block in blocks(rows)]
    return np.flatnonzero(~np.concatenate([np.zeros(0, bool), *finite]))


def check_ids(ids: np.ndarray, expected: np.ndarray, what: str) -> None:
    """Check that ids are the expected ones in their order; the error names the difference.

    Args:
        ids: int64 (n,), as found.
        expected: int64 (m,), ascending, each once.
        what: owner of the ids in the message, a plural such as `regions`.

    Raises:
        DataError: if an id is repeated, missing, unknown or in another place.
    """
    if np.array_equal(ids, expected):
        return
    values, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        raise DataError(f"{what} have image id {values[counts > 1][0]} more than once.")
    missing, extra = np.setdiff1d(expected, ids), np.setdiff1d(ids, expected)
    if len(missing):
        raise DataError(f"{what} lack {len(missing)} of the {len(expected)} images, first id {missing[0]}.")
    if len(extra):
        raise DataError(f"{what} have {counted(len(extra), 'id')} that the dataset has not, first {extra[0]}.")
    first = int(np.flatnonzero(ids != expected)[0])
    raise DataError(f"{what} are reordered: row {first} is of image id {ids[first]}, not {expected[first]}.")

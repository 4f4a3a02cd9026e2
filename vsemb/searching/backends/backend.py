"""The interface of a backend, an approximate index of vectors that finds candidates."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from vsemb.errors import invalid_argument


class Backend(abc.ABC):
    """Approximate index of vectors, which is fast to search or small; base of all backends.

    Made by `build`, then `open`.

    Example:

    >>> import tempfile
    >>> from vsemb.searching.backends import Int8Codes
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parameters = Int8Codes.build(np.eye(3, dtype=np.float32), Path(folder), {})
    ...     rows, scores = Int8Codes.open(Path(folder), parameters).search(np.array([[0.1, 0.9, 0.5]], np.float32), 2)
    >>> rows.tolist()
    [[1, 2]]
    """

    #: Names of the parameters that `build` takes.
    parameters: ClassVar[tuple[str, ...]] = ()
    #: Names of the parameters that no index stores, since the user alone decides them: addresses.
    unstored: ClassVar[tuple[str, ...]] = ()
    #: Whether opening changes the files, so that they have no checksum.
    changes: ClassVar[bool] = False

    @classmethod  # noqa: B027
    def check(cls) -> None:
        """Check that the backend's library is installed.

        Raises:
            MissingExtraError: if it is not installed.
        """

    @classmethod
    @abc.abstractmethod
    def build(cls, vectors: np.ndarray, directory: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Write an index of vectors.

        Args:
            vectors: (items, dim) float32 or float16, finite, at least one item.
            directory: an empty directory.
            parameters: name in `parameters` -> value; others have their defaults.

        Returns:
            All parameters except the unstored ones as JSON values, for `open`.

        Raises:
            VsembError: for a parameter out of range, or an error of the library.
        """

    @classmethod
    @abc.abstractmethod
    def open(cls, directory: Path, parameters: Mapping[str, Any]) -> Self:
        """Open an index.

        Args:
            directory: directory given to `build`.
            parameters: result of `build`, and the unstored parameters that the user gave.

        Raises:
            VsembError: if the index cannot be read.
        """

    @abc.abstractmethod
    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Find items with large inner products.

        Args:
            queries: (queries, dim) float32.
            n: number of items per query, from 1 to the number of items.

        Returns:
            rows: (queries, n) int64, in descending order of the backend's scores; -1 if fewer items are found.
            scores: (queries, n) float32, approximate scores of the backend; undefined for row -1. Higher is better.
        """

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the number of items."""

    def close(self) -> None:  # noqa: B027
        """Close connections and processes."""

    @classmethod
    def owns(cls, directory: Path, parameters: Mapping[str, Any]) -> bool:
        """Return whether data outside the directory was written with this directory, and not with one it is a copy of.

        Args:
            directory: as of `open`.
            parameters: as of `open`; they may be wrong or of others.
        """
        return False

    @classmethod  # noqa: B027
    def discard(cls, parameters: Mapping[str, Any], ours: bool) -> None:
        """Remove data that `build` wrote outside its directory, such as a collection of a cluster; say if it stays.

        Args:
            parameters: as of `open`.
            ours: result of `owns`; data of others stays.
        """

    @classmethod  # noqa: B027
    def replaced(cls, directory: Path) -> None:
        """Release old files, after a new index has replaced them.

        Args:
            directory: directory of the new index.
        """


def check_count(name: str, value: int, most: int, of: str) -> None:
    """Check that a parameter is from 1 to a maximum.

    Args:
        name: name of the parameter.
        value: its value.
        most: the maximum.
        of: plural noun for the things that are counted.

    Raises:
        InvalidArgumentError: for a value out of range.
    """
    if not 1 <= value <= most:
        raise invalid_argument(name, value, f"an integer from 1 to {most}, the number of {of}")

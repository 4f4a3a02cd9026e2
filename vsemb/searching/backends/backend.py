"""The family of search backends, and what they open: finders of candidates."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from vsemb.errors import invalid_argument
from vsemb.parts import Part, fields_of

#: With fewer items, an approximate backend reads all of its lists by default: exact search takes milliseconds there,
#: and reading a share of the lists loses results.
FEW = 100_000


@dataclass(frozen=True)
class SearchBackend(Part, family="search backend"):
    """How an index stores its items and finds candidates.

    `build` writes the files of the finder, `open` opens them. Its module imports nothing heavy outside functions,
    because `--help` shows its fields.

    Attributes:
        dtype: dtype of the stored embeddings, or of the codes beside them.

    Class attributes:
        unstored: names of the fields that no index stores, since the user alone decides them: addresses.
        changes: whether opening changes the files, so that they have no checksum.
    """

    dtype: Literal["float32", "float16", "int8", "binary"] = "float32"

    unstored: ClassVar[tuple[str, ...]] = ()
    changes: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """Backend and dtype, as tables show them."""
        return f"{self.kind} {self.dtype}"

    @property
    def approximate(self) -> bool:
        """Whether a finder chooses candidates; otherwise all items are scored."""
        return True

    @property
    def kept(self) -> str:
        """The dtype of the stored embeddings."""
        return self.dtype

    @property
    def parameters(self) -> dict[str, Any]:
        """The given fields that an index stores, besides the dtype."""
        names = [name for name in fields_of(type(self)) if name not in ("dtype", *self.unstored)]
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def require_library(self) -> None:
        """Check that the library of the backend is installed.

        Raises:
            MissingExtraError: if it is not installed.
        """

    def build(self, vectors: np.ndarray, directory: Path) -> dict[str, Any]:
        """Write the files of the finder.

        Args:
            vectors: (items, dim) float32 or float16, finite, at least one item.
            directory: an empty directory.

        Returns:
            JSON values for `open`, without the unstored fields.

        Raises:
            VsembError: for a field that does not fit the vectors, or an error of the library.
        """
        raise NotImplementedError

    def open(self, directory: Path, made: Mapping[str, Any]) -> Finder:
        """Open the files of the finder.

        Args:
            directory: directory given to `build`.
            made: result of `build`.

        Raises:
            VsembError: if they cannot be read.
        """
        raise NotImplementedError

    @classmethod
    def owns(cls, directory: Path, made: Mapping[str, Any]) -> bool:
        """Return whether data outside the directory was written with this directory, and not with one it is a copy of.

        Args:
            directory: as of `open`.
            made: as of `open`; it may be wrong or of others.
        """
        return False

    def discard(self, made: Mapping[str, Any], ours: bool) -> None:
        """Remove data that `build` wrote outside its directory, such as a collection of a cluster; say if it stays.

        Args:
            made: as of `open`.
            ours: result of `owns`; data of others stays.
        """

    def replaced(self, directory: Path) -> None:
        """Release old files, after a new index has replaced them.

        Args:
            directory: directory of the new index.
        """


@dataclass(frozen=True)
class Approximate(SearchBackend):
    """A backend with a finder of its own, beside float32 or float16 embeddings for exact scores.

    Attributes:
        dtype: dtype of the stored embeddings.
    """

    dtype: Literal["float32", "float16"] = "float32"


class Finder(abc.ABC):
    """Opened files of a backend, which find candidates.

    Example:

    >>> import tempfile
    >>> from vsemb.searching.backends.exact import Exact
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     backend = Exact("int8")
    ...     made = backend.build(np.eye(3, dtype=np.float32), Path(folder))
    ...     rows, scores = backend.open(Path(folder), made).search(np.array([[0.1, 0.9, 0.5]], np.float32), 2)
    >>> rows.tolist()
    [[1, 2]]
    """

    @abc.abstractmethod
    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Find items with large inner products.

        Args:
            queries: (queries, dim) float32.
            n: number of items per query, from 1 to the number of items.

        Returns:
            rows: (queries, n) int64, in descending order of the finder's scores; -1 if fewer items are found.
            scores: (queries, n) float32, approximate scores; undefined for row -1. Higher is better.
        """

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the number of items."""

    def close(self) -> None:  # noqa: B027
        """Close connections and processes."""


def check_count(name: str, value: int, most: int, of: str) -> None:
    """Check that a field is from 1 to a maximum.

    Args:
        name: name of the field.
        value: its value.
        most: the maximum.
        of: plural noun for the things that are counted.

    Raises:
        InvalidArgumentError: for a value out of range.
    """
    if not 1 <= value <= most:
        raise invalid_argument(name, value, f"an integer from 1 to {most}, the number of {of}")

"""The interface of a backend."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from vsemb.errors import invalid_argument


class Backend(abc.ABC):
    """Vectors in a form that is searched fast or held small."""

    #: Names of the parameters that `build` takes.
    parameters: ClassVar[tuple[str, ...]] = ()
    #: Whether the files change when they are opened, so that no checksum can be kept of them.
    changes: ClassVar[bool] = False

    @classmethod  # noqa: B027
    def check(cls) -> None:
        """Imports what the backend needs.

        Raises:
            MissingExtraError: if that is not installed.
        """

    @classmethod
    @abc.abstractmethod
    def build(cls, vectors: np.ndarray, directory: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Writes the vectors' files.

        Args:
            vectors: (items, dim) float32 or float16, finite, at least one item.
            directory: an empty one.
            parameters: those of `parameters` that are not to have their defaults.

        Returns:
            All parameters, as JSON, which `open` is given.

        Raises:
            VsembError: for a parameter that is not allowed, or what the backend refuses.
        """

    @classmethod
    @abc.abstractmethod
    def open(cls, directory: Path, parameters: Mapping[str, Any]) -> Self:
        """Opens what `build` wrote.

        Raises:
            VsembError: if it cannot be read.
        """

    @abc.abstractmethod
    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Finds items with large inner products.

        Args:
            queries: (queries, dim) float32.
            n: items wanted, from 1 to as many as there are.

        Returns:
            rows: (queries, n) int64, probably the best first; -1 where fewer are found.
            scores: (queries, n) float32, the backend's own, higher is better; of no meaning where the row
                is -1.
        """

    @abc.abstractmethod
    def __len__(self) -> int:
        """How many items there are."""

    def close(self) -> None:  # noqa: B027
        """Frees what is not memory alone."""

    @classmethod  # noqa: B027
    def discard(cls, parameters: Mapping[str, Any]) -> None:
        """Removes what `build` made outside the directory, where it made such."""

    @classmethod  # noqa: B027
    def replaced(cls, directory: Path) -> None:
        """Lets go of files that were at `directory` and are others now."""


def check_count(name: str, value: int, most: int, of: str) -> None:
    """Refuses a parameter that is no number of things.

    Raises:
        InvalidArgumentError: for a value below 1 or above `most`, the number of `of`.
    """
    if not 1 <= value <= most:
        raise invalid_argument(name, value, f"an integer from 1 to {most}, the number of {of}")

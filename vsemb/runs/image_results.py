"""Results per image, some of which could not be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from vsemb.errors import listed, printable
from vsemb.printing import table
from vsemb.results import Result


class OfImage(Protocol):
    """Result of one image.

    Attributes:
        image: file or key of the image.
        error: reason why the image has no result; None for success.
    """

    @property
    def image(self) -> str: ...

    @property
    def error(self) -> str | None: ...

    def cells(self) -> Iterable[Sequence[str]]:
        """Return the rows of a table, see `ImageResults.columns`."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""


T = TypeVar("T", bound=OfImage)


@dataclass(frozen=True, eq=False, repr=False)
class ImageResults(Result, Sequence[T], Generic[T]):
    """The results of several images, in the order given.

    Attributes:
        images: a result per image, with an error for images that cannot be read.

    Class attributes:
        columns: names of the columns of the table, after the image's.
    """

    images: tuple[T, ...]

    columns: ClassVar[Sequence[str]]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, place: Any) -> Any:
        return self.images[place]

    @property
    def failure(self) -> str | None:
        errors = [each.error for each in self.images if each.error is not None]
        return listed(errors) if errors else None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"images": [each.to_json() for each in self.images]}

    def __str__(self) -> str:
        rows = []
        for result in self.images:
            name = printable(result.image)
            for cells in result.cells():
                rows.append([name, *cells])
                name = ""  # The lines that follow belong to the same image.
        return table(["image", *self.columns], rows, text=(0, 1)) if rows else ""

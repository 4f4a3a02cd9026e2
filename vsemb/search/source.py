"""What an index says of itself: what it was made from, what its rows stand for, how it is searched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from vsemb import similarities
from vsemb.errors import DataError, invalid_argument, unknown_name
from vsemb.search import backends
from vsemb.similarities import Similarity

KINDS = ("image", "text")
DTYPES = ("float32", "float16", "int8", "binary")
#: The dtypes that embeddings themselves are kept in; the others are codes beside them.
KEPT = ("float32", "float16")


def items_are_images(kind: str, query_kind: str | None) -> bool:
    """Whether items are scored as images and queries as texts, see `SearchIndex.search`."""
    return kind == "image" or query_kind == "text"


class StaleIndexError(DataError):
    """An index was made from other weights, another dataset or other splits than those at hand."""


@dataclass(frozen=True)
class IndexSource:
    """What an index was made from.

    Attributes:
        run: fingerprint of the run: its weights and recipe.
        dataset: fingerprint of the dataset.
        splits: names of the splits, in order.
        kind: what the items are: `"image"` or `"text"`.
        similarity: the similarity that compares them with queries, as `Similarity.to_json` returns it; given
            as that or by its kind, which stands for default fields.
    """

    run: str
    dataset: str
    splits: tuple[str, ...]
    kind: str
    similarity: dict[str, Any] | str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown_name("kind", self.kind, KINDS)
        object.__setattr__(self, "similarity", self.scored_by.to_json())

    @cached_property
    def scored_by(self) -> Similarity:
        """The similarity itself."""
        if isinstance(self.similarity, str):
            return similarities.get(self.similarity)
        return Similarity.from_json(self.similarity)


@dataclass(frozen=True)
class Item:
    """What one row of an index stands for.

    Attributes:
        id: of the image.
        key: of the image; of a caption, the image's with `#` and the caption's number, from 0.
        split: the split's name.
        image_key: of the image.
        caption: the caption; of an image, its longest, which tells most.
    """

    id: int
    key: str
    split: str
    image_key: str
    caption: str


@dataclass(frozen=True)
class IndexSettings:
    """How an index is stored and searched.

    Attributes:
        backend: one of `vsemb.search.backends.NAMES`. All but `exact` find candidates, which are then scored
            exactly.
        dtype: one of `DTYPES`. Embeddings are kept as float32, or as float16 where that is asked for. With
            int8 and binary, which `exact` alone takes, candidates are found among codes of that size.
        parameters: the backend's own, see its class; those left out have defaults.

    Raises:
        InvalidArgumentError: for a name that is not there, or parts that do not fit each other.

    Example:

    >>> IndexSettings("exact", "binary").candidate_backend.__name__
    'BinaryCodes'
    """

    backend: str = "exact"
    dtype: str = "float32"
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.backend not in backends.NAMES:
            raise unknown_name("backend", self.backend, backends.NAMES)
        if self.dtype not in DTYPES:
            raise unknown_name("dtype", self.dtype, DTYPES)
        if self.backend != "exact" and self.dtype not in KEPT:
            raise invalid_argument(
                "dtype",
                self.dtype,
                f"one of {', '.join(KEPT)} with the backend {self.backend!r}",
                "It has codes of its own; the dtype is that of the embeddings kept beside them.",
            )
        known = self.candidate_backend.parameters if self.candidate_backend else ()
        for name in self.parameters:
            if name not in known:
                raise invalid_argument(
                    "parameter",
                    name,
                    f"{'one of ' + ', '.join(known) if known else 'none'} with {self.label}",
                )

    @property
    def candidate_backend(self) -> type[backends.Backend] | None:
        """The backend that finds candidates; None where all items are scored exactly."""
        return backends.BACKENDS.get(self.dtype if self.backend == "exact" else self.backend)

    @property
    def kept(self) -> str:
        """The dtype of the embeddings themselves."""
        return self.dtype if self.dtype in KEPT else "float32"

    @property
    def label(self) -> str:
        """Backend and dtype, as tables show them."""
        return f"{self.backend} {self.dtype}"

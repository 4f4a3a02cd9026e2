"""What a run shows on the demonstration page, over the images of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vsemb.data.images import BadImage, sanitise_image
from vsemb.data.store import Dataset
from vsemb.errors import DataError, invalid_argument
from vsemb.files import sha256_bytes
from vsemb.runs.indexing import index_items

#: A caption and the natural logarithm of its probability.
Written = tuple[str, float]


class Demonstration:
    """What a run shows, over the images of some splits of a dataset; subclasses add tabs.

    Args:
        dataset: the dataset.
        splits: their names.

    Attributes:
        dataset: the dataset.
        items: the images, in order.
        places: split and row in it of each image.

    Raises:
        VsembError: if a split is not there.
    """

    def __init__(self, dataset: Dataset, splits: Sequence[str]) -> None:
        self.dataset = dataset
        self.items = index_items(dataset, tuple(splits), "image")
        parts = [dataset.split(name) for name in splits]
        self.places = [(part, row) for part in parts for row in range(len(part))]
        self._by_key: dict[str, int] = {}
        self._by_digest: dict[str, list[int]] = {}
        for place, (part, row) in enumerate(self.places):
            self._by_key.setdefault(part.keys[row], place)
            self._by_digest.setdefault(part.entries[row].get("sha256", ""), []).append(place)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def facts(self) -> str:
        """What the page says of the run, a phrase."""
        raise NotImplementedError

    def add(self, page: Any) -> None:
        """Adds tabs, or what stands in their place, to a `vsemb.demo.page.Page` that is being built."""
        raise NotImplementedError

    def written(self, image: bytes | str) -> tuple[Written, ...] | None:
        """Returns captions of an image, by its bytes or key, best first; None for a run that writes none."""
        return None

    def close(self) -> None:
        """Closes what is open."""

    def place_of(self, key: str) -> int:
        """Returns the place of the image with a key.

        Raises:
            InvalidArgumentError: if there is none.
        """
        if key not in self._by_key:
            allowed = f"the key of an image of {self.dataset.name}, such as {self.items[0].key!r}"
            raise invalid_argument("image", key, allowed)
        return self._by_key[key]

    def as_stored(self, image: bytes) -> bytes:
        """Returns the bytes of an image as the dataset would store them.

        Raises:
            DataError: if it cannot be decoded.
        """
        limit = self.dataset.manifest.get("writing", {}).get("max_side")
        try:
            return sanitise_image(image, limit).encoded
        except BadImage as error:
            raise DataError(f"The image is unreadable: {error}.") from error

    def same_as(self, encoded: bytes) -> list[int]:
        """Returns the places of the images that are stored as these bytes."""
        return self._by_digest.get(sha256_bytes(encoded), [])

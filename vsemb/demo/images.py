"""The images of a dataset that a demonstration page shows, by their keys and by their bytes."""

from __future__ import annotations

from collections.abc import Sequence

from vsemb.data.images import BadImage, sanitise_image
from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError, invalid_argument
from vsemb.files import sha256_bytes
from vsemb.runs.indexing import index_items


class ShownImages:
    """The images of some splits of a dataset.

    Args:
        dataset: the dataset.
        splits: their names.

    Attributes:
        dataset: the dataset.
        items: the images, in order.

    Raises:
        VsembError: if a split is not there.

    Example:

        images = ShownImages(Dataset.open("data/flickr8k"), ("val",))
        split, row = images.place(images.place_of("dog.jpg"))
    """

    def __init__(self, dataset: Dataset, splits: Sequence[str]) -> None:
        self.dataset = dataset
        self.items = index_items(dataset, tuple(splits), "image")
        parts = [dataset.split(name) for name in splits]
        self._places = [(part, row) for part in parts for row in range(len(part))]
        self._by_key: dict[str, int] = {}
        self._by_digest: dict[str, list[int]] = {}
        for place, (part, row) in enumerate(self._places):
            self._by_key.setdefault(part.keys[row], place)
            self._by_digest.setdefault(part.entries[row].get("sha256", ""), []).append(place)

    def __len__(self) -> int:
        return len(self.items)

    def place(self, index: int) -> tuple[Split, int]:
        """Returns the split and the row in it of an image."""
        return self._places[index]

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

"""Finding a caption of a dataset by what its source, or a file made from it, calls it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from vsemb.data.records import caption_id
from vsemb.data.store import Dataset
from vsemb.errors import DataError

_Value = TypeVar("_Value")


class CaptionIndex:
    """All captions of a dataset, one split behind the other, and how they are called.

    Args:
        dataset: the dataset.

    Attributes:
        path: of the dataset.
        splits: in their order.
        texts: of the captions.
        ids: of the captions, as `Split.caption_ids` has them.
        has_own: whether captions have ids of the dataset's source.
        source: the format that the dataset was prepared from; None where it is not known.

    Example:

    ```python
    captions = CaptionIndex(Dataset.open("data/flickr8k"))
    print(captions.texts[captions.find("1000268201_693b08cb0e.jpg#0")])
    ```
    """

    def __init__(self, dataset: Dataset) -> None:
        self.path = dataset.path
        self.splits = [dataset.split(name) for name in dataset.splits]
        self.texts = [text for split in self.splits for text in split.captions]
        self.ids = [name for split in self.splits for name in split.caption_ids]
        self.has_own = any("caption_ids" in entry for split in self.splits for entry in split.entries)
        self.source = dataset.manifest.get("source", {}).get("format")
        self._place_of: dict[str, int] = {}
        self._ambiguous = set()
        for place, name in enumerate(self.ids):
            if self._place_of.setdefault(name.strip(), place) != place:
                self._ambiguous.add(name.strip())
        self._image_of: dict[str, tuple[int, int]] = {}
        first = 0
        for split in self.splits:
            for entry in split.entries:
                self._image_of[entry["key"].strip()] = (first, len(entry["captions"]))
                first += len(entry["captions"])

    def find(self, name: str) -> int | None:
        """Returns the place of the caption that an id names, or None where none is called so.

        Args:
            name: the id that the caption has in the dataset's source, or `KEY#NUMBER` with the image's key
                and the caption's number within the image, from 0. White space around it does not count.

        Raises:
            DataError: if several captions are called so.
        """
        name = name.strip()
        if name in self._ambiguous:
            raise DataError(
                f"{self.path} has several captions whose id in their source is {name!r}. Call them "
                f"{caption_id('KEY', 0)!r}, with the image's key and the caption's number within the image."
            )
        if name in self._place_of:
            return self._place_of[name]
        key, mark, number = name.rpartition("#")
        first, count = self._image_of.get(key.strip(), (0, 0))
        if not mark or len(number) > 9 or not (number.isascii() and number.isdecimal()):
            return None
        return first + int(number) if int(number) < count else None

    def split_of(self, place: int) -> str:
        """Returns the name of the split of the caption at a place."""
        ends = np.cumsum([len(split.captions) for split in self.splits])
        return self.splits[int(np.searchsorted(ends, place, "right"))].name

    def by_split(self, values: Sequence[_Value]) -> dict[str, list[_Value]]:
        """Returns what belongs to all captions, by the name of their split."""
        found, first = {}, 0
        for split in self.splits:
            found[split.name] = list(values[first : first + len(split.captions)])
            first += len(split.captions)
        return found

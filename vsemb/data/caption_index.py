"""Find captions of a dataset by their ids in its source, or in a file made from the source."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from vsemb.data.records import caption_id
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError

_SHOWN = 100

_Value = TypeVar("_Value")


class Named(Protocol):
    """An entry of a file about a caption.

    Attributes:
        id: id of the caption in the file.
        line: line of the entry in the file.
    """

    @property
    def id(self) -> Any: ...

    @property
    def line(self) -> int: ...


_Named = TypeVar("_Named", bound=Named)


class CaptionIndex:
    """All captions of a dataset, split by split, with their ids.

    Args:
        dataset: the dataset.

    Attributes:
        path: path of the dataset.
        splits: the splits, in order.
        texts: the captions.
        ids: their ids, as in `Split.caption_ids`.
        has_own: whether captions have ids of the dataset's source.
        source: format that the dataset was prepared from; None if unknown.

    Example:

    ```python
    captions = CaptionIndex(Dataset.open("data/flickr8k"))
    print(captions.texts[captions.find("1000268201_693b08cb0e.jpg#0")])
    ```
    """

    def __init__(self, dataset: StoredDataset) -> None:
        self.path = dataset.path
        self.splits = [dataset.split(name) for name in dataset.splits]
        self.texts = [text for split in self.splits for text in split.captions]
        self.ids = [name for split in self.splits for name in split.caption_ids]
        self.has_own = any(split.index.has("caption_ids", every=False) for split in self.splits)
        self.source = dataset.manifest.get("source", {}).get("format")
        names = [name.strip() for name in self.ids]
        self._place_of = {name: place for place, name in enumerate(names)}
        self._ambiguous = {name for name, count in Counter(names).items() if count > 1}
        self._place_by_number: dict[str, int] = {}
        place = 0
        for split in self.splits:
            for key, count in zip(split.keys, np.diff(split.caption_offsets).tolist(), strict=True):
                for number in range(count):
                    self._place_by_number[caption_id(key.strip(), number)] = place
                    place += 1

    def find(self, name: str) -> int | None:
        """Return the position of the caption with an id; None for an unknown id.

        Args:
            name: id of the caption in the dataset's source, or `KEY#NUMBER` with the image's key and the caption's
                number within the image, from 0. Surrounding white space is ignored.

        Raises:
            DataError: if several captions have this id.
        """
        name = name.strip()
        if name in self._ambiguous:
            raise DataError(
                f"{self.path} has several captions whose id in their source is {name!r}. Call them "
                f"{caption_id('KEY', 0)!r}, with the image's key and the caption's number within the image."
            )
        if name in self._place_of:
            return self._place_of[name]
        key, _, number = name.rpartition("#")
        if len(number) > 9 or not (number.isascii() and number.isdecimal()):
            return None
        return self._place_by_number.get(caption_id(key.strip(), int(number)))

    def match(self, items: Iterable[_Named], unit: str, report: Callable[[str], None], hint: str = "") -> list[_Named]:
        """Find the entry of each caption in a file.

        Args:
            items: entries of the file in any order; read once.
            unit: noun for an entry in messages, such as `sentence`.
            report: called with a line about entries whose ids are not in the dataset.
            hint: sentence added to the error about missing entries, if the file has unknown ids.

        Returns:
            One entry per caption, in the order of the captions.

        Raises:
            DataError: if a caption has no entry, or more than one.
        """
        matched: dict[int, _Named] = {}
        unknown: _Named | None = None
        left_out = 0
        for item in items:
            place = self.find(item.id)
            if place is None:
                unknown = unknown or item
                left_out += 1
            elif place in matched:
                raise DataError(
                    f"The {unit} {item.id[:_SHOWN]!r} (line {item.line}) is of the same caption as the {unit} of line "
                    f"{matched[place].line}. A caption has one: leave one of them out."
                )
            else:
                matched[place] = item
        missing = [place for place in range(len(self.texts)) if place not in matched]
        if missing:
            raise DataError(self._lacking(unit, missing, unknown, hint))
        if unknown is not None:
            report(
                f"{left_out} {unit}s left out whose ids the dataset does not have, first {unknown.id!r} "
                f"(line {unknown.line})."
            )
        return [matched[place] for place in range(len(self.texts))]

    def _lacking(self, unit: str, missing: list[int], unknown: Named | None, hint: str) -> str:
        first, key_form = missing[0], caption_id(self.splits[0].keys[0], 0)
        more = f", and for {len(missing) - 1} more" if len(missing) > 1 else ""
        message = (
            f"No {unit} for the caption {self.ids[first]!r} of the split {self.split_of(first)!r} of "
            f"{self.path}, {self.texts[first][:_SHOWN]!r}{more}. "
        )
        if unknown is None:
            return message + "The file must hold every caption of the dataset."
        forms = repr(key_form) if self.ids[0] == key_form else f"{self.ids[0]!r} or {key_form!r}"
        message += f"Ids in the file look like {unknown.id!r}, those of captions like {forms}. {hint}"
        if not self.has_own and self.source in ("karpathy", "coco"):
            message += (
                "The dataset was prepared by a vsemb that did not keep the ids of its source; prepare it again "
                "with `overwrite`."
            )
        return message.rstrip()

    def split_of(self, place: int) -> str:
        """Return the name of the split of the caption at a position in `texts`."""
        ends = np.cumsum([len(split.captions) for split in self.splits])
        return self.splits[int(np.searchsorted(ends, place, "right"))].name

    def by_split(self, values: Sequence[_Value]) -> dict[str, list[_Value]]:
        """Group values by split: name of the split -> values of its captions.

        Args:
            values: one value per caption, in the order of `texts`.
        """
        rest = iter(values)
        return {split.name: list(itertools.islice(rest, len(split.captions))) for split in self.splits}

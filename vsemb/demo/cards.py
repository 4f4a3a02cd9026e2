"""Answers as HTML: cards with thumbnails, captions with scores, bars.

Thumbnails are made in memory and stand in the HTML itself, so that no file of the dataset is ever served.
Whatever comes from a dataset or a reader is escaped.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from vsemb.demo.answers import Answer
from vsemb.demo.demonstration import Demonstration
from vsemb.runs.pictures import data_uri, thumbnail
from vsemb.runs.templates import page_template
from vsemb.search import Item

_SIDE = 256
_REMEMBERED = 1024


class Cards:
    """Renders the answers of a demonstration.

    Args:
        images: those that are shown.

    Example:

        Cards(demo).answer(demo.by_text("a dog", 12))
    """

    def __init__(self, images: Demonstration) -> None:
        self._images = images
        # Of this object and not of the class, so that nothing outlives it.
        self.thumbnail = functools.lru_cache(_REMEMBERED)(self._thumbnail)

    def answer(self, answer: Answer) -> str:
        """Returns the notes, the captions and the images of an answer, or its sentences with their bars.

        Raises:
            DataError: if an image of the dataset is damaged.
        """
        return str(_macros().answer(answer, [self._source(result.item) for result in answer.images]))

    def written(self, captions: Sequence[tuple[str, float]]) -> str:
        """Returns captions with their log-probabilities."""
        return str(_macros().written(captions))

    def preview(self, key: str) -> str:
        """Returns an image of the dataset by its key.

        Raises:
            VsembError: if there is no such image, or it is damaged.
        """
        item = self._images.items[self._images.place_of(key)]
        return str(_macros().preview(item, self._source(item)))

    def _source(self, item: Item) -> str | None:
        return self.thumbnail(self._images.place_of(item.key))

    def _thumbnail(self, place: int) -> str | None:
        """An image of the index as a data URL; None where the dataset holds features alone."""
        split, row = self._images.places[place]
        return data_uri(thumbnail(split, row, _SIDE)) if split.has_images else None


def notes(lines: Sequence[str]) -> str:
    """Returns lines worth showing, each a box of its own."""
    return str(_macros().notes(lines))


def hint(line: str) -> str:
    """Returns what stands where there is no answer yet."""
    return str(_macros().hint(line))


@functools.cache
def _macros() -> Any:
    return page_template(__package__, "cards.html.jinja").module

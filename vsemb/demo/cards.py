"""Answers as HTML: cards with thumbnails, captions with scores, bars.

Thumbnails are made in memory and stand in the HTML itself, so that no file of the dataset is ever served.
Whatever comes from a dataset or a reader is escaped.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from html import escape

from vsemb.demo.answers import Answer, ComparedSentence
from vsemb.demo.demonstration import Demonstration
from vsemb.runs.pictures import data_uri, thumbnail
from vsemb.runs.searching import Result
from vsemb.search.source import Item

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
        cards = "".join(self._card(result) for result in answer.images)
        images = f'<div class="vsemb-cards">{cards}</div>'
        above = notes(answer.notes)
        if answer.sentences:
            return above + "".join(map(_bar, answer.sentences))
        if answer.written is not None:
            title = '<p class="vsemb-title">Captions written</p>'
            above += f'<div class="vsemb-written">{title}{self.written(answer.written)}</div>'
        if not answer.captions:
            return above + images
        captions = _lines((result.item.caption, f"{result.score:.3f}") for result in answer.captions)
        return (
            f'{above}<div class="vsemb-both"><div><p class="vsemb-title">Nearest captions</p>{captions}</div>'
            f'<div><p class="vsemb-title">Nearest images</p>{images}</div></div>'
        )

    def written(self, captions: Sequence[tuple[str, float]]) -> str:
        """Returns captions with their log-probabilities."""
        if not captions:
            return notes(["No caption was found."])
        return _lines((text, f"{log_prob:.2f}") for text, log_prob in captions)

    def preview(self, key: str) -> str:
        """Returns an image of the dataset by its key.

        Raises:
            VsembError: if there is no such image, or it is damaged.
        """
        item = self._images.items[self._images.place_of(key)]
        return f'<div class="vsemb-query">{self._picture(item)}<div>{_named(item)}</div></div>'

    def _card(self, result: Result) -> str:
        return (
            f"<figure>{self._picture(result.item)}<figcaption>"
            f'<div class="vsemb-score"><span>{result.rank}</span><span>{result.score:.3f}</span></div>'
            f"{_named(result.item)}</figcaption></figure>"
        )

    def _picture(self, item: Item) -> str:
        source, caption = self.thumbnail(self._images.place_of(item.key)), escape(item.caption)
        if source is None:
            return '<div class="vsemb-none"></div>'
        return f'<img src="{source}" alt="{caption}" title="{caption}">'

    def _thumbnail(self, place: int) -> str | None:
        """An image of the index as a data URL; None where the dataset holds features alone."""
        split, row = self._images.places[place]
        return data_uri(thumbnail(split, row, _SIDE)) if split.has_images else None


def _bar(sentence: ComparedSentence) -> str:
    return (
        f'<div class="vsemb-bar"><p><span>{escape(sentence.text)}</span><b>{sentence.score:.3f}</b></p>'
        f'<div><div style="width: {100 * sentence.share:.1f}%"></div></div></div>'
    )


def _lines(captions: Iterable[tuple[str, str]]) -> str:
    lines = "".join(f"<li><b>{number}</b>{_caption(text)}</li>" for text, number in captions)
    return f'<ol class="vsemb-lines">{lines}</ol>'


def _caption(text: str) -> str:
    return f'<div class="vsemb-caption">{escape(text)}</div>'


def _named(item: Item) -> str:
    return f'{_caption(item.caption)}<div class="vsemb-key">{escape(item.key)}</div>'


def notes(lines: Sequence[str]) -> str:
    """Returns lines worth showing, each a box of its own."""
    return "".join(f'<p class="vsemb-note" role="status">{escape(line)}</p>' for line in lines)


def hint(line: str) -> str:
    """Returns what stands where there is no answer yet."""
    return f'<p class="vsemb-hint">{escape(line)}</p>'

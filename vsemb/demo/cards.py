"""Answers as HTML: cards with thumbnails, captions with scores, bars.

Thumbnails are made in memory and stand in the HTML itself, so that no file of the dataset is ever served.
Whatever comes from a dataset or a reader is escaped.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from html import escape

from vsemb.demo.answers import Answer, Comparison
from vsemb.demo.images import ShownImages
from vsemb.runs.pictures import data_uri, thumbnail
from vsemb.runs.searching import Result

_SIDE = 256
_REMEMBERED = 1024
_NONE = "No caption was found."

CSS = """
.vsemb-cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 14px; }
.vsemb-cards figure, .vsemb-query { margin: 0; border: 1px solid var(--border-color-primary);
  border-radius: 8px; overflow: hidden; background: var(--block-background-fill); }
.vsemb-cards img, .vsemb-query img, .vsemb-none { display: block; width: 100%; aspect-ratio: 1; margin: 0;
  object-fit: contain; background: var(--background-fill-secondary); }
.vsemb-caption { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 9;
  overflow: hidden; }
.vsemb-caption, .vsemb-query div, .vsemb-bar span { overflow-wrap: anywhere; min-width: 0; }
.vsemb-cards figcaption { padding: 8px 10px 10px; font-size: 13px; line-height: 1.35; }
.vsemb-score { display: flex; justify-content: space-between; font-variant-numeric: tabular-nums;
  font-size: 12px; color: var(--body-text-color-subdued); }
.vsemb-key { color: var(--body-text-color-subdued); font-size: 11px; overflow-wrap: anywhere; }
.vsemb-note { margin: 0 0 12px; padding: 8px 12px; border-left: 3px solid #c98a1b; font-size: 14px;
  background: var(--background-fill-secondary); overflow-wrap: anywhere; }
.vsemb-hint, .vsemb-title { color: var(--body-text-color-subdued); font-size: 14px; }
.vsemb-title { margin: 0 0 8px; font-weight: 600; }
.vsemb-written { margin: 0 0 24px; }
.vsemb-both { display: grid; grid-template-columns: minmax(240px, 1fr) 2fr; gap: 28px; }
@media (max-width: 800px) { .vsemb-both { grid-template-columns: 1fr; } }
.vsemb-query { display: flex; align-items: center; gap: 12px; font-size: 13px; }
.vsemb-query img, .vsemb-query .vsemb-none { width: 110px; }
.vsemb-lines { margin: 0; padding: 0; list-style: none; font-size: 14px; }
.vsemb-lines li { display: flex; gap: 12px; padding: 5px 0; margin: 0;
  border-bottom: 1px solid var(--border-color-primary); }
.vsemb-lines b { font-weight: 400; font-variant-numeric: tabular-nums; min-width: 4.5em;
  color: var(--body-text-color-subdued); }
.vsemb-bar { margin: 0 0 12px; font-size: 14px; }
.vsemb-bar p { display: flex; justify-content: space-between; gap: 12px; margin: 0 0 3px; }
.vsemb-bar b { font-weight: 400; font-variant-numeric: tabular-nums; }
.vsemb-bar div { height: 8px; border-radius: 4px; background: var(--background-fill-secondary); }
.vsemb-bar div div { background: #3b6ea5; min-width: 3px; }
"""


class Cards:
    """Renders the answers of a demonstration.

    Args:
        images: those that are shown.

    Example:

        Cards(demo).answer(demo.by_text("a dog", 12))
    """

    def __init__(self, images: ShownImages) -> None:
        self._images = images
        # Of this object and not of the class, so that nothing outlives it.
        self.thumbnail = functools.lru_cache(_REMEMBERED)(self._thumbnail)

    def answer(self, answer: Answer) -> str:
        """Returns the notes, the captions and the images of an answer.

        Raises:
            DataError: if an image of the dataset is damaged.
        """
        cards = "".join(self._card(result) for result in answer.images)
        images = f'<div class="vsemb-cards">{cards}</div>'
        above = notes(answer.notes)
        if answer.written is not None:
            title = '<p class="vsemb-title">Captions written</p>'
            above += f'<div class="vsemb-written">{title}{self.written(answer.written)}</div>'
        if not answer.captions:
            return above + images
        lines = "".join(
            f"<li><b>{result.score:.3f}</b>{_caption(result.item.caption)}</li>" for result in answer.captions
        )
        return (
            f'{above}<div class="vsemb-both"><div><p class="vsemb-title">Nearest captions</p>'
            f'<ol class="vsemb-lines">{lines}</ol></div><div><p class="vsemb-title">Nearest images</p>'
            f"{images}</div></div>"
        )

    def comparison(self, comparison: Comparison) -> str:
        """Returns the sentences of a comparison with their bars."""
        bars = "".join(
            f'<div class="vsemb-bar"><p><span>{escape(each.text)}</span><b>{each.score:.3f}</b></p>'
            f'<div><div style="width: {100 * each.share:.1f}%"></div></div></div>'
            for each in comparison.sentences
        )
        return notes(comparison.notes) + bars

    def written(self, captions: Sequence[tuple[str, float]]) -> str:
        """Returns captions with their log-probabilities."""
        if not captions:
            return notes([_NONE])
        lines = "".join(f"<li><b>{log_prob:.2f}</b>{_caption(text)}</li>" for text, log_prob in captions)
        return f'<ol class="vsemb-lines">{lines}</ol>'

    def preview(self, key: str) -> str:
        """Returns an image of the dataset by its key.

        Raises:
            VsembError: if there is no such image, or it is damaged.
        """
        item = self._images.items[self._images.place_of(key)]
        return (
            f'<div class="vsemb-query">{self._picture(self._images.place_of(key), item.caption)}'
            f'<div>{_caption(item.caption)}<div class="vsemb-key">{escape(item.key)}</div></div></div>'
        )

    def _card(self, result: Result) -> str:
        item = result.item
        return (
            f"<figure>{self._picture(self._images.place_of(item.key), item.caption)}<figcaption>"
            f'<div class="vsemb-score"><span>{result.rank}</span><span>{result.score:.3f}</span></div>'
            f'{_caption(item.caption)}<div class="vsemb-key">{escape(item.key)}</div></figcaption></figure>'
        )

    def _picture(self, place: int, caption: str) -> str:
        source = self.thumbnail(place)
        if source is None:
            return '<div class="vsemb-none"></div>'
        return f'<img src="{source}" alt="{escape(caption)}" title="{escape(caption)}">'

    def _thumbnail(self, place: int) -> str | None:
        """An image of the index as a data URL; None where the dataset holds features alone."""
        split, row = self._images.place(place)
        if not split.has_images:
            return None
        return data_uri(thumbnail(split, row, _SIDE))


def _caption(text: str) -> str:
    return f'<div class="vsemb-caption">{escape(text)}</div>'


def notes(lines: Sequence[str]) -> str:
    """Returns lines worth showing, each a box of its own."""
    return "".join(f'<p class="vsemb-note" role="status">{escape(line)}</p>' for line in lines)


def hint(line: str) -> str:
    """Returns what stands where there is no answer yet."""
    return f'<p class="vsemb-hint">{escape(line)}</p>'

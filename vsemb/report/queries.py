"""Queries of a split in both directions with their results, as the data that the page's script shows.

A query with unknown words is never among the failures: its rank says more about the vocabulary than about the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vsemb.drawing.pictures import decimals, thumbnail, webp_uri
from vsemb.evaluation.retrieval import retrieval_ranks
from vsemb.report.space import Space
from vsemb.text.coverage import Coverage

#: What is known of a query's words, from best to worst; the page's script names the places.
WHOLE, COMPOSED, PARTLY, NOTHING = range(4)
#: Number of results per query.
SHOWN = 5
#: Maximum number of images of the page, and of sentences that are queries.
IMAGES, SENTENCES = 1000, 5000
# Longer side of the pictures in pixels: the first that keeps all pictures of the page below this number of characters.
_SIDES, _CHARACTERS = (320, 240, 160, 128, 112, 96), 3_300_000
# Number of pictures that are encoded to choose the side.
_SAMPLE = 50
_BLOCK = 256


def known_words(coverage: Coverage) -> np.ndarray:
    """Return what is known of the words of each text: (texts,) int64, from `WHOLE` to `NOTHING`.

    Example:

    >>> lengths, known, whole = np.array([3, 3, 3, 3, 0]), np.array([3, 3, 1, 0, 0]), np.array([3, 2, 1, 0, 0])
    >>> known_words(Coverage(lengths, known, whole)).tolist()
    [0, 1, 2, 3, 3]
    """
    kinds = np.where(coverage.whole < coverage.lengths, COMPOSED, WHOLE)
    kinds[coverage.known < coverage.lengths] = PARTLY
    kinds[coverage.known == 0] = NOTHING
    return kinds


@dataclass(frozen=True)
class Query:
    """A query with its results.

    Attributes:
        row: row of the text or image.
        rank: rank of the best right result, from 1; ties count against the run.
        found: rows and scores of the best results, and of the best right one if it is not among them.
    """

    row: int
    rank: int
    found: list[tuple[int, str]]


class Gallery:
    """Queries of a split in both directions.

    The right results of an image are its captions, and the right result of a caption is its image. For a run trained on
    class names, they are the name of the image's class, and the images of the class.

    Of a split with more than `IMAGES` images, the queries that failed most come first, then random ones, as long as
    their results have no more images.

    Args:
        space: the split.
        shown: number of failures per direction that the page has in any case.
        seed: random seed.

    Attributes:
        space: the split.
        text_list: the texts, or the names of classes.
        text_known: (texts,) int64, see `known_words`.
        image_known: (images,) int64, the best of each image's texts.
        by_text: queries by text.
        by_image: queries by image.
        images: rows of the images of the page, ascending.
    """

    def __init__(self, space: Space, shown: int, seed: int) -> None:
        self.space = space
        self.text_list, self._embedded = space.text_list, space.texts
        self._image_groups, self._text_groups = np.arange(len(space.part)), space.text_rows
        self.text_known = known_words(space.coverage)
        self.image_known = np.full(len(space.part), NOTHING)
        np.minimum.at(self.image_known, space.text_rows, self.text_known)
        if space.by_class:
            names, self._image_groups = space.part.class_ids()
            self.text_list = names
            self._embedded = space.texts[[space.text_list.index(name) for name in names]]
            self._text_groups = np.arange(len(names))
            self.text_known, self.image_known = np.zeros(len(names), int), np.zeros(len(space.part), int)
        image_ranks, text_ranks = self.ranks
        generator = np.random.default_rng(seed)
        texts = _failures_first(text_ranks, self.text_known, shown, generator)
        images = _failures_first(image_ranks, self.image_known, shown, generator)
        everything = len(space.part) <= IMAGES
        chosen = set(images if everything else images[:shown])
        self.by_text: list[Query] = []
        for query in self._of_texts(texts[:SENTENCES]):
            new = {row for row, _ in query.found} - chosen
            if len(chosen) + len(new) > IMAGES:
                break
            chosen |= new
            self.by_text.append(query)
        self.by_image = list(self._of_images([row for row in images if row in chosen]))
        self.images = sorted(chosen)

    @cached_property
    def ranks(self) -> tuple[np.ndarray, np.ndarray]:
        """Ranks from 0 of all images and of all texts as queries: (images,) and (texts,) int64."""
        space = self.space
        if not space.by_class:
            ids = space.part.ids, space.part.ids[space.text_rows]
            return retrieval_ranks(space.images, space.texts, *ids, space.run.model.similarity)
        scores = space.scores(space.images, self._embedded)
        right = self._image_groups[:, None] == self._text_groups
        return _ranks(scores, right), _ranks(scores.T, right.T)

    def texts_of(self, image: int) -> list[int]:
        """Return the rows of the texts that are right for an image."""
        return np.flatnonzero(self._text_groups == self._image_groups[image]).tolist()

    def _of_texts(self, rows: Sequence[int]) -> Iterator[Query]:
        for block in _blocks(rows):
            scores = self.space.scores(self.space.images, self._embedded[block]).T  # (queries, images)
            for row, line in zip(block, scores, strict=True):
                yield _query(row, int(self.ranks[1][row]), line, self._image_groups == self._text_groups[row])

    def _of_images(self, rows: Sequence[int]) -> Iterator[Query]:
        for block in _blocks(rows):
            scores = self.space.scores(self.space.images[block], self._embedded)  # (queries, texts)
            for row, line in zip(block, scores, strict=True):
                yield _query(row, int(self.ranks[0][row]), line, self._text_groups == self._image_groups[row])

    def data(self) -> str:
        """Return the queries, texts and pictures as JSON for an element of a page.

        Images and texts have numbers: their places in `keys` and in `texts`. A query is a list: number of the text or
        image, rank, what is known of its words, numbers of the results, and their scores.
        """
        own = [self.texts_of(row) for row in self.images]
        found = [row for query in self.by_image for row, _ in query.found]
        texts = sorted({*found, *(query.row for query in self.by_text), *(row for rows in own for row in rows)})
        image_numbers = {row: number for number, row in enumerate(self.images)}
        text_numbers = {row: number for number, row in enumerate(texts)}
        unknown = [row for row in texts if self.text_known[row] >= PARTLY]
        part = self.space.part
        values = {
            "keys": [part.keys[row] for row in self.images],
            "classes": [part.class_names[row] or "" for row in self.images],
            "own": [[text_numbers[row] for row in rows] for rows in own],
            "texts": [self.text_list[row] for row in texts],
            "unknown": dict(zip((text_numbers[row] for row in unknown), self.space.unknown_in(unknown), strict=True)),
            "byText": [_row(query, self.text_known, text_numbers, image_numbers) for query in self.by_text],
            "byImage": [_row(query, self.image_known, image_numbers, text_numbers) for query in self.by_image],
            "pictures": self._pictures(),
        }
        # In the element `script`, only "<" could end the element.
        return json.dumps(values, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")

    def _pictures(self) -> list[str]:
        """Return the pictures as `data:` addresses; empty if the dataset has no image bytes."""
        part, rows = self.space.part, self.images
        if not part.has_images:
            return []
        sample = [rows[place] for place in np.linspace(0, len(rows) - 1, min(len(rows), _SAMPLE)).astype(int)]
        for side in _SIDES:
            characters = sum(len(webp_uri(thumbnail(part, row, side))) for row in sample) * len(rows) / len(sample)
            if characters <= _CHARACTERS:
                break
        return [webp_uri(thumbnail(part, row, side)) for row in rows]


def _failures_first(ranks: np.ndarray, known: np.ndarray, count: int, generator: np.random.Generator) -> list[int]:
    """Return all rows in random order, after the `count` rows of known words with the largest ranks."""
    failures = np.argsort(-(ranks * (known < PARTLY)), kind="stable")[:count]
    return list(dict.fromkeys([*failures.tolist(), *generator.permutation(len(ranks)).tolist()]))


def _blocks(rows: Sequence[int]) -> Iterator[Sequence[int]]:
    for first in range(0, len(rows), _BLOCK):
        yield rows[first : first + _BLOCK]


def _ranks(scores: np.ndarray, right: np.ndarray) -> np.ndarray:
    best = np.where(right, scores, -np.inf).max(axis=1, keepdims=True)
    return np.sum((scores >= best) & ~right, axis=1)


def _query(row: int, rank: int, scores: np.ndarray, right: np.ndarray) -> Query:
    # Ties count against the run, so wrong results come first among equal scores.
    order = np.lexsort((right, -scores))
    best = int(np.argmax(right[order]))
    places = [*range(min(SHOWN, len(order))), *([best] if best >= SHOWN else [])]
    rows = order[places].tolist()
    digits = decimals(scores[rows])
    return Query(row, rank + 1, [(found, f"{scores[found]:.{digits}f}") for found in rows])


def _row(query: Query, known: np.ndarray, asked: dict[int, int], found: dict[int, int]) -> list[Any]:
    results = [found[row] for row, _ in query.found]
    return [asked[query.row], query.rank, int(known[query.row]), results, [score for _, score in query.found]]

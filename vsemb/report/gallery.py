"""Queries of a split and what the run finds for them, marked right and wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vsemb.report.space import Picture, Space

#: Results shown of a query.
SHOWN = 5


@dataclass(frozen=True)
class Found:
    """One result: an image or a text.

    Attributes:
        rank: from 1.
        right: whether it belongs to the query.
        picture: the image; None for a text.
        text: the text; None for an image.
    """

    rank: int
    right: bool
    picture: Picture | None = None
    text: str | None = None


@dataclass(frozen=True)
class Query:
    """A query, a text or an image.

    Attributes:
        rank: of the best right result, from 1; equal scores count against the run.
        found: the best results.
        missed: the best right result, where it is not among them.
        picture: the image asked for texts.
        text: the text asked for images.
    """

    rank: int
    found: list[Found]
    missed: Found | None
    picture: Picture | None = None
    text: str | None = None


class Gallery:
    """Queries of a split in both directions.

    What belongs together is an image and its own captions. For a run that reads the names of classes it is
    an image and the name of its class, and each name is one text.

    Args:
        space: the split.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self._image_groups, self._text_groups = np.arange(len(space.part)), space.text_rows
        self._texts, self._text_list = space.texts, space.text_list
        if space.by_class:
            names, self._image_groups = space.part.class_ids()
            first = [space.text_list.index(name) for name in names]
            self._texts, self._text_list = space.texts[first], names
            self._text_groups = np.arange(len(names))

    def of_texts(self, rows: np.ndarray) -> list[Query]:
        """Returns what texts find, by their rows."""
        scores = self.space.scores(self.space.images, self._texts[rows]).T  # (queries, images)
        return [
            Query(*self._results(line, self._image_groups == self._text_groups[row], True), text=self._text_list[row])
            for row, line in zip(rows.tolist(), scores, strict=True)
        ]

    def of_images(self, rows: np.ndarray) -> list[Query]:
        """Returns what images find, by their rows."""
        scores = self.space.scores(self.space.images[rows], self._texts)  # (queries, texts)
        return [
            Query(*self._results(line, self._text_groups == self._image_groups[row], False), self.space.picture(row))
            for row, line in zip(rows.tolist(), scores, strict=True)
        ]

    def draw(self, count: int, seed: int) -> tuple[list[Query], list[Query]]:
        """Returns `count` queries by texts and as many by images, drawn at random, fewer where there are."""
        generator = np.random.default_rng(seed)
        texts = generator.permutation(len(self._text_list))[:count]
        images = generator.permutation(len(self._image_groups))[:count]
        return self.of_texts(texts), self.of_images(images)

    def worst(self, image_ranks: np.ndarray, text_ranks: np.ndarray, count: int) -> tuple[list[Query], list[Query]]:
        """Returns the queries with the largest ranks, by texts and by images, none that found its own first.

        Args:
            image_ranks: (images,) from `vsemb.evaluation.retrieval.retrieval_ranks`.
            text_ranks: (texts,) the same.
            count: of each kind.
        """
        texts, images = (
            np.argsort(-ranks, kind="stable")[: min(count, np.count_nonzero(ranks))]
            for ranks in (text_ranks, image_ranks)
        )
        return self.of_texts(texts), self.of_images(images)

    def _results(self, scores: np.ndarray, right: np.ndarray, as_images: bool) -> tuple[int, list[Found], Found | None]:
        # Among equal scores the wrong ones come first, as they are counted.
        order = np.lexsort((right, -scores))
        best = int(np.argmax(right[order]))
        places = [*range(min(SHOWN, len(order))), *([best] if best >= SHOWN else [])]
        found = []
        for place in places:
            row = int(order[place])
            shown = {"picture": self.space.picture(row)} if as_images else {"text": self._text_list[row]}
            found.append(Found(place + 1, bool(right[row]), **shown))
        return best + 1, found[:SHOWN], found[SHOWN] if best >= SHOWN else None

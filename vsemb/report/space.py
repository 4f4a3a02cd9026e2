"""Embeddings of a split, and queries with their results, each marked right or wrong."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from vsemb.data.store import Split, StoredDataset
from vsemb.drawing.pictures import data_uri, decimals, thumbnail
from vsemb.evaluation import Embedder
from vsemb.runs.run import Run
from vsemb.text.coverage import unknown_words
from vsemb.text.normalize import words_of

#: Longer side of a thumbnail in pixels.
SIDE = 160
#: Number of results per query.
SHOWN = 5


@dataclass(frozen=True)
class Picture:
    """An image of the page.

    Attributes:
        row: its row in the split.
        key: its name in the dataset.
        alt: text alternative.
        uri: `data:` address; None if the dataset has no image bytes.
        width: width in pixels.
        height: height in pixels.
    """

    row: int
    key: str
    alt: str
    uri: str | None
    width: int
    height: int


def picture_of(part: Split, row: int) -> Picture:
    """Return an image of a split as a thumbnail; its text alternative is its longest caption.

    Args:
        part: the split.
        row: the image's row.

    Raises:
        DataError: if the image is damaged.
    """
    key = part.keys[row]
    alt = max(part.captions_of(row), key=len)
    if not part.has_images:
        return Picture(row, key, alt, None, SIDE, SIDE)
    small = thumbnail(part, row, SIDE)
    return Picture(row, key, alt, data_uri(small), *small.size)


class Space:
    """A split embedded by a run.

    Args:
        run: the run.
        dataset: the dataset.
        split: name of the split.

    Attributes:
        run: the run.
        part: the split.
        images: (n, dim) float32 embeddings.
        text_list: the m texts of the split.
        text_rows: (m,) int64, row of the image that each text describes.
        texts: (m, dim) float32 embeddings.
        coverage: known words of the texts.
        picture: row -> thumbnail, see `picture_of`.

    Raises:
        VsembError: if run and dataset do not match, or the split is missing.
    """

    def __init__(self, run: Run, dataset: StoredDataset, split: str) -> None:
        self.run = run
        self.part = dataset.split(split)
        self._embedder = Embedder(run.model)
        self._read, self.text_rows = run.texts_of(self.part)
        self.text_list = run.shown_texts_of(self.part)
        self.images = self._embedder.images(run.images_of(dataset, self.part), len(self.part))
        ids, offsets = run.encode(self._read)
        self.texts = self._embedder.texts(ids, offsets)
        self.coverage = run.coverage(self.part, ids, offsets)
        # A cache per object, so that it is freed with the object.
        self.picture = functools.cache(functools.partial(picture_of, self.part))

    @property
    def by_class(self) -> bool:
        """Whether the texts are names of classes, shared by all images of a class."""
        return not self.run.recipe.text.tokenizer.per_caption

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts: (len(texts), dim) float32."""
        return self._embedder.texts(*self.run.encode(texts))

    def unknown_in(self, row: int) -> tuple[str, ...]:
        """Return the words of a text outside the run's vocabulary; `row` is its row."""
        if self.coverage.share[row] == 1:
            return ()
        return tuple(unknown_words(self.run.tokenizer, self.run.reader([self._read[row]]))[0])

    def scores(self, images: np.ndarray, texts: np.ndarray) -> np.ndarray:
        """Score images against texts: (images, texts) float32."""
        similarity = self.run.model.similarity
        pair = ops.convert_to_tensor(images), ops.convert_to_tensor(texts)
        return ops.convert_to_numpy(similarity.scores(*pair))

    @functools.cached_property
    def said(self) -> list[Counter[str]]:
        """For each image: word -> number of its captions that contain it."""
        said: list[Counter[str]] = [Counter() for _ in range(len(self.part))]
        for row, words in zip(self.part.caption_rows, words_of(self.part.captions), strict=True):
            said[row].update(set(words))
        return said

    def knows(self, word: str) -> bool:
        """Return whether a word is in the run's vocabulary."""
        return self.run.reader.knows(word)


@dataclass(frozen=True)
class Found:
    """One result: an image or a text.

    Attributes:
        rank: from 1.
        right: whether it belongs to the query.
        score: the similarity; results of a query have the same number of decimals.
        picture: the image; None for a text.
        text: the text; None for an image.
        unknown: words of the text outside the run's vocabulary.
    """

    rank: int
    right: bool
    score: str
    picture: Picture | None = None
    text: str | None = None
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Query:
    """A query with its results.

    Attributes:
        rank: rank of the best right result, from 1; ties count against the run.
        found: the best results.
        missed: the best right result, if it is not among `found`.
        picture: the query, if it is an image.
        text: the query, if it is a text.
        unknown: words of the text outside the run's vocabulary.
    """

    rank: int
    found: list[Found]
    missed: Found | None
    picture: Picture | None = None
    text: str | None = None
    unknown: tuple[str, ...] = ()


class Failures(NamedTuple):
    """Queries with large ranks.

    Attributes:
        texts: texts whose words are all known.
        images: images with such a text.
        unknown: texts with unknown words, whose ranks say more about the vocabulary than about the model.
        wordless: texts without words.
    """

    texts: list[Query]
    images: list[Query]
    unknown: list[Query]
    wordless: list[Query]


class Gallery:
    """Queries of a split in both directions.

    The right results of an image are its captions, and the right result of a caption is its image. For a run trained on
    class names, they are the name of the image's class, and the images of the class.

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
        """Search images by texts, given as rows."""
        scores = self.space.scores(self.space.images, self._texts[rows]).T  # (queries, images)
        queries = []
        for row, line in zip(rows.tolist(), scores, strict=True):
            results = self._results(line, self._image_groups == self._text_groups[row], True)
            queries.append(Query(*results, text=self._text_list[row], unknown=self._unknown_in(row)))
        return queries

    def of_images(self, rows: np.ndarray) -> list[Query]:
        """Search texts by images, given as rows."""
        scores = self.space.scores(self.space.images[rows], self._texts)  # (queries, texts)
        return [
            Query(*self._results(line, self._text_groups == self._image_groups[row], False), self.space.picture(row))
            for row, line in zip(rows.tolist(), scores, strict=True)
        ]

    def draw(self, count: int, seed: int) -> tuple[list[Query], list[Query]]:
        """Return up to `count` random queries by text and up to `count` by image."""
        generator = np.random.default_rng(seed)
        texts = generator.permutation(len(self._text_list))[:count]
        images = generator.permutation(len(self._image_groups))[:count]
        return self.of_texts(texts), self.of_images(images)

    def worst(self, image_ranks: np.ndarray, text_ranks: np.ndarray, count: int) -> Failures:
        """Return the queries with the largest ranks, without those at rank 1.

        Args:
            image_ranks: (images,) int64 ranks from 0, from `vsemb.evaluation.retrieval.retrieval_ranks`.
            text_ranks: (texts,) int64, likewise for texts.
            count: maximum number of queries of each kind.
        """
        known, wordless = self.space.coverage.share == 1, self.space.coverage.lengths == 0
        shown = np.isin(np.arange(len(image_ranks)), self.space.text_rows[known])
        unknown = ~known & ~wordless
        kinds = text_ranks * known, image_ranks * shown, text_ranks * unknown, text_ranks * wordless
        texts, images, *others = (
            np.argsort(-ranks, kind="stable")[: min(count, np.count_nonzero(ranks))] for ranks in kinds
        )
        return Failures(self.of_texts(texts), self.of_images(images), *map(self.of_texts, others))

    def _unknown_in(self, row: int) -> tuple[str, ...]:
        return () if self.space.by_class else self.space.unknown_in(row)

    def _results(self, scores: np.ndarray, right: np.ndarray, as_images: bool) -> tuple[int, list[Found], Found | None]:
        # Ties count against the run, so wrong results come first among equal scores.
        order = np.lexsort((right, -scores))
        best = int(np.argmax(right[order]))
        places = [*range(min(SHOWN, len(order))), *([best] if best >= SHOWN else [])]
        digits = decimals(scores[order[places]])
        hits = []
        for place in places:
            row = int(order[place])
            shown: dict[str, Any]
            if as_images:
                shown = {"picture": self.space.picture(row)}
            else:
                shown = {"text": self._text_list[row], "unknown": self._unknown_in(row)}
            hits.append(Found(place + 1, bool(right[row]), f"{scores[row]:.{digits}f}", **shown))
        return best + 1, hits[:SHOWN], hits[SHOWN] if best >= SHOWN else None

"""Embeddings of a split, its images as thumbnails, and results that are marked right or wrong."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from keras import ops

from vsemb.data.store import Split, StoredDataset
from vsemb.drawing.pictures import data_uri, thumbnail
from vsemb.evaluation import Embedder
from vsemb.runs.run import Run
from vsemb.text.coverage import unknown_words_of_each
from vsemb.text.normalize import words_of

#: Longer side of a thumbnail in pixels.
SIDE = 160


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

    def unknown_in(self, rows: Sequence[int]) -> list[list[str]]:
        """Return the words outside the run's vocabulary of some texts, given as rows."""
        if not rows:
            return []
        return unknown_words_of_each(self.run.tokenizer, self.run.reader([self._read[row] for row in rows]))

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
    """One result of arithmetic.

    Attributes:
        rank: from 1.
        right: whether it is as wanted.
        score: the similarity; results of a query have the same number of decimals.
        picture: the image.
    """

    rank: int
    right: bool
    score: str
    picture: Picture

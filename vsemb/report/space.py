"""A split embedded by a run, with what the sections of the report ask of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from keras import ops

from vsemb.data.store import Dataset, Split
from vsemb.evaluation import Embedder
from vsemb.runs.pictures import data_uri, thumbnail
from vsemb.runs.run import Run
from vsemb.text.normalize import words_of

#: Longer side of a thumbnail in pixels.
SIDE = 112


@dataclass(frozen=True)
class Picture:
    """An image as the page shows it.

    Attributes:
        row: its row in the split.
        key: its name in the dataset.
        alt: what it shows, in words.
        uri: a `data:` address; None where the dataset has no image bytes.
        width: in pixels.
        height: in pixels.
    """

    row: int
    key: str
    alt: str
    uri: str | None
    width: int
    height: int


def picture_of(part: Split, row: int) -> Picture:
    """Returns an image of a split as pages show it.

    Raises:
        DataError: if it is damaged.
    """
    key = part.keys[row]
    # The longest tells most.
    alt = max(part.entries[row]["captions"], key=len)
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
        text_list: m texts, all that the run reads of the split.
        text_rows: (m,) int64, the row of the image that each describes.
        texts: (m, dim) float32 embeddings.

    Raises:
        VsembError: if run and dataset do not fit, or the split is not there.
    """

    def __init__(self, run: Run, dataset: Dataset, split: str) -> None:
        self.run = run
        self.part = dataset.split(split)
        self._embedder = Embedder(run.model)
        texts, self.text_rows = run.texts_of(self.part)
        self.text_list = run.shown_texts_of(self.part)
        self.images = self._embedder.images(run.images_of(dataset, self.part), len(self.part))
        self.texts = self.embed(texts)
        self._pictures: dict[int, Picture] = {}

    @property
    def by_class(self) -> bool:
        """Whether images of a class share their text, its name, so that no image has one of its own."""
        return not self.run.recipe.text.tokenizer.per_caption

    def embed(self, texts: list[str]) -> np.ndarray:
        """Embeds texts: (len(texts), dim) float32."""
        return self._embedder.texts(*self.run.encode(texts))

    def scores(self, images: np.ndarray, texts: np.ndarray) -> np.ndarray:
        """Scores images against texts: (images, texts) float32."""
        similarity = self.run.model.similarity
        pair = ops.convert_to_tensor(images), ops.convert_to_tensor(texts)
        return ops.convert_to_numpy(similarity.scores(*pair))

    def picture(self, row: int) -> Picture:
        """Returns an image of the split as the page shows it."""
        if row not in self._pictures:
            self._pictures[row] = picture_of(self.part, row)
        return self._pictures[row]

    @cached_property
    def said(self) -> list[Counter[str]]:
        """For each image its words, each with the number of the captions that say it."""
        said: list[Counter[str]] = [Counter() for _ in range(len(self.part))]
        for row, words in zip(self.part.caption_rows, words_of(self.part.captions), strict=True):
            said[row].update(set(words))
        return said

    def knows(self, word: str) -> bool:
        """Whether the run can embed a word by itself."""
        return self.run.reader.knows(word)

"""A run whose images are sets of regions, with vectors chosen by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import tensorflow as tf

from vsemb.errors import DataError
from vsemb.similarities import Similarity
from vsemb.systems.regions.image_tower import Regions as Tower
from vsemb.systems.regions.similarities import MaxSim
from vsemb.text import Vocabulary, WordTokenizer


class Regions:
    """A cache of regions of images whose ids are the places of their rows."""

    def __init__(self, vectors: np.ndarray, boxes: np.ndarray) -> None:
        self._vectors, self._boxes = vectors.astype(np.float32), boxes.astype(np.float32)
        self.count = boxes.shape[1]
        self.asked: list[int] = []

    def rows(self, ids: np.ndarray, max_regions: int | None = None) -> np.ndarray:
        self.asked.append(len(ids))
        return self._vectors[ids][:, :max_regions]

    def boxes(self, ids: np.ndarray) -> np.ndarray:
        return self._boxes[ids]


class SetRun:
    """What commands on alignments ask of a `Run`; embeddings of regions are their features."""

    sees_images = multi_vector = True
    path = Path("runs/by-hand")

    def __init__(self, words: dict[str, list[float]], store: Regions | None, similarity: Similarity | None = None):
        self.vocabulary = Vocabulary(list(words))
        self.tokenizer = WordTokenizer(self.vocabulary, 8)
        self.recipe = SimpleNamespace(name="dvsa", similarity=similarity or MaxSim(), image=Tower())
        self.info: dict[str, object] = {}
        dim = len(next(iter(words.values())))
        self._table = tf.constant([[0.0] * dim, [0.0] * dim, *words.values()], tf.float32)
        self._store = store
        self.model = SimpleNamespace(
            similarity=self.recipe.similarity,
            encode_images=lambda images: images,
            encode_texts=lambda ids: tf.gather(self._table, ids),
        )

    def encoders(self, images: bool = True) -> Encoders:
        return Encoders(self)

    def reader(self, raw: list[str]) -> list[str]:
        return [text.encode(errors="replace").decode() for text in raw]

    def encode(self, raw: list[str]) -> tuple[np.ndarray, np.ndarray]:
        return self.tokenizer.encode(self.reader(raw))

    def texts_of(self, split) -> tuple[list[str], np.ndarray]:
        return split.captions, split.caption_rows

    def features_of(self, dataset) -> Regions:
        if self._store is None:
            raise DataError(f"No regions at {dataset.path}; make them with: vsemb regions {dataset.path}")
        return self._store


class Encoders:
    """The encoders of a `SetRun`; `align` answers as told and keeps what it was asked."""

    def __init__(self, run: SetRun, answer: dict[str, np.ndarray] | None = None) -> None:
        self._run, self._answer = run, answer
        self.asked: list[np.ndarray] = []
        self.functions = {"align": None if answer is None else self.align}

    def encode_text(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"embedding": self._run.model.encode_texts(self._run.tokenizer(text))}

    def align(self, *inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        assert self._answer is not None
        self.asked = [values.numpy() for values in inputs]
        return {name: tf.constant(values[None]) for name, values in self._answer.items()}


class Images:
    """A dataset of splits with images of 20 x 10 pixels, ids counted through."""

    path = Path("data/by-hand")

    def __init__(self, **splits: list[list[str]]) -> None:
        self.splits = tuple(splits)
        self.manifest = {"splits": {name: {"images": len(texts)} for name, texts in splits.items()}}
        self._splits = {}
        first = 0
        for name, captions in splits.items():
            ids = np.arange(first, first + len(captions))
            first += len(captions)
            self._splits[name] = _Split(name, ids, captions)

    def split(self, name: str) -> _Split:
        return self._splits[name]


class _Split:
    def __init__(self, name: str, ids: np.ndarray, captions: list[list[str]]) -> None:
        self.name, self.ids = name, ids
        self.keys = [f"{number}.png" for number in ids]
        self.sizes = np.array([[20, 10]] * len(ids))
        self.captions = [text for texts in captions for text in texts]
        self.caption_rows = np.repeat(np.arange(len(ids)), [len(texts) for texts in captions])

    def __len__(self) -> int:
        return len(self.ids)

    def read_image(self, row: int) -> bytes:
        pixels = np.zeros((10, 20, 3), np.uint8)
        # The left half is of the image's own grey.
        pixels[:, :10] = 10 * (1 + self.ids[row])
        return tf.io.encode_png(pixels).numpy()

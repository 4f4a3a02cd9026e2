"""A stand-in for a run on regions that knows what the words of scenes mean; used by the tests of pointing."""

from __future__ import annotations

import types

import numpy as np
from keras import ops

from vsemb.data.store import Split, StoredDataset
from vsemb.systems.regions.image_tower import Regions
from vsemb.systems.regions.similarities import MaxSim
from vsemb.text import Vocabulary, WordTokenizer


class KnowingStore:
    """Regions of scenes: the whole image, objects a little off, halves of objects, and padding.

    The vector of a region has an entry for every word: whether a caption calls the object so, and noise.
    """

    count = 12

    def __init__(self, dataset: StoredDataset, words: list[str], noise: float) -> None:
        self.dim = len(words) + 1
        self._boxes, self._rows = {}, {}
        place = {word: number for number, word in enumerate(words, 1)}
        for split in map(dataset.split, dataset.splits):
            for entry in split.index.entries():
                draw = np.random.default_rng(entry["id"])
                objects = [np.array(item["box"], float) for item in entry["objects"]]
                off = [box + draw.uniform(-0.05, 0.05, 4) * box[[2, 3, 2, 3]] for box in objects]
                halves = [box * [1, 1, 0.4, 1] for box in objects]
                side = np.array([entry["width"], entry["height"]] * 2)
                boxes = np.stack([np.array([0, 0, *side[:2]]), *off, *halves]) / side
                rows = np.zeros((len(boxes), self.dim))
                for text, pairs in zip(entry["captions"], entry["alignments"], strict=True):
                    for word, item in pairs:
                        rows[1 + item, place[text.split()[word]]] = 1
                rows += noise * draw.uniform(size=rows.shape)
                padding = [(0, self.count - len(boxes)), (0, 0)]
                self._boxes[entry["id"]] = np.pad(boxes, padding).astype(np.float32)
                self._rows[entry["id"]] = np.pad(rows, padding).astype(np.float32)

    def boxes(self, ids: np.ndarray) -> np.ndarray:
        return np.stack([self._boxes[int(number)] for number in ids])

    def rows(self, ids: np.ndarray) -> np.ndarray:
        return np.stack([self._rows[int(number)] for number in ids])


class KnowingRun:
    """Stands in for a trained run: a word's vector says which word it is, a region's which words fit."""

    sees_images = multi_vector = True
    path, label, kept = "runs/x", "x", ()
    recipe = types.SimpleNamespace(name="dvsa", image=Regions())

    def __init__(self, dataset: StoredDataset, *, noise: float = 0.9, max_length: int = 64) -> None:
        captions = [text for name in dataset.splits for text in dataset.split(name).captions]
        words = sorted({word for text in captions for word in text.lower().split()})
        self.tokenizer = WordTokenizer(Vocabulary(words), max_length)
        table = ops.convert_to_tensor(np.eye(len(words) + 2, dtype=np.float32)[:, 1:])  # Padding is zeros.
        self.model = types.SimpleNamespace(
            encode_images=lambda images: ops.cast(images, "float32"),
            encode_texts=lambda ids: ops.take(table, ids, axis=0),
            similarity=MaxSim(),
        )
        self.store = KnowingStore(dataset, words, noise)

    def features_of(self, dataset: StoredDataset) -> KnowingStore:
        return self.store

    def texts_of(self, split: Split) -> tuple[list[str], np.ndarray]:
        return split.captions, split.caption_rows

    def encode(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        return self.tokenizer.encode(texts)

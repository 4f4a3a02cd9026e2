"""Snippets: segments of captions, each with the region of an image that it describes; on disk and as batches.

FOLDER/
  rows.npz        image_rows, image_ids and regions, int64 (snippets,) each
  texts.jsonl     the words of each snippet, one JSON string a line
  manifest.json   what they were cut with
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from vsemb.data.sources import ImageSource
from vsemb.errors import DataError, invalid_argument
from vsemb.files import read_json, replacing_directory, write_json
from vsemb.systems.captions.sentences import Sentences
from vsemb.systems.regions.region_store import RegionStore
from vsemb.text.tokenizers import Tokenizer

_FORMAT, _VERSION = "vsemb-snippets", 1
_ROWS = ("image_rows", "image_ids", "regions")
# Images whose regions are read at once.
_IMAGES = 256


@dataclass(frozen=True, eq=False)
class Snippets:
    """Segments of the captions of a split, in the captions' order.

    Attributes:
        image_rows: int64 (m,), the row in the split of the image that each describes.
        image_ids: int64 (m,), the image's id.
        regions: int64 (m,), the row of the region among the image's, 0 for the whole image.
        texts: m of them, words joined by blanks.
        affinity: what two neighbouring words on one region were worth.
        store: fingerprint of the cache whose regions they are.
        fingerprint: hex, of all that decides them.

    Example:

    >>> rows = np.array([0, 0])
    >>> snippets = Snippets(rows, rows + 7, np.array([3, 0]), ["a dog", "in the snow"], 0.5, "c0", "ffee")
    >>> len(snippets), snippets.mean_words, snippets.whole_images
    (2, 2.5, 0.5)
    """

    image_rows: np.ndarray
    image_ids: np.ndarray
    regions: np.ndarray
    texts: list[str]
    affinity: float
    store: str
    fingerprint: str

    def __post_init__(self) -> None:
        sizes = [len(getattr(self, name)) for name in _ROWS]
        if sizes != [len(self.texts)] * len(_ROWS):
            raise invalid_argument("texts", len(self.texts), f"as many as rows, ids and regions ({sizes})")

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def mean_words(self) -> float:
        """Words of a snippet, on average; 0 for no snippets."""
        return sum(len(text.split()) for text in self.texts) / max(len(self), 1)

    @property
    def whole_images(self) -> float:
        """The share of the snippets whose region is the whole image; 0 for no snippets."""
        return float(np.count_nonzero(self.regions == 0)) / max(len(self), 1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the folder, whole or not at all; one that is there is replaced.

        Raises:
            DataError: if the file system refuses.
        """
        with replacing_directory(path, overwrite=True) as folder:
            rows = {name: np.asarray(getattr(self, name), np.int64) for name in _ROWS}
            np.savez_compressed(folder / "rows.npz", allow_pickle=False, **rows)
            lines = "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in self.texts)
            (folder / "texts.jsonl").write_text(lines, encoding="utf-8")
            manifest = {"format": _FORMAT, "version": _VERSION, "snippets": len(self)}
            manifest |= {"affinity": self.affinity, "store": self.store, "fingerprint": self.fingerprint}
            write_json(folder / "manifest.json", manifest)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Snippets:
        """Reads a folder.

        Raises:
            DataError: if it is missing, damaged or of another version.
        """
        path = Path(path)
        manifest = read_json(path / "manifest.json", "manifest of snippets")
        try:
            if (manifest["format"], manifest["version"]) != (_FORMAT, _VERSION):
                raise ValueError("manifest.json is of another format or version")
            with np.load(path / "rows.npz", allow_pickle=False) as stored:
                rows, ids, regions = (np.asarray(stored[name], np.int64) for name in _ROWS)
            texts = [json.loads(line) for line in (path / "texts.jsonl").read_text("utf-8").split("\n")[:-1]]
            if len(texts) != manifest["snippets"] or not all(isinstance(text, str) for text in texts):
                raise ValueError(f"{len(texts)} texts of {manifest['snippets']}")
            made = str(manifest["store"]), str(manifest["fingerprint"])
            return cls(rows, ids, regions, texts, float(manifest["affinity"]), *made)
        # What a damaged .npz raises depends on where it is damaged.
        except Exception as error:
            raise DataError(
                f"The snippets in {path} are damaged: {error}. Remove the folder, and they are cut again."
            ) from error


def check_same_regions(cut: str, read: str) -> None:
    """Refuses snippets of other regions than those that are read.

    Args:
        cut: fingerprint of the regions that captions were cut by.
        read: fingerprint of those that the features come from.

    Raises:
        DataError: if they are not the same.
    """
    if cut != read:
        raise DataError(
            f"The snippets are of the regions {cut}, not of {read}, so their regions have other numbers. "
            f"Name those that the alignment was trained on: --set image.fingerprint={cut}"
        )


class SnippetImages(ImageSource):
    """Features of the regions that snippets describe, from their cache; in memory where they fit.

    Args:
        snippets: the snippets.
        store: the regions of their dataset.
        memory: bytes that the features may take; above, each batch reads its rows from disk.

    Raises:
        DataError: if the snippets are of other regions.
    """

    def __init__(self, snippets: Snippets, store: RegionStore, *, memory: int = 4 << 30) -> None:
        check_same_regions(snippets.store, store.fingerprint)
        self._store, self._ids, self._regions = store, snippets.image_ids, snippets.regions
        self._features: np.ndarray | None = None
        # A region that several snippets describe is held once.
        pairs, places = np.unique(np.stack([snippets.image_ids, snippets.regions]), axis=1, return_inverse=True)
        if pairs.shape[1] * store.dim * 2 <= memory:
            self._features, self._places = self._read(*pairs), places.reshape(-1)

    def _read(self, ids: np.ndarray, regions: np.ndarray) -> np.ndarray:
        # In float16, as they are stored: half of what they take, and nothing is lost.
        features = np.zeros((len(ids), self._store.dim), np.float16)
        for start in range(0, len(ids), _IMAGES):
            part = slice(start, start + _IMAGES)
            images, places = np.unique(ids[part], return_inverse=True)
            features[part] = self._store.rows(images)[places.reshape(-1), regions[part]]
        return features

    @property
    def spec(self) -> tf.TensorSpec:
        return tf.TensorSpec((self._store.dim,), tf.float32)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """Returns the features of the regions of some snippets: (n,) numbers to (n, dim) float32."""
        if self._features is None:
            return self._read(self._ids[rows], self._regions[rows]).astype(np.float32)
        return self._features[self._places[rows]].astype(np.float32)


def snippet_sentences(
    snippets: Snippets, store: RegionStore, tokenizer: Tokenizer, *, memory: int = 4 << 30
) -> Sentences:
    """Returns snippets as sentences about the features of their regions.

    Args:
        snippets: the snippets, see `vsemb.systems.captions.cut_snippets.find_snippets`.
        store: the regions of their dataset.
        tokenizer: turns snippets into ids.
        memory: see `SnippetImages`.

    Raises:
        DataError: if they are of other regions.
    """
    images = SnippetImages(snippets, store, memory=memory)
    return Sentences(*tokenizer.encode(snippets.texts), images=images, image_rows=np.arange(len(snippets)))

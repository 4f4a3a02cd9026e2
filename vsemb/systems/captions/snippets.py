"""Snippets: segments of captions, each with the region of an image that it describes.

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

from vsemb.errors import DataError, invalid_argument
from vsemb.files import read_json, replacing_directory, write_json

_FORMAT, _VERSION = "vsemb-snippets", 1
_ROWS = ("image_rows", "image_ids", "regions")


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

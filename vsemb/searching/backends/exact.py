"""The backend `exact`: exact search, or NumPy codes beside the embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.searching.backends.backend import SearchBackend
from vsemb.searching.backends.codes import BinaryCodes, Codes, Int8Codes

_CODES: dict[str, type[Codes]] = {"int8": Int8Codes, "binary": BinaryCodes}


@dataclass(frozen=True)
class Exact(SearchBackend, kind="exact"):
    """Score every item.

    Attributes:
        dtype: dtype of the stored embeddings. With int8 and binary, candidates are found among codes of this type
            beside float32 embeddings.
    """

    @property
    def approximate(self) -> bool:
        return self.dtype in _CODES

    @property
    def kept(self) -> str:
        return "float32" if self.approximate else self.dtype

    def build(self, vectors: np.ndarray, directory: Path) -> dict[str, Any]:
        _CODES[self.dtype].write(vectors, directory)
        return {}

    def open(self, directory: Path, made: Mapping[str, Any]) -> Codes:
        return _CODES[self.dtype].open(directory)

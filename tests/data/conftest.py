"""Tiny datasets, written to a temporary folder."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vsemb.data.records import ImageRecord
from vsemb.data.store import StoredDataset
from vsemb.data.writing.writer import write_dataset


class Tiny:
    """Makes records and writes them, three images a shard."""

    SOURCE: dict[str, Any] = {"format": "test", "path_name": "test", "sha256": {}, "options": {}}

    @staticmethod
    def jpeg(seed: int, size: int = 8) -> bytes:
        """Returns a JPEG of noise."""
        pixels = np.random.default_rng(seed).integers(0, 256, (size, size, 3), np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG")
        return buffer.getvalue()

    def records(self, count: int = 10) -> list[ImageRecord]:
        """Returns images 0, 1, ... of which every third is val, with 1 to 3 captions."""
        return [
            ImageRecord(
                key=f"{number}.jpg",
                captions=tuple(f"caption {place} of {number}" for place in range(1 + number % 3)),
                split="val" if number % 3 == 2 else "train",
                image=self.jpeg(number),
            )
            for number in range(count)
        ]

    def write(self, records: Any, out: Path, **options: Any) -> StoredDataset:
        """Writes a dataset."""
        defaults = {"name": "tiny", "source": self.SOURCE, "images_per_shard": 3}
        return write_dataset(records, out, **{**defaults, **options})

    @staticmethod
    def contents(folder: Path) -> dict[str, bytes]:
        """Returns relative path -> bytes of every file below `folder`."""
        files = (path for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def tiny() -> Tiny:
    """Makes records and writes them."""
    return Tiny()

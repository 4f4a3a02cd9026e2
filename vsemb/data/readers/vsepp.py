"""VSE++'s precomputed files: `{train,dev,test}_ims.npy` and `{train,dev,test}_caps.txt`.

Source: https://github.com/fartashf/vsepp - features without images. Either the row of an image is repeated
once per caption (files of Kiros), or each image has one row and the same number of captions, usually five.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vsemb.data.readers import Reader
from vsemb.data.readers.source import BadRows, Source, existing, text_lines
from vsemb.data.records import ImageRecord
from vsemb.errors import DataError

if TYPE_CHECKING:
    import numpy as np

_SPLITS = {"train": "train", "dev": "val", "test": "test"}
_BLOCK = 1024


@dataclass(frozen=True)
class Vsepp(Reader, kind="vsepp"):
    """VSE++'s precomputed features without images: {train,dev,test}_ims.npy and _caps.txt, in a folder."""

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        return any((path / f"{split}_ims.npy").exists() for split in _SPLITS)

    def read(self, source: str | os.PathLike[str]) -> Source:
        from vsemb.data.features.files import not_finite

        folder = existing(source)
        if not folder.is_dir():
            raise DataError(f"{folder} is not a folder; the format vsepp reads a folder of *_ims.npy and *_caps.txt.")
        records: list[ImageRecord] = []
        features: dict[str, np.ndarray] = {}
        files: list[Path] = []
        notes: list[str] = []
        bad = BadRows()
        for name, split in _SPLITS.items():
            array, texts = folder / f"{name}_ims.npy", folder / f"{name}_caps.txt"
            present = [path for path in (array, texts) if path.exists()]
            if not present:
                continue
            if len(present) == 1:
                raise DataError(f"{folder} holds {present[0].name} without its partner.")
            rows = _load(array)
            captions = text_lines(texts, bad)
            images, per_image, note = _grouped(array, rows, len(captions))
            features[split] = images
            files += present
            notes.append(f"{name}: {note}")
            digits = len(str(len(images) - 1))
            broken = set(not_finite(images).tolist())
            for row in range(len(images)):
                own = captions[row * per_image : (row + 1) * per_image]
                with bad:
                    if row in broken:
                        raise DataError(f"{array}: row {row * len(rows) // len(images)} is not finite.")
                    records.append(ImageRecord(f"{name}-{row:0{digits}d}", tuple(own), split, None))
        if not features:
            raise DataError(f"{folder} holds no train_ims.npy, dev_ims.npy or test_ims.npy.")
        bad.require(folder, records)
        widths = {split: images.shape[1] for split, images in features.items()}
        if len(set(widths.values())) > 1:
            raise DataError(f"The features in {folder} differ in dimension: {widths}.")

        def rows_of(split: str, keys: Sequence[str]) -> np.ndarray:
            images = features[split]
            if len(keys) == len(images):
                return images
            return images[[int(key.rpartition("-")[2]) for key in keys]]

        return Source(
            "vsepp", folder.resolve().name, records, tuple(files), notes=tuple(notes), bad=tuple(bad), rows=rows_of
        )


def _load(path: Path) -> np.ndarray:
    import numpy as np

    from vsemb.data.features.files import load_array

    rows = load_array(path)
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or not rows.size or rows.dtype.kind != "f":
        received = f"{rows.dtype} {rows.shape}" if isinstance(rows, np.ndarray) else "an archive"
        raise DataError(f"{path} must be float (images, dim); got {received}.")
    return rows


def _grouped(path: Path, rows: np.ndarray, captions: int) -> tuple[np.ndarray, int, str]:
    """Return (one row per image, captions per image, a line that describes the layout)."""
    if not captions:
        raise DataError(f"{path} must have captions in the file beside it; got none.")
    if captions != len(rows):
        per_image, rest = divmod(captions, len(rows))
        if rest or per_image < 1:
            raise DataError(
                f"{path} has {len(rows)} rows and there are {captions} captions; expected as many "
                "captions as rows, or the same number for every row."
            )
        return rows, per_image, f"{len(rows)} images with {per_image} captions each."
    repeat = _repetition(rows)
    note = f"{len(rows)} rows, each image {repeat} times: {len(rows) // repeat} images."
    return rows[::repeat], repeat, note


def _repetition(rows: np.ndarray) -> int:
    """Return how many consecutive rows each image has.

    The result is the greatest common divisor of the lengths of runs of equal rows. Two adjacent images with
    equal features form a run of double length, which does not change the divisor.
    """
    import numpy as np

    starts = [0]
    for start in range(0, len(rows) - 1, _BLOCK):
        # Compare bits, since NaN != NaN.
        block = np.ascontiguousarray(rows[start : start + _BLOCK + 1]).view(f"u{rows.itemsize}")
        starts += (start + 1 + np.flatnonzero((block[1:] != block[:-1]).any(axis=1))).tolist()
    return math.gcd(*np.diff([*starts, len(rows)]).tolist())

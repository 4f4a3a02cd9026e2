"""Whether regions are what `region_store` says: finite, the whole image first, padding last."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from vsemb.data.all_images import name_images
from vsemb.errors import DataError

if TYPE_CHECKING:
    from vsemb.data.store import Dataset

WHOLE_IMAGE = (0.0, 0.0, 1.0, 1.0)

_BLOCK_BYTES = 4 << 20
# Corners are sums of float32 numbers near 1, which round.
_OUTSIDE = 1e-4


def refuse_wrong_regions(
    features: np.ndarray,
    boxes: np.ndarray,
    scores: np.ndarray,
    ids: np.ndarray,
    dataset: Dataset,
    what: str,
) -> None:
    """Refuses regions that cannot be, naming the images.

    Args:
        features: (n, count, dim), may be memory-mapped.
        boxes: (n, count, 4).
        scores: (n, count).
        ids: int64 (n,), the images.
        dataset: the dataset.
        what: what has the regions, for the message.

    Raises:
        DataError: if one is wrong.
    """

    def refuse(bad: Any, why: Callable[[str], str]) -> None:
        if bad.any():
            raise DataError(f"{what}: {why(name_images(dataset, ids[bad]))}.")

    present = np.asarray(boxes.any(axis=-1))  # (n, count)
    finite = np.isfinite(boxes).all(axis=(1, 2)) & np.isfinite(scores).all(axis=1)
    refuse(~finite, "NaN or infinity in the boxes or scores of {}".format)
    refuse((boxes[:, 0] != WHOLE_IMAGE).any(axis=-1), "the first region is not the whole image for {}".format)
    corner, size = boxes[..., :2], boxes[..., 2:]
    inside = (corner >= 0).all(-1) & (size > 0).all(-1) & (corner + size <= 1 + _OUTSIDE).all(-1)
    refuse((present & ~inside).any(axis=-1), "a box lies outside the image, or is empty, for {}".format)
    refuse((present[:, 1:] & ~present[:, :-1]).any(axis=-1), "a box comes after padding for {}".format)
    infinite, stray = np.zeros(len(boxes), bool), np.zeros(len(boxes), bool)
    step = max(1, _BLOCK_BYTES // max(1, features.itemsize * int(np.prod(features.shape[1:]))))
    for start in range(0, len(features), step):
        part = slice(start, start + step)
        largest = _largest(features[part])
        infinite[part] = ~np.isfinite(largest).all(axis=1)
        stray[part] = ((largest != 0) & ~present[part]).any(axis=1)
    refuse(infinite, "NaN or infinity in the features of {}".format)
    refuse(stray, "padding has features for {}".format)


def _largest(block: np.ndarray) -> np.ndarray:
    """Returns the largest magnitude of each row (..., dim), NaN where there is one."""
    if block.dtype != np.float16:
        return np.abs(block).max(axis=-1, initial=0)
    # Without their sign, IEEE numbers are in the order of their bits, NaN last; float16 is slow otherwise.
    bits = np.asarray(block).view(np.uint16) & 0x7FFF
    return bits.max(axis=-1, initial=0).view(np.float16)

"""Images of one split that are also in another, by the digests of their stored bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from vsemb.data.manifest import ordered_splits
from vsemb.data.store import Split, StoredDataset
from vsemb.errors import counted

_BLOCK = 65_536
_NAMED = 3


def shared_images(dataset: StoredDataset) -> Iterator[str]:
    """Yield a line for two splits that have images in common: a model is then tested on images of its training.

    Images are compared by their stored bytes. Eight bytes of a digest are kept per image.

    Args:
        dataset: the dataset.

    Example:

        for line in shared_images(Dataset.open("data/mine")):
            print(line)
    """
    splits = [dataset.split(name) for name in ordered_splits(dataset.splits)]
    splits = [split for split in splits if split.has_images]
    digests = {split.name: _digests(split) for split in splits}
    for first, second in itertools.combinations(splits, 2):
        rows = np.flatnonzero(np.isin(digests[second.name], digests[first.name]))
        if len(rows):
            named = ", ".join(second.keys[row] for row in rows[:_NAMED].tolist())
            if len(rows) > _NAMED:
                named += ", ..."
            images = counted(len(rows), f"image of {second.name} is", f"images of {second.name} are")
            yield f"{images} also in {first.name} ({named})."


def _digests(split: Split) -> np.ndarray:
    """Return the first eight bytes of the digest of each image, uint64 (n,)."""
    # Block by block, since the digests of a large split do not fit in memory.
    prefixes = np.empty(len(split), np.uint64)
    for start in range(0, len(split), _BLOCK):
        block = split.digests[start : start + _BLOCK]
        prefixes[start : start + len(block)] = [int(digest[:16], 16) for digest in block]
    return prefixes

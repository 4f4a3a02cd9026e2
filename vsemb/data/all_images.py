"""All images of a dataset, whatever split they are in: their ids, names and bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from vsemb.errors import DataError

if TYPE_CHECKING:
    from vsemb.data.store import Dataset


def filled_splits(dataset: Dataset) -> list[str]:
    """Returns the names of the splits that have images."""
    return [name for name in dataset.splits if dataset.manifest["splits"][name]["images"]]


def dataset_ids(dataset: Dataset) -> np.ndarray:
    """Returns the ids of all images, ascending."""
    parts = [dataset.split(name).ids for name in filled_splits(dataset)]
    if not parts:
        raise DataError(f"The dataset {dataset.path} has no images.")
    return np.sort(np.concatenate(parts))


def name_images(dataset: Dataset, ids: np.ndarray) -> str:
    """Names up to five images: `key (id 7)`."""
    keys: dict[int, str] = {}
    for name in filled_splits(dataset):
        split = dataset.split(name)
        for row in np.flatnonzero(np.isin(split.ids, ids[:5])):
            keys[int(split.ids[row])] = split.keys[row]
    named = ", ".join(f"{keys.get(int(image), '?')} (id {int(image)})" for image in ids[:5])
    return named + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")


def encoded_images(dataset: Dataset) -> Any:
    """Returns a tf.data.Dataset of (id, bytes) of all splits, one behind the other."""
    first, *others = (dataset.split(name).encoded_images() for name in filled_splits(dataset))
    for other in others:
        first = first.concatenate(other)
    return first


def readable(batches: Any, dataset: Dataset) -> Iterator[tuple[Any, ...]]:
    """Yields the batches; what TensorFlow says of a damaged shard becomes one clear line."""
    import tensorflow as tf

    try:
        yield from batches
    except tf.errors.OpError as error:
        reason = error.message.splitlines()[0]
        raise DataError(f"Images of {dataset.path} cannot be read: {reason} Prepare it again.") from error


def refuse_undecodable(ids: np.ndarray, dataset: Dataset) -> None:
    """Refuses images that do not decode, by their ids.

    Raises:
        DataError: if there are any.
    """
    if len(ids):
        raise DataError(f"Images of {dataset.path} do not decode: {name_images(dataset, ids)}.")

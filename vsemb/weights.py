"""Weights files: HDF5 as Keras writes it, with a digest of the values, so that a damaged file is found."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vsemb.errors import DataError, one_line
from vsemb.files import claimed, require_regular, require_space, sync, writing

if TYPE_CHECKING:
    import h5py
    import keras

_DIGEST = "sha256"


def save_weights(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Write a model's weights atomically, without the state of its optimizer.

    Args:
        model: the model, compiled or not.
        path: the file, ending in `.weights.h5`.

    Raises:
        DataError: if the disk is full.
    """
    import h5py

    path = Path(os.path.realpath(path))
    # Keras insists on the ending. In a folder, so that what a killed process leaves is removed with it.
    with writing(path), claimed(path) as folder:
        named = folder / "model.weights.h5"
        require_space(folder, _size(model))
        with _without_optimizer(model):
            model.save_weights(named)
        with h5py.File(named, "r+") as file:
            file.attrs[_DIGEST] = _digest(file)
        sync(named)
        os.replace(named, path)
        sync(path.parent)


def load_weights(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Load a model's weights, without Keras' warnings. A file of `save_weights` must hold what was written.

    Args:
        model: the model, built.
        path: the file; one that Keras wrote has no digest, and is read as it is.

    Raises:
        DataError: if the file is damaged.
        ValueError: if it is of another model.
    """
    import h5py

    try:
        with h5py.File(require_regular(path)) as file:
            written, digest = file.attrs.get(_DIGEST), _digest(file)
    except Exception as error:  # h5py raises many types for a damaged file
        raise DataError(f"The weights file {path} cannot be read: {one_line(error, 120)}. Restore it.") from error
    if written not in (None, digest):
        raise DataError(f"The weights file {path} is damaged: it holds other values than were written. Restore it.")
    with warnings.catch_warnings(), _without_optimizer(model):
        warnings.simplefilter("ignore")
        model.load_weights(path)


@contextlib.contextmanager
def _without_optimizer(model: keras.Model) -> Iterator[None]:
    # Keras also writes the optimizer's variables, twice the weights for Adam. It visits what is in `vars`.
    attributes = vars(model)
    optimizer = attributes.pop("optimizer", None)
    try:
        yield
    finally:
        if optimizer is not None:
            attributes["optimizer"] = optimizer


def _digest(file: h5py.File) -> str:
    import h5py

    digest = hashlib.sha256()

    def add(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset):
            values = np.asarray(item[()])
            digest.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
            digest.update(values.tobytes())

    file.visititems(add)
    return digest.hexdigest()


def _size(model: keras.Model) -> int:
    return sum(math.prod(variable.shape) * 4 for variable in model.variables) + (1 << 20)

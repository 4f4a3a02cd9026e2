"""Weights files: HDF5 as Keras writes it, with a digest of the values, so that a damaged file is found; safetensors."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vsemb.errors import DataError, needs_extra, one_line
from vsemb.files import claimed, replacing, require_regular, require_space, sync, writing

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


def named_weights(model: keras.layers.Layer) -> dict[str, keras.Variable]:
    """Return the weights of a model by the attributes that hold them, such as `text_encoder.recurrent.cell.kernel`.

    Layers of a functional or sequential model, which have no attributes, are called by their names.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="map")])
    >>> list(named_weights(model))
    ['map.kernel', 'map.bias']
    """
    return _named_weights(model, "", set())


def _named_weights(layer: Any, prefix: str, visited: set[int]) -> dict[str, Any]:
    import keras

    visited.add(id(layer))
    named: dict[str, Any] = {}
    attributes = list(vars(layer).items())
    public = [(name, value) for name, value in attributes if not name.startswith("_")]
    listed = [(each.name, each) for each in layer.layers] if isinstance(layer, keras.Model) else []
    private = [(name, value) for name, value in attributes if name != "_layers" and "_dependenc" not in name]
    # The bookkeeping of Keras and TensorFlow comes last, since it has other names.
    inner = _held([*public, *listed, *private, *attributes])
    for name, each in inner.items():
        if id(each) not in visited:
            named |= _named_weights(each, f"{prefix}{name}.", visited)
    of_others = {id(weight) for each in inner.values() for weight in each.weights}
    own = [weight for weight in layer.weights if id(weight) not in of_others]
    for weight in own:
        name = prefix + weight.name
        same = sum(each.name == weight.name for each in own)
        # Two variables of one name in one layer are numbered.
        named[name if same == 1 else f"{name}_{len(named)}"] = weight
    return named


def _held(attributes: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return attribute -> layer, also of attributes that are lists or dictionaries of layers."""
    import keras

    held: dict[str, Any] = {}
    for name, value in attributes:
        name, found = name.strip("_"), {}
        if isinstance(value, keras.layers.Layer):
            found = {name: value}
        elif isinstance(value, list | tuple):
            found = _held((f"{name}.{number}", each) for number, each in enumerate(value))
        elif isinstance(value, dict):
            found = _held((f"{name}.{key}", each) for key, each in value.items())
        # The first name of a layer counts.
        held = {**held, **{name: each for name, each in found.items() if name not in held}}
    return held


def save_safetensors(
    model: keras.layers.Layer, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a model's weights as a file of safetensors, atomically, with the names of `named_weights`.

    Args:
        model: the model, built.
        path: the file.
        metadata: strings in the head of the file.

    Raises:
        DataError: if the file cannot be written.
        MissingExtraError: without safetensors, which the extra `hf` installs.
    """
    with needs_extra("safetensors", "hf"):
        from safetensors.numpy import save_file
    values = {name: np.ascontiguousarray(weight.numpy()) for name, weight in named_weights(model).items()}
    with replacing(path) as temporary:
        save_file(values, temporary, dict(metadata or {}))


def safetensors_metadata(path: str | os.PathLike[str]) -> Mapping[str, str]:
    """Return the strings in the head of a file of safetensors; empty for another file."""
    with needs_extra("safetensors", "hf"):
        from safetensors import SafetensorError, safe_open
    try:
        with safe_open(os.fspath(path), "np") as file:
            return file.metadata() or {}
    except (OSError, SafetensorError):
        return {}


def load_safetensors(model: keras.layers.Layer, path: str | os.PathLike[str]) -> None:
    """Load a model's weights from a file of `save_safetensors`.

    Args:
        model: the model, built.
        path: the file.

    Raises:
        DataError: if the file is damaged, or of another model; then the model is unchanged.
        MissingExtraError: without safetensors, which the extra `hf` installs.
    """
    with needs_extra("safetensors", "hf"):
        from safetensors.numpy import load_file
    try:
        values = load_file(require_regular(path))
    except Exception as error:  # The library has types of its own for damaged files.
        raise DataError(f"The weights file {path} cannot be read: {one_line(error, 120)}. Restore it.") from error
    weights = named_weights(model)
    wanted = {name: tuple(weight.shape) for name, weight in weights.items()}
    found = {name: value.shape for name, value in values.items()}
    if differing := sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name)):
        name = differing[0]
        raise DataError(
            f"{path} must hold the weights of this model; {name} has shape {found.get(name, 'none')} there and "
            f"{wanted.get(name, 'none')} in the model. Load it into a model of the same recipe."
        )
    for name, weight in weights.items():
        weight.assign(values[name])


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

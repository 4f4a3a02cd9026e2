"""Presets of keras-hub: networks, tokenizers and preprocessing by name, or in a directory.

A preset is named `hub:` and what keras-hub's `from_preset` takes: the name of one of its presets, a handle
(`kaggle://…`, `hf://…`), or a directory that `save_to_preset` wrote:

    config.json            the network
    image_converter.json   what is done to pixels
    tokenizer.json         the tokenizer, its vocabulary in assets/tokenizer/
    preprocessor.json      how long texts are, and whether they are lower-cased
    model.weights.h5       the weights

Only the first is required. keras-hub downloads a preset that is not a directory. A run keeps a copy of the files that
it read, except the weights, and so needs no preset to be opened.

CLIP is arXiv:2103.00020, SigLIP arXiv:2303.15343, ViT arXiv:2010.11929.
"""

from __future__ import annotations

import functools
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np

from vsemb.errors import DataError, VsembError, invalid_argument, one_line, unknown_name
from vsemb.files import read_json, write_json
from vsemb.image.presets import KEPT

PREFIX = "hub:"
#: Networks of an image tower and a text tower.
DUAL = ("CLIPBackbone", "SigLIPBackbone")
CONFIG, CONVERTER = "config.json", "image_converter.json"
TOKENIZER, PREPROCESSOR, ASSETS = "tokenizer.json", "preprocessor.json", "assets/tokenizer"
# In the copy of a preset: the name that it was given by.
_NAME = "preset.txt"
#: A part of a preset that a run keeps: the files of its image tower or those of its text tower.
Tower = Literal["image", "text"]
_FILES = {"image": (CONFIG, CONVERTER), "text": (CONFIG, TOKENIZER, PREPROCESSOR)}


def require_preset(argument: str, name: str) -> None:
    """Refuses a name that is not one of a preset.

    Raises:
        InvalidArgumentError: naming the argument.
    """
    if not name.startswith(PREFIX):
        raise invalid_argument(argument, name, f"{PREFIX} and a preset, such as {PREFIX}clip_vit_base_patch16")


def kept_name(name: str, run: Path, tower: Tower) -> str:
    """Returns the name of the copy of a preset that a run directory keeps; the name itself where it keeps none.

    Args:
        name: of the preset.
        run: the run directory.
        tower: the part that was kept.
    """
    folder = run / KEPT / tower
    return f"{PREFIX}{folder.resolve()}" if folder.is_dir() else name


def source_of(name: str) -> str:
    """Returns what keras-hub takes, the name without `hub:`.

    Example:

    >>> source_of("hub:clip_vit_base_patch16")
    'clip_vit_base_patch16'
    """
    return name.removeprefix(PREFIX)


def display_name(name: str) -> str:
    """Returns the name that people know a preset by, also where it is kept in a run; others as they are.

    Example:

    >>> display_name("hub:clip_vit_base_patch16"), display_name("MobileNetV2")
    ('hub:clip_vit_base_patch16', 'MobileNetV2')
    """
    kept = Path(source_of(name)) / _NAME
    return kept.read_text(encoding="utf-8").strip() if name.startswith(PREFIX) and kept.is_file() else name


def preset_directory(name: str) -> Path:
    """Returns a directory that describes a preset, in keras-hub's own form and perhaps without weights.

    Args:
        name: with or without `hub:`.

    Returns:
        The directory itself where it is one; otherwise one that lasts as long as the process, downloaded
        once.

    Raises:
        DataError: if there is no such preset, it cannot be downloaded, or the directory holds none.
    """
    source = source_of(name)
    path = Path(source)
    if not path.is_dir():
        return Path(_fetched(source).name)
    if not (path / CONFIG).is_file():
        raise DataError(
            f"{path} holds no preset of keras-hub: it has no {CONFIG}. Write one with save_to_preset, or "
            "give the directory of one that was downloaded."
        )
    # Those of other libraries, which keras-hub converts, have another form.
    content = read_json(path / CONFIG, "preset")
    if isinstance(content, dict) and "registered_name" in content:
        return path
    return Path(_fetched(str(path.resolve())).name)


def keep_preset(name: str, run: Path, tower: Tower) -> None:
    """Copies the description of a tower and its preprocessing into a run directory, without weights.

    The copy is a preset itself, see `kept_name`.

    Args:
        name: of the preset.
        run: the run directory.
        tower: the part to keep.

    Raises:
        DataError: if the preset cannot be opened or a file cannot be copied.
    """
    source, folder = preset_directory(name), run / KEPT / tower
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in _FILES[tower]:
            if (source / file).is_file():
                shutil.copyfile(source / file, folder / file)
        if tower == "text" and (source / ASSETS).is_dir():
            shutil.copytree(source / ASSETS, folder / ASSETS)
        (folder / _NAME).write_text(f"{display_name(name)}\n", encoding="utf-8")
    except OSError as error:
        raise DataError(f"The preset {name!r} cannot be kept in {folder}: {error}.") from error


def read_part(directory: Path, file: str) -> dict[str, Any] | None:
    """Returns the arguments in one of a preset's files, None where it has none.

    Raises:
        DataError: if the file is no description of an object.
    """
    if not (directory / file).is_file():
        return None
    content = read_json(directory / file, "preset")
    if not isinstance(content, dict) or not isinstance(content.get("config"), dict):
        raise DataError(f"{directory / file} is no file of a preset of keras-hub: it has no `config`.")
    return content


@contextmanager
def opening(source: str) -> Iterator[None]:
    """Turns whatever keras-hub raises into one line that says what to do.

    Raises:
        DataError: for any error inside.
    """
    try:
        yield
    except VsembError:
        raise
    except Exception as error:  # Downloads, files and networks fail in many ways.
        where = Path(source)
        if where.is_dir():
            raise DataError(f"The preset in {where} cannot be opened by keras-hub ({one_line(error, 200)}).") from error
        handle = _presets().get(source, {}).get("kaggle_handle", source)
        raise DataError(
            f"Cannot get the preset {source!r} of keras-hub ({one_line(error, 160)}). Where there is no "
            f"network, download the files of {handle} elsewhere and give their directory: {PREFIX}DIRECTORY."
        ) from error


def _presets() -> dict[str, Any]:
    import keras_hub

    presets: dict[str, Any] = keras_hub.models.Backbone.presets
    return presets


@functools.cache
def _fetched(source: str) -> tempfile.TemporaryDirectory[str]:
    """Writes what describes a preset that is no directory, or one of another library's, into one."""
    import keras_hub

    if "://" not in source and not os.path.isdir(source) and source not in _presets():
        names = [f"{PREFIX}{name}" for name in _presets()]
        error = unknown_name("preset", f"{PREFIX}{source}", names)
        raise DataError(f"{error} There is no such directory either.")
    folder: tempfile.TemporaryDirectory[str] = tempfile.TemporaryDirectory(prefix="vsemb-preset-")
    path = Path(folder.name)
    with opening(source):
        backbone = keras_hub.models.Backbone.from_preset(source, load_weights=False)
        write_json(path / CONFIG, _uncompiled(keras.saving.serialize_keras_object(backbone)))
        kind = type(backbone).__name__
        if kind in ("CLIPBackbone", "SigLIPBackbone"):
            preprocessor = getattr(keras_hub.models, kind.replace("Backbone", "Preprocessor"))
            preprocessor.from_preset(source).save_to_preset(folder.name)
        if not (path / CONVERTER).exists():
            converter = keras_hub.layers.ImageConverter.from_preset(source)
            converter.save_to_preset(folder.name)
    return folder


def _uncompiled(content: Any) -> Any:
    """Returns a serialized network as keras-hub writes it: without what was compiled or built."""
    if not isinstance(content, dict):
        return content
    return {key: _uncompiled(value) for key, value in content.items() if key not in ("compile_config", "build_config")}


def load_network(name: str, dtype: Any = "float32") -> keras.Model:
    """Opens a preset's whole network with its weights, which keras-hub downloads where it has to.

    Raises:
        DataError: if it cannot be got.
    """
    import keras_hub

    source = source_of(name)
    preset_directory(name)
    with opening(source):
        return keras_hub.models.Backbone.from_preset(source, dtype=dtype)


def build_network(network: Mapping[str, Any], dtype: Any = "float32") -> keras.Model:
    """Builds a network from keras-hub's configuration, its weights as Keras draws them.

    Raises:
        DataError: if keras-hub cannot build it.
    """
    import keras_hub

    with tempfile.TemporaryDirectory(prefix="vsemb-preset-") as folder:
        write_json(Path(folder) / CONFIG, dict(network))
        with opening(folder):
            built = keras_hub.models.Backbone.from_preset(folder, load_weights=False, dtype=dtype)
    for weight in built.weights:
        # CLIP's come with the weights, and are all 0 without.
        if weight.name == "position_ids":
            weight.assign(np.arange(math.prod(weight.shape)).reshape(weight.shape))
    return built


def text_network(network: keras.Model) -> keras.Model:
    """Returns the text tower of a dual encoder: its own token ids (batch, steps) to (batch, dim).

    Raises:
        DataError: for a network that has none.
    """
    _need_dual(network)
    ids = keras.Input((None,), dtype="int32", name="token_ids")
    return keras.Model(ids, network.get_text_embeddings(ids), name="text_network")


def learned_scale(network: keras.Model) -> tuple[float, float | None]:
    """Returns what a dual encoder multiplies cosines by, and what it adds, None for CLIP.

    Raises:
        DataError: for a network of one tower.
    """
    _need_dual(network)
    head = network.clip_head if type(network).__name__ == "CLIPBackbone" else network.siglip_head
    factor = math.exp(float(keras.ops.convert_to_numpy(head.logit_scale)))
    bias = getattr(head, "logit_bias", None)
    return factor, None if bias is None else float(keras.ops.convert_to_numpy(bias))


def _need_dual(network: keras.Model) -> None:
    if type(network).__name__ not in DUAL:
        raise DataError(
            f"A {type(network).__name__} has no text tower; those of {' and '.join(DUAL)} have. As an image "
            "tower: vsemb features DATA --backbone hub:PRESET"
        )

"""From the name of a preset to a directory that describes it.

A preset is named `hub:` and what keras-hub's `from_preset` takes: the name of one of its presets, a handle
(`kaggle://…`, `hf://…`), or a directory that `save_to_preset` wrote:

    config.json            the network
    image_converter.json   what is done to pixels
    tokenizer.json         the tokenizer, its vocabulary in assets/tokenizer/
    preprocessor.json      how long texts are, and whether they are lower-cased
    model.weights.h5       the weights

Only the first is always there. What is not a directory is downloaded by keras-hub, and only because somebody
named it; a run keeps what it read of a preset but the weights, and so needs no preset to be opened.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vsemb.errors import DataError, VsembError, invalid_argument, one_line, unknown_name
from vsemb.files import read_json, write_json

PREFIX = "hub:"
#: Folder in a run directory with the presets that its recipe names, and the folders in it.
KEPT, IMAGE, TEXT = "presets", "image", "text"
CONFIG, CONVERTER = "config.json", "image_converter.json"
TOKENIZER, PREPROCESSOR, ASSETS = "tokenizer.json", "preprocessor.json", "assets/tokenizer"
#: What a kept preset is called by those who named it.
NAME = "preset.txt"
_KEPT = {
    "image": (CONFIG, CONVERTER),
    "text": (CONFIG, TOKENIZER, PREPROCESSOR),
}


def is_preset(name: object) -> bool:
    """Whether a name is that of a preset.

    Example:

    >>> is_preset("hub:vit_base_patch16_224_imagenet"), is_preset("MobileNetV2")
    (True, False)
    """
    return isinstance(name, str) and name.startswith(PREFIX)


def require_preset(argument: str, name: str) -> None:
    """Refuses a name that is not one of a preset.

    Raises:
        InvalidArgumentError: naming the argument.
    """
    if not is_preset(name):
        raise invalid_argument(argument, name, f"{PREFIX} and a preset, such as {PREFIX}clip_vit_base_patch16")


def kept_name(name: str, run: Path, part: str) -> str:
    """Returns the name of the copy of a preset that a run directory keeps; the name itself where it keeps none.

    Args:
        name: of the preset.
        run: the run directory.
        part: `IMAGE` or `TEXT`.
    """
    folder = run / KEPT / part
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
    kept = Path(source_of(name)) / NAME
    return kept.read_text(encoding="utf-8").strip() if is_preset(name) and kept.is_file() else name


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
    if "registered_name" in _config(path):
        return path
    return Path(_fetched(str(path.resolve())).name)


def keep_preset(name: str, folder: Path, part: str) -> None:
    """Copies what describes a preset's networks and preprocessing, without weights.

    Args:
        name: of the preset.
        folder: to make, which is a preset itself then, see `preset_directory`.
        part: `"image"` or `"text"`.

    Raises:
        DataError: if the preset cannot be opened or a file not be copied.
    """
    source = preset_directory(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in _KEPT[part]:
            if (source / file).is_file():
                shutil.copyfile(source / file, folder / file)
        if part == "text" and (source / ASSETS).is_dir():
            shutil.copytree(source / ASSETS, folder / ASSETS)
        (folder / NAME).write_text(f"{display_name(name)}\n", encoding="utf-8")
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


def _config(path: Path) -> dict[str, Any]:
    content = read_json(path / CONFIG, "preset")
    if not isinstance(content, dict):
        raise DataError(f"{path / CONFIG} is not the configuration of a network.")
    return content


def _presets() -> dict[str, Any]:
    import keras_hub

    presets: dict[str, Any] = keras_hub.models.Backbone.presets
    return presets


@functools.cache
def _fetched(source: str) -> tempfile.TemporaryDirectory[str]:
    """Writes what describes a preset that is no directory, or one of another library's, into one."""
    import keras
    import keras_hub

    if "://" not in source and not os.path.isdir(source) and source not in _presets():
        names = [f"{PREFIX}{name}" for name in _presets()]
        error = unknown_name("preset", f"{PREFIX}{source}", names)
        raise DataError(f"{error} There is no such directory either.")
    folder: tempfile.TemporaryDirectory[str] = tempfile.TemporaryDirectory(prefix="vsemb-preset-")
    path = Path(folder.name)
    with opening(source):
        backbone = keras_hub.models.Backbone.from_preset(source, load_weights=False)
        write_json(path / CONFIG, _plain(keras.saving.serialize_keras_object(backbone)))
        kind = type(backbone).__name__
        if kind in ("CLIPBackbone", "SigLIPBackbone"):
            preprocessor = getattr(keras_hub.models, kind.replace("Backbone", "Preprocessor"))
            preprocessor.from_preset(source).save_to_preset(folder.name)
        if not (path / CONVERTER).exists():
            converter = keras_hub.layers.ImageConverter.from_preset(source)
            converter.save_to_preset(folder.name)
    return folder


def _plain(content: Any) -> Any:
    """A serialized network as keras-hub writes it: without what was compiled or built."""
    if isinstance(content, dict):
        skipped = ("compile_config", "build_config")
        return {key: _plain(value) for key, value in content.items() if key not in skipped}
    # JSON's own types: tuples become lists.
    return json.loads(json.dumps(content)) if isinstance(content, tuple) else content

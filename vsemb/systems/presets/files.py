"""Presets: networks, tokenizers and preprocessing by name, or in a directory.

The name of a preset is `hub:` followed by an argument of keras-hub's `from_preset`: a name, a handle (`kaggle://…`,
`hf://…`), or a directory written by `save_to_preset`:

    config.json            network
    image_converter.json   preprocessing of pixels
    tokenizer.json         tokenizer, with its vocabulary in assets/tokenizer/
    preprocessor.json      length and lower-casing of texts
    model.weights.h5       weights

Only the first is required. keras-hub downloads a preset that is not a directory. A run directory contains a copy of
these files without weights and can be opened without the preset. CLIP, SigLIP, BERT and their relatives of transformers
and open_clip are described in the same way, see `vsemb.systems.presets.checkpoints`, with an image processor of the
transformers library.

CLIP is arXiv:2103.00020, SigLIP arXiv:2303.15343, ViT arXiv:2010.11929, BERT arXiv:1810.04805.
"""

from __future__ import annotations

import functools
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np

from vsemb.errors import DataError, VsembError, invalid_argument, one_line, unknown_name
from vsemb.files import read_json, read_text, write_json
from vsemb.image.presets import KEPT
from vsemb.runs.sharing import HANDLE
from vsemb.systems.presets.checkpoints import LAYOUTS, SETTINGS, open_checkpoint
from vsemb.systems.presets.layouts import PROCESSORS

PREFIX = "hub:"
#: Networks with an image tower and a text tower -> class of their preprocessor.
DUAL = {
    "CLIPBackbone": "CLIPPreprocessor",
    "MetaCLIP2Backbone": "MetaCLIP2CausalLMPreprocessor",
    "SigLIPBackbone": "SigLIPPreprocessor",
}
#: Poolings of text networks: the embedding of a dual encoder; and the mean over the tokens, or the first token, of
#: networks with a vector per token. The first is the default.
EMBEDDING, POOLINGS = ("embedding",), ("mean", "first")
CONFIG, CONVERTER = "config.json", "image_converter.json"
TOKENIZER, PREPROCESSOR, ASSETS = "tokenizer.json", "preprocessor.json", "assets/tokenizer"
# File with the original name, in the copy of a preset.
_NAME = "preset.txt"
#: Part of a preset that a run keeps: files of its image tower or its text tower.
Tower = Literal["image", "text"]
_FILES = {"image": (CONFIG, CONVERTER, *PROCESSORS), "text": (CONFIG, TOKENIZER, PREPROCESSOR)}


def source_of(name: str) -> str:
    """Return the source that a name names: a name of keras-hub, a handle, or a directory."""
    return name.removeprefix(PREFIX)


def require_preset(argument: str, name: str) -> None:
    """Check that a name is the name of a preset.

    Raises:
        InvalidArgumentError: for another name.
    """
    if not name.startswith((PREFIX, HANDLE)):
        allowed = f"{PREFIX} and a preset, such as {PREFIX}clip_vit_base_patch16, or {HANDLE} and a repository"
        raise invalid_argument(argument, name, allowed)


def kept_name(name: str, run: Path, tower: Tower) -> str:
    """Return the name of a run's copy of a preset.

    A run may come from others, so opening it must not download or read the preset that its recipe names.

    Args:
        name: name of the preset.
        run: the run directory.
        tower: the part.

    Raises:
        DataError: if the run has no copy in keras-hub's format.
    """
    folder = run / KEPT / tower
    content = read_part(folder, CONFIG)
    if content is None or "registered_name" not in content:
        raise DataError(
            f"The run {run} must hold a copy of its preset {name!r} in {folder.relative_to(run)}, so that it opens "
            "without it. Restore the copy, or train or import the run again."
        )
    return f"{PREFIX}{folder.resolve()}"


def display_name(name: str) -> str:
    """Return the original name of a preset or of a run's copy; other names unchanged.

    Example:

    >>> display_name("hub:clip_vit_base_patch16"), display_name("MobileNetV2")
    ('hub:clip_vit_base_patch16', 'MobileNetV2')
    """
    kept = Path(source_of(name)) / _NAME
    return read_text(kept).strip() if name.startswith(PREFIX) and kept.is_file() else name


def preset_directory(name: str) -> Path:
    """Return a directory with the description of a preset in keras-hub's format, possibly without weights.

    Args:
        name: name with or without `hub:`.

    Returns:
        The preset's directory, or a temporary one that lasts until the process ends, downloaded once.

    Raises:
        DataError: for an unknown preset, a failed download, or a directory without a preset.
    """
    source = source_of(name)
    path = Path(source)
    if not path.is_dir():
        return Path(_fetched(source).name)
    there = [layout.config_file for layout in LAYOUTS if (path / layout.config_file).is_file()]
    if not there:
        raise DataError(
            f"{path} must be a preset of keras-hub with a {CONFIG}. Write one with save_to_preset, or pass the "
            "directory of a downloaded preset."
        )
    # Presets of other libraries have another format.
    content = read_json(path / there[0], "preset")
    if isinstance(content, dict) and "registered_name" in content:
        return path
    return Path(_fetched(str(path.resolve())).name)


def keep_preset(name: str, run: Path, tower: Tower) -> None:
    """Copy the description of a tower and its preprocessing into a run directory, without weights.

    The copy is a preset, see `kept_name`.

    Args:
        name: name of the preset.
        run: the run directory.
        tower: the part to copy.

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
        raise DataError(f"Cannot copy the preset {name!r} to {folder}: {error}.") from error


def read_part(directory: Path, file: str) -> dict[str, Any] | None:
    """Return the arguments in a file of a preset; None if the file is missing.

    Raises:
        DataError: for a malformed file.
    """
    if not (directory / file).is_file():
        return None
    content = read_json(directory / file, "preset")
    fields = content if isinstance(content, dict) else {}
    if not isinstance(fields.get("config"), dict) or not isinstance(fields.get("class_name"), str):
        raise DataError(f"{directory / file} must have a `config` and a `class_name`. Write it with save_to_preset.")
    return fields


@contextmanager
def opening(source: str) -> Iterator[None]:
    """Convert any error of keras-hub to one line with the fix.

    Raises:
        DataError: for any error inside.
    """
    try:
        yield
    except VsembError:
        raise
    except Exception as error:  # keras-hub raises many types.
        where = Path(source)
        if where.is_dir():
            raise DataError(f"keras-hub cannot open the preset in {where} ({one_line(error, 200)}).") from error
        handle = _presets().get(source, {}).get("kaggle_handle", source)
        raise DataError(
            f"Cannot get the preset {source!r} of keras-hub ({one_line(error, 160)}). Without a network, download the "
            f"files of {handle} elsewhere and pass their directory: {PREFIX}DIRECTORY."
        ) from error


def _presets() -> dict[str, Any]:
    import keras_hub

    presets: dict[str, Any] = keras_hub.models.Backbone.presets
    return presets


@functools.cache
def _fetched(source: str) -> tempfile.TemporaryDirectory[str]:
    """Write the description of a named preset, or of another library's preset, into a directory."""
    import keras_hub

    folder: tempfile.TemporaryDirectory[str] = tempfile.TemporaryDirectory(prefix="vsemb-preset-")
    path = Path(folder.name)
    checkpoint = open_checkpoint(source)
    if checkpoint is not None:
        with opening(source):
            checkpoint.describe(path)
        return folder
    if "://" not in source and not os.path.isdir(source) and source not in _presets():
        names = [f"{PREFIX}{name}" for name in _presets()]
        error = unknown_name("preset", f"{PREFIX}{source}", names)
        raise DataError(f"{error} A directory of this name does not exist either.")
    with opening(source):
        backbone = keras_hub.models.Backbone.from_preset(source, load_weights=False)
        write_json(path / CONFIG, _uncompiled(keras.saving.serialize_keras_object(backbone)))
        kind = type(backbone).__name__
        if kind in DUAL:
            preprocessor = getattr(keras_hub.models, DUAL[kind])
            preprocessor.from_preset(source).save_to_preset(folder.name)
        elif kind in _STATES:
            keras_hub.tokenizers.Tokenizer.from_preset(source).save_to_preset(folder.name)
            return folder
        if not (path / CONVERTER).exists():
            converter = keras_hub.layers.ImageConverter.from_preset(source)
            converter.save_to_preset(folder.name)
    return folder


def _uncompiled(content: Any) -> Any:
    """Return a serialized network as keras-hub writes it, without compile and build configuration."""
    if not isinstance(content, dict):
        return content
    return {key: _uncompiled(value) for key, value in content.items() if key not in ("compile_config", "build_config")}


def load_network(name: str, dtype: Any = "float32") -> keras.Model:
    """Open a preset's network with its weights, downloaded by keras-hub if necessary.

    Raises:
        DataError: if it cannot be loaded.
    """
    import keras_hub

    source = source_of(name)
    directory = preset_directory(name)
    checkpoint = open_checkpoint(source)
    with opening(source):
        if checkpoint is not None:
            network = read_part(directory, CONFIG)
            assert network is not None
            return checkpoint.with_weights(build_network(network, dtype))
        return keras_hub.models.Backbone.from_preset(source, dtype=dtype)


def build_network(network: Mapping[str, Any], dtype: Any = "float32") -> keras.Model:
    """Build a network with random weights from keras-hub's configuration.

    Raises:
        DataError: if keras-hub cannot build it.
    """
    import keras_hub

    with tempfile.TemporaryDirectory(prefix="vsemb-preset-") as folder:
        write_json(Path(folder) / CONFIG, dict(network))
        with opening(folder):
            built = keras_hub.models.Backbone.from_preset(folder, load_weights=False, dtype=dtype)
    for weight in built.weights:
        # CLIP's position ids are stored with the weights and are 0 without them.
        if weight.name == "position_ids":
            weight.assign(np.arange(math.prod(weight.shape)).reshape(weight.shape))
    if SETTINGS in network:
        with opening("the copy of a preset"):
            _set(built, network[SETTINGS]["activation"], float(network[SETTINGS]["epsilon"]))
    return built


def _set(network: Any, activation: str, epsilon: float) -> None:
    """Set the activation of a Transformer, and the epsilon of its normalizations."""
    network.embeddings_layer_norm.epsilon = epsilon
    for layer in network.transformer_layers:
        layer.activation = layer._feedforward_intermediate_dense.activation = keras.activations.get(activation)
        layer.layer_norm_epsilon = epsilon
        layer._self_attention_layer_norm.epsilon = layer._feedforward_layer_norm.epsilon = epsilon


def text_network(network: keras.Model, pooling: str = EMBEDDING[0], padding: int = 0) -> keras.Model:
    """Return a text network: published token ids (batch, steps) -> (batch, dim).

    Args:
        network: a dual encoder, or a BERT, RoBERTa or XLM-R.
        pooling: one of `poolings(type(network).__name__)`. The mean includes the vectors of start and end.
        padding: published id of padding, which is masked outside dual encoders.

    Raises:
        DataError: for a network without a text tower.
    """
    kind = type(network).__name__
    ids = keras.Input((None,), dtype="int32", name="token_ids")
    if kind not in _STATES:
        _need_dual(network)
        return keras.Model(ids, network.get_text_embeddings(ids), name="text_network")
    mask = keras.ops.not_equal(ids, padding)
    states = _STATES[kind](network, ids)
    for layer in network.transformer_layers:
        states = layer(states, padding_mask=mask)
    if pooling == "mean":
        pooled = keras.layers.GlobalAveragePooling1D(dtype="float32", name="mean")(states, mask=mask)
    else:
        pooled = states[:, 0]
    return keras.Model(ids, pooled, name="text_network")


def poolings(class_name: str) -> tuple[str, ...]:
    """Return the poolings of a text network, the default first.

    Args:
        class_name: name of the network's class in keras-hub.
    """
    return POOLINGS if class_name in _STATES else EMBEDDING


def _bert_states(network: Any, ids: Any) -> Any:
    tokens = network.token_embedding(ids)
    # All tokens are of the first segment.
    segments = network.segment_embedding(keras.ops.zeros_like(ids))
    return _normalized(network, network.embeddings_add((tokens, network.position_embedding(tokens), segments)))


def _roberta_states(network: Any, ids: Any) -> Any:
    return _normalized(network, network.embeddings(ids))


def _normalized(network: Any, vectors: Any) -> Any:
    return network.embeddings_dropout(network.embeddings_layer_norm(vectors))


# Networks with a vector per token -> the input of their first layer. Layers are applied one by one, so that a saved
# model has their settings.
_STATES: dict[str, Callable[[Any, Any], Any]] = {
    "BertBackbone": _bert_states,
    "RobertaBackbone": _roberta_states,
    "XLMRobertaBackbone": _roberta_states,
}
#: Classes of networks that are text towers only.
TEXT = tuple(_STATES)


def learned_scale(network: keras.Model) -> tuple[float, float | None]:
    """Return the learned logit scale and bias of a dual encoder; only SigLIP has a bias, others have None.

    Raises:
        DataError: for a network with one tower.
    """
    _need_dual(network)
    head = next(layer for layer in network.layers if hasattr(layer, "logit_scale"))
    factor = math.exp(float(keras.ops.convert_to_numpy(head.logit_scale)))
    bias = getattr(head, "logit_bias", None)
    return factor, None if bias is None else float(keras.ops.convert_to_numpy(bias))


def _need_dual(network: keras.Model) -> None:
    if type(network).__name__ not in DUAL:
        raise DataError(
            f"The preset must be {' or '.join(DUAL)}, with a text tower; got {type(network).__name__}. To use it as an "
            "image tower: vsemb features DATA --backbone hub:PRESET"
        )

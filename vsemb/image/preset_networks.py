"""Image networks of keras-hub's presets: what comes behind them, and their random weights."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np

from vsemb.configured import Configured
from vsemb.errors import DataError, invalid_argument, unknown_name
from vsemb.image.pooling import pooled_map
from vsemb.presets import ImagePreset, build_network, image_network, load_network

Tensor = Any

#: What the network of a preset gives -> the poolings that make features of it, the first by default.
POOLINGS = {
    "embedding": ("embedding",),
    "patches": ("token", "mean", "max", "mean+max", "flat"),
    "map": ("mean", "max", "mean+max", "flat", "pyramid"),
}
# Of the matrices of transformers, as in BERT and ViT.
_DEVIATION = 0.02


@keras.saving.register_keras_serializable(package="vsemb")
class PatchPooling(Configured, keras.layers.Layer):
    """Makes one vector of those that a transformer gives an image.

    Args:
        pooling: `"token"`, the first, which is the class token; `"mean"`, `"max"` or `"mean+max"` of the
            patches, or `"flat"`, all of them side by side.
        before: how many vectors come before those of the patches.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        vectors: (batch, before + patches, dim) float.

    Returns:
        (batch, dim), (batch, 2 dim) for `"mean+max"`, (batch, patches dim) for `"flat"`.

    Example:

    >>> PatchPooling("mean", 1)(np.float32([[[9.0], [1.0], [3.0]]])).numpy().tolist()
    [[2.0]]
    """

    def __init__(self, pooling: str, before: int = 0, **kwargs: Any) -> None:
        if pooling not in POOLINGS["patches"]:
            raise unknown_name("pooling", pooling, POOLINGS["patches"])
        if pooling == "token" and before < 1:
            raise invalid_argument("pooling", pooling, "another for a network without class token")
        super().__init__(**kwargs)
        self.keep_arguments(locals())

    def call(self, vectors: Tensor) -> Tensor:
        if self.pooling == "token":
            return vectors[:, 0]
        patches = vectors[:, self.before :]
        if self.pooling == "flat":
            return keras.ops.reshape(patches, (-1, patches.shape[1] * patches.shape[2]))
        pooled = []
        if self.pooling in ("mean", "mean+max"):
            pooled.append(keras.ops.mean(patches, axis=1))
        if self.pooling in ("max", "mean+max"):
            pooled.append(keras.ops.max(patches, axis=1))
        return pooled[0] if len(pooled) == 1 else keras.ops.concatenate(pooled, axis=-1)


def default_pooling(preset: ImagePreset) -> str:
    """Returns the pooling that is used where none is asked for."""
    if preset.kind == "patches" and not preset.before_patches:
        return "mean"
    return POOLINGS[preset.kind][0]


def check_pooling(preset: ImagePreset, name: str, pooling: str) -> None:
    """Refuses a pooling that makes nothing of what the network gives.

    Args:
        preset: the network.
        name: what it is called.
        pooling: the pooling.

    Raises:
        InvalidArgumentError: naming those that do.
    """
    allowed = POOLINGS[preset.kind]
    if preset.kind == "patches" and not preset.before_patches:
        allowed = allowed[1:]
    if pooling not in allowed:
        raise invalid_argument("pooling", pooling, f"one of {', '.join(allowed)} for {name}")


def preset_network(preset: ImagePreset, name: str, seed: int, *, own_weights: bool = False) -> keras.Model:
    """Builds the network of a preset, without scaling and pooling.

    Args:
        preset: the network.
        name: of the preset.
        seed: of random weights.
        own_weights: whether it has the preset's weights, and not random ones.

    Returns:
        A model from scaled pixels to a map, vectors of patches, or an embedding.

    Raises:
        DataError: if the preset's weights cannot be got, or are of another network.
    """
    network = image_network(build_network(preset.network))
    ranks = {"map": 4, "patches": 3, "embedding": 2}
    outputs = network.outputs
    if len(outputs) != 1 or len(outputs[0].shape) != ranks[preset.kind] or len(network.inputs) != 1:
        raise DataError(
            f"The network of the preset {name!r}, a {preset.network.get('class_name')}, is none of those "
            "known here, which give a map of the image, a vector a patch (ViT, DeiT, DINOv2), or an "
            "embedding (CLIP, SigLIP)."
        )
    if not own_weights:
        _draw(network, seed)
        return network
    own = image_network(load_network(name))
    if [weight.shape for weight in own.weights] != [weight.shape for weight in network.weights]:
        raise DataError(f"The preset {name!r} is of another network now than when it was named first.")
    return own


def pooled_vectors(features: Any, preset: ImagePreset, pooling: str) -> Any:
    """Makes one vector an image of what a preset's network gives, in a functional model."""
    if preset.kind == "patches":
        return PatchPooling(pooling, preset.before_patches, name="pooled")(features)
    return features if preset.kind == "embedding" else pooled_map(features, pooling)


def scaling_of(preset: ImagePreset) -> keras.layers.Layer | None:
    """Returns what a preset wants done to its pixels, in float32; None for nothing."""
    if preset.scale is None and preset.offset is None:
        return None
    scale = 1.0 if preset.scale is None else preset.scale
    offset = 0.0 if preset.offset is None else preset.offset
    return keras.layers.Rescaling(scale, offset, dtype="float32", name="scaling")


def _draw(network: keras.Model, seed: int) -> None:
    """Draws He-normal kernels of convolutions, and matrices and tokens as in ViT; constants stay."""
    random = np.random.default_rng(seed)
    for weight in network.trainable_weights:
        if len(weight.shape) < 2:
            if weight.name == "bias":
                weight.assign(np.zeros(weight.shape, np.float32))
            elif np.ptp(keras.ops.convert_to_numpy(weight)) > 0:
                weight.assign(random.standard_normal(weight.shape, np.float32) * _DEVIATION)
            continue
        inputs = math.prod(weight.shape[:2] if weight.shape[-1] == 1 else weight.shape[:-1])
        deviation = math.sqrt(2.0 / inputs) if len(weight.shape) == 4 else _DEVIATION
        weight.assign(random.standard_normal(weight.shape, np.float32) * deviation)

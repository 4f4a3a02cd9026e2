"""From the maps of a convolutional network to one vector an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from vsemb.errors import invalid_argument
from vsemb.image.pyramid import PyramidPooling


def pooled_map(features: Any, pooling: str, levels: Sequence[Any] = ()) -> Any:
    """Pools the last map of a convolutional network, and inner ones, over their places.

    Args:
        features: the last map, (batch, height, width, channels), of a functional model.
        pooling: `"mean"`, `"max"`, `"mean+max"`, `"multilevel"`, `"flat"` or `"pyramid"`, see
            `BackboneConfig`.
        levels: inner maps, whose means come behind.

    Returns:
        (batch, dim), of a functional model.

    Raises:
        InvalidArgumentError: if the map is too small for it.
    """
    pooled = []
    if pooling in ("mean", "mean+max", "multilevel"):
        pooled.append(keras.layers.GlobalAveragePooling2D(name="mean")(features))
    if pooling in ("max", "mean+max", "multilevel"):
        pooled.append(keras.layers.GlobalMaxPooling2D(name="max")(features))
    if pooling == "flat":
        pooled.append(keras.layers.Flatten(name="flat")(features))
    if pooling == "pyramid":
        height, width = features.shape[1:3]
        if min(height, width) < 3:
            fix = "Give the network larger images."
            raise invalid_argument("pooling", pooling, f"another for a last map of {height} x {width}", fix)
        pooled.append(PyramidPooling(name="pyramid")(features))
    for number, level in enumerate(levels):
        pooled.append(keras.layers.GlobalAveragePooling2D(name=f"level_{number}")(level))
    return pooled[0] if len(pooled) == 1 else keras.layers.Concatenate(name="pooled")(pooled)

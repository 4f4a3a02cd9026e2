"""Pooling of a network's feature maps, or of its vectors of patches, to one vector per image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from vsemb.configured import Configured
from vsemb.errors import invalid_argument

#: Poolings of a map.
MAP_POOLINGS = ("mean", "max", "mean+max", "regional", "flat", "pyramid")

# Side and stride of the regions of "regional", in grid cells.
_REGION, _STRIDE = 5, 2


def pooled_map(features: Any, pooling: str, levels: Sequence[Any] = ()) -> Any:
    """Pool the last map of a network, and inner maps, over their grid cells.

    Args:
        features: the last map, (batch, height, width, channels), of a functional model.
        pooling: one of `MAP_POOLINGS`, or `"multilevel"`, see `BackboneConfig`.
        levels: inner maps, whose means are appended.

    Returns:
        (batch, dim), of a functional model.

    Raises:
        InvalidArgumentError: if the map is too small for the pooling.
    """
    pooled = []
    if pooling in ("mean", "mean+max", "multilevel", "regional"):
        pooled.append(keras.layers.GlobalAveragePooling2D(name="mean")(features))
    if pooling in ("max", "mean+max", "multilevel"):
        pooled.append(keras.layers.GlobalMaxPooling2D(name="max")(features))
    if pooling == "regional":
        maxima = keras.layers.MaxPooling2D(min(_REGION, *features.shape[1:3]), _STRIDE, name="maxima")(features)
        pooled.append(keras.layers.GlobalAveragePooling2D(name="regions")(maxima))
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


@keras.saving.register_keras_serializable(package="vsemb")
class PyramidPooling(Configured, keras.layers.Layer):
    """Compute the maximum of each channel over the whole map and over the cells of grids (He et al. 2014).

    The maximum over the map does not depend on positions; maxima over cells keep rough positions. Adjacent cells
    overlap by at most one row or column of the map, if the grid does not divide it.

    Args:
        levels: cells per side of each grid; 1 is the whole map.

    Call args:
        features: (batch, height, width, channels), with static height and width, each at least the largest level.

    Returns:
        (batch, sum of levels² x channels): grids in their order, cells row by row.

    Raises:
        InvalidArgumentError: for levels below 1, or above the size of the map.

    Example:

    >>> features = ops.reshape(ops.arange(9, dtype="float32"), (1, 3, 3, 1))
    >>> ops.convert_to_numpy(PyramidPooling((1, 2))(features)).tolist()
    [[8.0, 4.0, 5.0, 7.0, 8.0]]

    References:
        He, Zhang, Ren, Sun. Spatial Pyramid Pooling in Deep Convolutional Networks for Visual Recognition.
        ECCV 2014.
    """

    def __init__(self, levels: tuple[int, ...] = (1, 3), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not levels or min(levels) < 1:
            raise invalid_argument("levels", levels, "integers >= 1")
        self.levels = tuple(levels)

    def call(self, features: Any) -> Any:
        height, width = features.shape[1:3]
        if max(self.levels) > min(height, width):
            raise invalid_argument("features", features.shape, f"a map of {max(self.levels)} places a side")
        cells = [
            ops.max(features[:, top:bottom, left:right], axis=(1, 2))
            for level in self.levels
            for top, bottom in _cells(height, level)
            for left, right in _cells(width, level)
        ]
        return ops.concatenate(cells, axis=-1)


def _cells(size: int, level: int) -> list[tuple[int, int]]:
    """Return the start and end (exclusive) of each cell along a side."""
    return [(number * size // level, -(-(number + 1) * size // level)) for number in range(level)]

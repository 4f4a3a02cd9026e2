"""Image encoder that maps the cells of a feature map one by one, and pools them with learned weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import keras
from keras import ops

from vsemb.configured import Configured, build_layers
from vsemb.encoders.generalized_pooling import GeneralizedPooling
from vsemb.encoders.image import ImageEncoder, Projection
from vsemb.errors import invalid_argument
from vsemb.parts import Count, Size

Tensor = Any


def channels_of(size: int, cells: int) -> int:
    """Return the channels of a flat map.

    Args:
        size: size of the map's row, cells x channels.
        cells: number of cells.

    Raises:
        InvalidArgumentError: if `size` is not a multiple of `cells`.

    Example:

    >>> channels_of(49 * 1280, 49)
    1280
    """
    channels, rest = divmod(size, cells)
    if rest or not channels:
        fix = "Features with pooling='flat' have height x width cells."
        raise invalid_argument("features", size, f"a multiple of cells={cells} in a row", fix)
    return channels


@keras.saving.register_keras_serializable("vsemb")
class PooledMapEncoder(Configured, keras.layers.Layer):
    """Embed the map of a convolutional network: an affine map of each cell, then generalized pooling over the cells.

    VSE infinity (Chen et al. 2021, arXiv:2011.04305), section 4: "grid" features. The paper has an MLP beside the
    affine map for features of regions, and none for grids.

    Args:
        encoder: layer from flat maps to flat maps: an `ImageEncoder` without projection, which drops and scales.
        dim: size of the embedding.
        cells: number of cells, height x width of the map.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        features: (batch, cells x channels) float, cell by cell, as returned by pooling `flat`.
        training: whether the encoder's dropout acts.

    Returns:
        (batch, dim).

    Raises:
        InvalidArgumentError: if a number is < 1, or the size of the features is not a multiple of `cells`.

    Example:

    >>> PooledMapEncoder(ImageEncoder(12, projection=False), dim=8, cells=4)(ops.ones((2, 12))).shape
    TensorShape([2, 8])
    """

    def __init__(self, encoder: keras.layers.Layer, dim: Count, cells: Count, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self.cell_map = keras.layers.Dense(dim, dtype=self.dtype_policy, name="cell_map")
        self.pooling = GeneralizedPooling(dtype=self.dtype_policy)

    @property
    def scaling(self) -> Any:
        """Feature scaling of the encoder, or None."""
        return getattr(self.encoder, "scaling", None)

    def build(self, input_shape: Any) -> None:
        of_cells = (input_shape[0], self.cells, channels_of(input_shape[-1], self.cells))
        build_layers((self.encoder, input_shape), (self.cell_map, of_cells), (self.pooling, (*of_cells[:2], self.dim)))

    def call(self, features: Tensor, training: bool = False) -> Tensor:
        features = self.encoder(features, training=training)
        cells = ops.reshape(features, (-1, self.cells, features.shape[-1] // self.cells))
        return self.pooling(self.cell_map(cells))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return (*input_shape[:-1], self.dim)


@dataclass(frozen=True)
class PooledMap(Projection, kind="pooled-map"):
    """An affine map of each cell of a map, then generalized pooling; reads features of pooling `flat`.

    Attributes:
        cells: number of cells, height x width of the map; 49 for most networks with images of 224 pixels.
    """

    needs_size: ClassVar[bool] = True

    cells: Size = 49

    def build(self, features: int | None, dim: int, **options: Any) -> PooledMapEncoder:
        assert features is not None
        inner = ImageEncoder(features, projection=False, **options)
        return PooledMapEncoder(inner, dim, self.cells, dtype=options["dtype"])

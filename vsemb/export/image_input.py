"""How the bytes of an image become what a model's image encoder takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import keras
import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.image.backbones import BackboneConfig
from vsemb.image.decode import decode_images
from vsemb.image.views import encode_images

if TYPE_CHECKING:
    from vsemb.systems.regions.image import RegionExtractor


@dataclass(frozen=True, eq=False)
class ImageInput:
    """How image bytes become what a model's image encoder takes.

    Attributes:
        config: the backbone: its `size` and `crops` say what the bytes are decoded to.
        backbone: the network behind the features that the model was trained on; None where the
            model was trained from pixels and holds its backbone itself.
        regions: what finds and describes the regions of an image, where the model takes a set of them; None
            where it takes an image as a whole.

    Example:

    >>> pixels, valid = ImageInput(BackboneConfig("SmallConvNet"))(tf.constant([b"no image"]))
    >>> pixels.shape, valid.numpy().tolist()
    (TensorShape([1, 64, 64, 3]), [False])
    """

    config: BackboneConfig
    backbone: keras.Model | None = None
    regions: RegionExtractor | None = None

    def __post_init__(self) -> None:
        if self.backbone is None and self.config.crops != 1:
            raise invalid_argument("crops", self.config.crops, "1 for a model from pixels")

    def __call__(self, encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Decodes: string (batch,) to ((batch, ...) float32, valid (batch,) bool)."""
        if self.regions is not None:
            found = self.regions(encoded)
            return found.features, found.valid
        if self.backbone is None:
            return decode_images(encoded, self.config.size)
        return encode_images(self.backbone, self.config, encoded)

    @property
    def wants_boxes(self) -> bool:
        """Whether candidate boxes have to come with an image, since none are proposed in graph."""
        return self.regions is not None and not self.regions.regions.in_graph

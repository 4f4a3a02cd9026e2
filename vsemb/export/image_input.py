"""How the bytes of an image become what a model's image encoder takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.export.exportable import Signature
from vsemb.export.reference_outputs import Arrays, golden_images
from vsemb.export.rows import Outputs, embedding_rows, first_rows, one_row_at_least
from vsemb.image.backbones import BackboneConfig
from vsemb.image.decode import MAX_PIXELS, decode_images
from vsemb.image.views import encode_images


@dataclass(frozen=True, eq=False)
class ImageInput:
    """How image bytes become what a model's image encoder takes.

    Systems whose models take something else of an image than one row bring a subclass.

    Attributes:
        config: the backbone: its `size` and `crops` say what the bytes are decoded to.
        backbone: the network behind the features that the model was trained on; None where the
            model was trained from pixels and holds its backbone itself.

    Class attributes:
        multi_vector: whether an image becomes a set of vectors.

    Example:

    >>> pixels, valid = ImageInput(BackboneConfig("SmallConvNet"))(tf.constant([b"no image"]))
    >>> pixels.shape, valid.numpy().tolist()
    (TensorShape([1, 64, 64, 3]), [False])
    """

    multi_vector: ClassVar[bool] = False

    config: BackboneConfig
    backbone: keras.Model | None = None

    def __post_init__(self) -> None:
        if self.backbone is None and self.config.crops != 1:
            raise invalid_argument("crops", self.config.crops, "1 for a model from pixels")

    def __call__(self, encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Decodes: string (batch,) to ((batch, ...) float32, valid (batch,) bool)."""
        if self.backbone is None:
            return decode_images(encoded, self.config.size)
        return encode_images(self.backbone, self.config, encoded)

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        """The inputs of `encode_image`, the bytes first."""
        return (tf.TensorSpec([None], tf.string, name="image_bytes"),)

    def rows(self, model: Any, image_bytes: tf.Tensor, **more: tf.Tensor) -> Outputs:
        """Embeds images: what `encode_image` computes.

        Args:
            model: the trained model.
            image_bytes: (batch,) string.
            **more: the other inputs, see `specs`.

        Returns:
            `embedding`, `valid`, and what else a subclass gives.
        """
        assert not more
        rows = tf.shape(image_bytes)[0]
        images, valid = self(one_row_at_least(image_bytes))
        return first_rows(embedding_rows(model.encode_images(images), valid), rows)

    def examples(self) -> Arrays:
        """Returns golden rows of `specs`."""
        return {"image_bytes": np.array(golden_images(), object)}

    def signatures(self, served: Any) -> Sequence[Signature]:
        """Returns signatures that only models with these images have.

        Args:
            served: the `vsemb.export.ServedModel`.
        """
        del served
        return ()

    def limits(self) -> list[str]:
        """Returns sentences for the model card."""
        return [f"Images are JPEG or PNG, of {MAX_PIXELS:,} pixels at most."]

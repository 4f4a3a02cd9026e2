"""What networks want done to RGB pixels before they see them."""

from __future__ import annotations

from typing import Any, Literal

import keras

from vsemb.configured import Configured


@keras.saving.register_keras_serializable(package="vsemb")
class PixelScaling(Configured, keras.layers.Layer):
    """Scales RGB pixels in 0..255 the way a network was trained: `keras.applications`' three modes.

    Always computes in float32: bfloat16 has 8 bits of precision, fewer than the pixels.

    Args:
        mode: `"tf"`, `"caffe"` or `"torch"`.

    Call args:
        pixels: (batch, height, width, 3), RGB in 0..255.

    Example:

    >>> import numpy as np
    >>> float(PixelScaling("tf")(np.full((1, 1, 1, 3), 255.0))[0, 0, 0, 0])
    1.0
    """

    def __init__(self, mode: Literal["tf", "caffe", "torch"], **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.keep_arguments(locals())

    def call(self, pixels: Any) -> Any:
        """Returns the scaled pixels, same shape."""
        if self.mode == "tf":
            return pixels / 127.5 - 1.0
        if self.mode == "caffe":
            bgr = keras.ops.flip(pixels, axis=-1)
            return bgr - keras.ops.convert_to_tensor([103.939, 116.779, 123.68], "float32")
        mean = keras.ops.convert_to_tensor([0.485, 0.456, 0.406], "float32")
        deviation = keras.ops.convert_to_tensor([0.229, 0.224, 0.225], "float32")
        return (pixels / 255.0 - mean) / deviation

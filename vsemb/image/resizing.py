"""Resize images as a preset says, in graph: interpolation, antialiasing, and what happens to the aspect ratio."""

from __future__ import annotations

from typing import NamedTuple

from vsemb.ops.tensorflow import tf

#: Methods of `tf.image.resize` that keras-hub supports.
INTERPOLATIONS = ("bilinear", "nearest", "bicubic", "lanczos3", "lanczos5", "area")

# Methods of `tf.image.resize` -> kernels of the operation.
_KERNELS = {"bilinear": "triangle", "bicubic": "keyscubic"}


class Resizing(NamedTuple):
    """How an image becomes a square; all but the last two are fields of keras-hub's `ImageConverter`.

    It is a tuple, because `tf.function` compares tuples by value.

    Attributes:
        interpolation: one of `INTERPOLATIONS`.
        antialias: whether a filter avoids aliasing where the image becomes smaller; no effect for `"nearest"` and
            `"area"`.
        crop_to_aspect_ratio: whether the largest square in the centre is cut out first.
        pad_to_aspect_ratio: whether black bars make the image a square first.
        crop_after_resize: whether the shorter side is resized first, the longer one by the same factor and rounded
            down to whole pixels, and then the centre is cut out, as in torchvision. `crop_to_aspect_ratio` cuts whole
            pixels of the image as it was. Only for bilinear and bicubic interpolation with antialiasing.
        even_offset: whether the offset of this centre, if it is half a pixel, is rounded to an even one, as in
            torchvision and open_clip, and not down, as in the transformers library.
    """

    interpolation: str = "bilinear"
    antialias: bool = False
    crop_to_aspect_ratio: bool = False
    pad_to_aspect_ratio: bool = False
    crop_after_resize: bool = False
    even_offset: bool = False

    def describe(self) -> str:
        """Return the fields in words.

        Example:

        >>> Resizing("bicubic", crop_to_aspect_ratio=True).describe()
        'cropped to the centre, bicubic without antialiasing'
        """
        shape = "squashed"
        if self.crop_to_aspect_ratio or self.crop_after_resize:
            shape = "cropped to the centre"
        elif self.pad_to_aspect_ratio:
            shape = "padded with black"
        return f"{shape}, {self.interpolation} {'with' if self.antialias else 'without'} antialiasing"


def resize_image(image: tf.Tensor, size: int, resizing: Resizing) -> tf.Tensor:
    """Resize one image to a square, as `keras.layers.Resizing` does.

    Args:
        image: (rows, columns, channels), any number type.
        size: height and width of the result in pixels.
        resizing: how to resize.

    Returns:
        float32 (size, size, channels), not rounded. With `"bicubic"` and Lanczos, values may be outside the range of
        the image.

    Example:

    >>> image = tf.constant([[10.0, 20.0, 30.0, 40.0]] * 2)[..., None]
    >>> resize_image(image, 2, Resizing(crop_to_aspect_ratio=True))[..., 0].numpy().tolist()
    [[20.0, 30.0], [20.0, 30.0]]
    >>> resize_image(image, 2, Resizing("area", pad_to_aspect_ratio=True))[..., 0].numpy().tolist()
    [[7.5, 17.5], [7.5, 17.5]]
    """
    rows, columns, _ = tf.unstack(tf.shape(image))
    if resizing.crop_after_resize:
        return _resize_and_crop(image, size, resizing)

    def resampled(pixels: tf.Tensor, sides: object) -> tf.Tensor:
        method, antialias = resizing.interpolation, resizing.antialias
        return tf.cast(tf.image.resize(pixels, sides, method, antialias=antialias), tf.float32)

    if resizing.crop_to_aspect_ratio:
        side = tf.minimum(rows, columns)
        top, left = (rows - side) // 2, (columns - side) // 2
        image = image[top : top + side, left : left + side]
    if resizing.pad_to_aspect_ratio:
        side = tf.maximum(rows, columns)
        top, left = (side - rows) // 2, (side - columns) // 2
        # The longer side is resized before the bars are added: padded, a thin image can have 10,000 times its pixels.
        longer = tf.stack([tf.where(top > 0, rows, size), tf.where(left > 0, columns, size)])
        image = tf.pad(resampled(image, longer), [[top, top], [left, left], [0, 0]])
    return resampled(image, (size, size))


def _resize_and_crop(image: tf.Tensor, size: int, resizing: Resizing) -> tf.Tensor:
    """Resize the shorter side to `size` and cut out the centre, without computing pixels outside of it."""
    sides = tf.shape(image)[:2]
    resized = sides * size // tf.reduce_min(sides)
    # TensorFlow rounds halves to even numbers, too.
    start = tf.round((resized - size) / 2) if resizing.even_offset else (resized - size) // 2
    return tf.raw_ops.ScaleAndTranslate(
        images=image[tf.newaxis],
        size=(size, size),
        scale=tf.cast(resized / sides, tf.float32),
        translation=-tf.cast(start, tf.float32),
        kernel_type=_KERNELS[resizing.interpolation],
        antialias=True,
    )[0]

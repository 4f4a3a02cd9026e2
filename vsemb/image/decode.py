"""Decode images to pixels in graph; a bad image does not affect other rows of the batch.

The images of a request are not trusted, so each is checked before it is decoded: the magic bytes must
be JPEG's or PNG's, and the size in the header must be within a limit. (The generic `tf.io.decode_image`
allocates memory before any check: 1.4 GB for a progressive JPEG of 519 bytes.)

TensorFlow has no `try` inside a graph, so an op that fails stops the whole batch. Only a `tf.data` pipeline can ignore
errors. Here, each row is an element of such a pipeline, failed elements are dropped, and the others are put back at
their rows. The pipeline consists of core ops and is saved in a SavedModel like any other function.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from vsemb.errors import invalid_argument
from vsemb.image.orientation import jpeg_orientation, png_orientation, rare, refuse_unless
from vsemb.image.resizing import Resizing, resize_image
from vsemb.ops.tensorflow import tf
from vsemb.parts import Count, require

#: Default limit of an image's pixels (width x height in its header); larger images are rejected.
MAX_PIXELS = 50_000_000
# Limit of each side, that of JPEG.
_MAX_SIDE = 65_535

# JPEGs are decoded at the largest of these reductions that is not below the requested size, as in Pillow's `draft`.
_RATIOS = (1, 2, 4, 8)

_JPEG_MAGIC = b"\xff\xd8\xff"
# Positions of crops (down, across), as fractions of the image's side minus the crop's: upper left, upper right, lower
# left, lower right, centre.
CENTRE = (0.5, 0.5)
CORNERS_AND_CENTRE = ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0), CENTRE)

_PNG_MAGIC = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


def decode_images(
    encoded: tf.Tensor, size: int, max_pixels: int = MAX_PIXELS, resizing: Resizing | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Decode a batch of JPEG and PNG images and resize each to a square.

    Without `resizing`, the whole image is squashed to `size` x `size` (bilinear, with antialiasing). The aspect ratio
    is not kept, because captions describe the whole image. A JPEG whose sides are at least 2, 4 or 8 times `size` is
    first decoded at that reduced scale, as in Pillow's `draft`. With `resizing`, images are decoded at full scale,
    because other interpolations see other pixels at a reduced one. A row is invalid and gets zeros if it is not a JPEG
    or PNG image, is truncated or corrupt, or has too many pixels according to its header.

    Transparent PNG pixels are composited on white, also where a transparent colour is stated (`tRNS`). Grey and palette
    images become RGB. 16-bit PNG keeps its upper 8 bits, and CMYK JPEG is converted without its colour profile. A CMYK
    or YCCK JPEG without Adobe's marker is invalid, because its colours are not known. The image is turned upright, see
    `vsemb.image.orientation`. All of this is as in `vsemb prepare`.

    Args:
        encoded: string tensor (batch,), the bytes of one image per row. The batch may be empty and its
            size unknown.
        size: height and width of the result in pixels.
        max_pixels: maximum pixels (width x height) in the header of a valid image.
        resizing: how a preset resizes images; None for the default above.

    Returns:
        `(pixels, valid)`: float32 (batch, size, size, 3) in 0..255, RGB; bool (batch,).

    Raises:
        InvalidArgumentError: if `size` or `max_pixels` is not positive.

    Example:

    >>> encoded = tf.stack([tf.io.encode_png(tf.ones((2, 3, 3), tf.uint8)), b"not an image"])
    >>> pixels, valid = decode_images(encoded, size=4)
    >>> pixels.shape, valid.numpy().tolist()
    (TensorShape([2, 4, 4, 3]), [True, False])
    """
    require("size", size, Count)
    require("max_pixels", max_pixels, Count)
    return _decode_rows(tf.convert_to_tensor(encoded, tf.string), _Target(size, resizing=resizing), max_pixels)


def decode_crops(
    encoded: tf.Tensor, size: int, shorter_side: int, places: tuple[tuple[float, float], ...] = (CENTRE,)
) -> tuple[tf.Tensor, tf.Tensor]:
    """Decode images, resize their shorter side and cut square crops; the aspect ratio is kept.

    The longer side is rounded down to whole pixels. Everything else is as in `decode_images`.

    Args:
        encoded: as in `decode_images`.
        size: height and width of a crop in pixels.
        shorter_side: pixels of the shorter side after resizing, at least `size`.
        places: position (down, across) of each crop, as fractions in [0, 1] of the image's side minus the crop's.

    Returns:
        `(pixels, valid)`: float32 (batch, crops, size, size, 3) in 0..255, RGB; bool (batch,).

    Raises:
        InvalidArgumentError: if `size` is not positive, or larger than `shorter_side`.

    Example:

    >>> encoded = tf.stack([tf.io.encode_png(tf.ones((20, 30, 3), tf.uint8))])
    >>> decode_crops(encoded, 8, 10, CORNERS_AND_CENTRE)[0].shape
    TensorShape([1, 5, 8, 8, 3])
    """
    require("size", size, Count)
    if shorter_side < size:
        raise invalid_argument("shorter_side", shorter_side, f"at least the crop's size, {size}")
    return _decode_rows(tf.convert_to_tensor(encoded, tf.string), _Target(size, shorter_side, places), MAX_PIXELS)


class _Target(NamedTuple):
    """The size of decoded pixels: the whole image squashed or resized to `size`, or crops of `size` at `places`.

    It is a tuple, because `tf.function` compares tuples by value; it would trace again for each object of most classes.
    """

    size: int
    shorter_side: int | None = None
    places: tuple[tuple[float, float], ...] = ()
    resizing: Resizing | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        square = (self.size, self.size, 3)
        return (len(self.places), *square) if self.shorter_side else square


def require_valid(pixels: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """Return the pixels of a batch, or fail if a row was not decoded.

    Args:
        pixels: (batch, ...), as `decode_images` returns them.
        valid: (batch,) bool.

    Raises:
        tf.errors.InvalidArgumentError: if a row is invalid; the message has the numbers of the rows.

    Example:

    >>> require_valid(tf.ones((1, 2)), tf.constant([True])).shape
    TensorShape([1, 2])
    """
    message = "`image` must be the bytes of JPEG or PNG images; got other bytes in these rows:"
    check = tf.debugging.Assert(tf.reduce_all(valid), [message, tf.where(~valid)[:, 0]])
    with tf.control_dependencies([check]):
        return tf.identity(pixels)


@tf.function(reduce_retracing=True, autograph=False)
def _decode_rows(encoded: tf.Tensor, target: _Target, max_pixels: int) -> tuple[tf.Tensor, tf.Tensor]:
    batch = tf.shape(encoded)[0]

    @tf.autograph.experimental.do_not_convert
    def decode(row: tf.Tensor, data: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return row, _decode_one(data, target, max_pixels)

    rows = tf.data.Dataset.from_tensor_slices((tf.range(batch), encoded))
    decoded = rows.map(decode, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors()
    # Add one row to the batch, so that there is an element to take even if all rows are invalid.
    sentinel = tf.data.Dataset.from_tensors((batch, tf.zeros(target.shape, tf.uint8)))
    everything = decoded.concatenate(sentinel).batch(tf.cast(batch, tf.int64) + 1)
    rows, pixels = everything.get_single_element()
    pixels = tf.scatter_nd(rows[:, None], pixels, tf.stack([batch + 1, *target.shape]))
    valid = tf.scatter_nd(rows[:, None], tf.ones_like(rows), batch[None] + 1) > 0
    pixels, valid = tf.cast(pixels[:batch], tf.float32), valid[:batch]
    pixels.set_shape([encoded.shape[0], *target.shape])
    valid.set_shape([encoded.shape[0]])
    return pixels, valid


def _decode_one(data: tf.Tensor, target: _Target, max_pixels: int) -> tf.Tensor:
    """Decode one string to uint8 of the target's shape, or fail with any error."""
    is_jpeg = tf.equal(tf.strings.substr(data, 0, len(_JPEG_MAGIC)), _JPEG_MAGIC)
    is_png = tf.equal(tf.strings.substr(data, 0, len(_PNG_MAGIC)), _PNG_MAGIC)
    with tf.control_dependencies([refuse_unless(is_jpeg | is_png, "neither JPEG nor PNG")]):
        data = tf.identity(data)

    def of_png() -> tuple[tf.Tensor, ...]:
        return _png_shape(data), *png_orientation(data)

    def of_jpeg() -> tuple[tf.Tensor, ...]:
        shape = _jpeg_shape(data)
        return shape, *jpeg_orientation(data, shape[2])

    shape, orientation, marked = tf.cond(is_png, of_png, of_jpeg)
    height, width, components = tf.unstack(shape)
    # Check each side too, because the product of the two may overflow int64.
    limit = min(max_pixels, _MAX_SIDE)
    allowed = (height <= limit) & (width <= limit) & (height * width <= max_pixels) & (height * width > 0)
    # Without Adobe's marker, values may be CMYK, inverted CMYK or YCCK.
    allowed &= tf.not_equal(components, 4) | marked
    # Rows are resized before columns; the intermediate result has this many values, too many for a very wide image.
    columns = tf.where(orientation > 4, height, width)
    if target.resizing is not None:
        # Columns come first in an image that gets bars at its sides.
        columns = tf.maximum(height, width)
    allowed &= columns * target.size <= MAX_PIXELS
    with tf.control_dependencies([refuse_unless(allowed, "too many pixels, or CMYK without Adobe's marker")]):
        data = tf.identity(data)
    return tf.cond(
        is_png,
        lambda: _decode_png(data, height, width, orientation, marked, target),
        lambda: _decode_jpeg(data, height, width, orientation, target),
    )


def _png_shape(data: tf.Tensor) -> tf.Tensor:
    # The IHDR chunk comes first: width at bytes 16..19, height at 20..23, big-endian (PNG, 11.2.2).
    digits = tf.cast(tf.io.decode_raw(tf.strings.substr(data, 16, 8), tf.uint8), tf.int64)
    sides = tf.reduce_sum(tf.reshape(digits, (2, 4)) * [1 << 24, 1 << 16, 1 << 8, 1], axis=1)
    return tf.stack([sides[1], sides[0], 0])


def _jpeg_shape(data: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.image.extract_jpeg_shape(data, output_type=tf.int32), tf.int64)


def _decode_jpeg(
    data: tf.Tensor, height: tf.Tensor, width: tf.Tensor, orientation: tf.Tensor, target: _Target
) -> tf.Tensor:
    def decoded(ratio: int) -> tf.Tensor:
        # Without `try_recover_truncated`, a truncated file is an error and not an image that is partly grey.
        return tf.io.decode_jpeg(
            data, channels=3, ratio=ratio, try_recover_truncated=False, dct_method="INTEGER_ACCURATE"
        )

    if target.resizing is not None:
        return _resize(_any_shape(decoded(1)), target, orientation, tf.cast(tf.stack([height, width]), tf.float32))
    # Decoding at a reduced scale saves up to half of the time, because its inverse DCT has fewer coefficients.
    enough = [tf.minimum(height, width) >= (target.shorter_side or target.size) * ratio for ratio in _RATIOS[1:]]
    number = tf.reduce_sum(tf.cast(enough, tf.int32))
    image = tf.switch_case(number, [partial(decoded, ratio) for ratio in _RATIOS])
    ratio = tf.gather(tf.constant(_RATIOS, tf.int64), number)
    # If the ratio does not divide a side, the reduced side is rounded up: its last pixel is partly outside the image.
    sides = tf.cast(tf.stack([height, width]) / ratio, tf.float32)
    return _resize(_any_shape(image), target, orientation, sides)


def _any_shape(image: tf.Tensor) -> tf.Tensor:
    """Return an image without its static shape, so that `_resize` is not traced again for it."""
    return tf.reshape(image, tf.concat([tf.shape(image)[:2], [-1]], axis=0))


def _decode_png(
    data: tf.Tensor,
    height: tf.Tensor,
    width: tf.Tensor,
    orientation: tf.Tensor,
    transparent: tf.Tensor,
    target: _Target,
) -> tf.Tensor:
    def decoded(channels: int) -> tf.Tensor:
        return tf.io.decode_png(data, channels=channels)

    # 0 for as many channels as the file has, 1 to 4. A transparent colour is read only if four are requested.
    image = tf.cond(transparent, lambda: decoded(4), lambda: decoded(0))
    channels = tf.shape(image)[-1]
    has_alpha = tf.equal(channels % 2, 0)
    sides = tf.cast(tf.stack([height, width]), tf.float32)

    def on_white() -> tf.Tensor:
        colour, alpha = tf.cast(image[..., :-1], tf.uint16), tf.cast(image[..., -1:], tf.uint16)
        # 255 x (colour over white) fits 16 bits: 255 * 255 = 65025.
        return _resize(colour * alpha + 255 * (255 - alpha), target, orientation, sides)

    resized = tf.cond(has_alpha, on_white, lambda: _resize(image, target, orientation, sides))
    # Grey is broadcast to three equal channels.
    return tf.broadcast_to(resized, target.shape)


@rare
def _upright(image: tf.Tensor, sides: tf.Tensor, orientation: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Turn (rows, columns, channels) upright from an EXIF orientation, 2 to 8.

    Returns:
        The image, its sides, and (2,) float32, the parts of the first row and column that are outside the image.
    """
    # Turned upright, the image begins with what it ended with.
    outside = tf.cast(tf.shape(image)[:2], tf.float32) - sides
    swapped = orientation > 4
    image = tf.transpose(image, tf.where(swapped, [1, 0, 2], [0, 1, 2]))
    sides = tf.where(swapped, sides[::-1], sides)
    outside = tf.where(swapped, outside[::-1], outside)
    upside_down = tf.reduce_any(tf.equal(orientation, (3, 4, 7, 8)))
    mirrored = tf.reduce_any(tf.equal(orientation, (2, 3, 6, 7)))
    turned = tf.stack([upside_down, mirrored])
    image = tf.raw_ops.Reverse(tensor=image, dims=tf.concat([turned, [False]], axis=0))
    return image, sides, tf.where(turned, outside, 0.0)


# Traced once for JPEG and PNG.
@tf.function(autograph=False)
def _resize(image: tf.Tensor, target: _Target, orientation: tf.Tensor, sides: tf.Tensor) -> tf.Tensor:
    """Resize (rows, columns, channels) to an upright square of uint8, or to crops; bilinear, antialiased by default.

    Args:
        image: uint8, or uint16 with 255 times the values.
        target: size of the result.
        orientation: EXIF orientation of the image.
        sides: (2,) float32, height and width of the image in its pixels; the last row and column may be partly outside
            the image.
    """
    image, sides, before = tf.cond(
        orientation > 1, lambda: _upright(image, sides, orientation), lambda: (image, sides, tf.zeros(2))
    )
    rows, columns, channels = tf.unstack(tf.shape(image))
    size = target.size

    def resampled(wanted: Any = (size, size), place: tuple[float, float] = (0.0, 0.0)) -> tf.Tensor:
        """Return a square crop of the image resized to `wanted`, without computing other pixels."""
        down, across = zip(tf.unstack(sides), wanted, place, tf.unstack(before), strict=True)
        values = _resize_rows(tf.reshape(image, [rows, columns * channels]), size, *down)
        swapped = tf.transpose(tf.reshape(values, [size, columns, channels]), [1, 0, 2])
        values = _resize_rows(tf.reshape(swapped, [columns, size * channels]), size, *across)
        return tf.transpose(tf.reshape(values, [size, size, channels]), [1, 0, 2])

    if target.resizing is not None:
        resized = resize_image(image, size, target.resizing)
    elif target.shorter_side is None:
        resized = tf.cond((rows == size) & (columns == size), lambda: tf.cast(image, tf.float32), resampled)
    else:
        lengths = tf.cast(sides, tf.float64)
        wanted = tf.unstack(tf.floor(lengths * target.shorter_side / tf.reduce_min(lengths)))
        resized = tf.stack([resampled(wanted, place) for place in target.places])
    # Round as in a decoded image, so that a uint8 cache and serving use equal pixels.
    pixels = tf.round(resized if image.dtype == tf.uint8 else resized / 255.0)
    # Only the interpolations of presets leave the range of the image.
    return tf.cast(pixels, tf.uint8) if target.resizing is None else tf.saturate_cast(pixels, tf.uint8)


def _resize_rows(
    values: tf.Tensor, size: int, length: tf.Tensor, side: Any, place: float, before: tf.Tensor
) -> tf.Tensor:
    """Resize `length` rows of (rows, values), from the row `before`, to `side` rows; cut (size, values) at a position.

    The kernel of `tf.image.resize` is vectorized over channels only. With each row as the channels of a one-column
    image, it is three times as fast and gives the same bits.
    """
    side = tf.cast(side, tf.float32)
    scale = side / length
    start = 0.0 - tf.floor((side - size) * place) - before * scale
    image = values[tf.newaxis, :, tf.newaxis]
    return tf.raw_ops.ScaleAndTranslate(
        images=image,
        size=[size, 1],
        scale=tf.stack([scale, 1.0]),
        translation=tf.stack([start, 0.0]),
        kernel_type="triangle",
        antialias=True,
    )[0, :, 0]

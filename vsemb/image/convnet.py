"""SmallConvNet: a convolutional network small enough to train from scratch on a CPU in minutes."""

from __future__ import annotations

import keras

# (channels, side of the kernel, stride) of each block.
_BLOCKS = ((32, 6, 4), (64, 3, 2), (96, 3, 2), (128, 3, 1))


def small_conv_net(input_shape: tuple[int, int, int] = (64, 64, 3)) -> keras.Model:
    """Builds the network: four blocks of convolution, batch normalisation and ReLU.

    Meant for rendered scenes of 64 x 64 pixels. The first block is a wide kernel with stride 4: at full
    resolution the cost is in the number of places, and flat shapes say little at each of them.

    Args:
        input_shape: (height, width, 3), sides of at least 32 pixels.

    Returns:
        A functional model from float pixels (batch, height, width, 3), already scaled to [-1, 1], to
        a map of features (batch, height / 16, width / 16, 128), sides rounded up.

    Example:

    >>> small_conv_net((64, 64, 3)).output_shape
    (None, 4, 4, 128)
    """
    pixels = x = keras.Input(input_shape, name="pixels")
    for number, (channels, kernel, stride) in enumerate(_BLOCKS):
        x = keras.layers.Conv2D(channels, kernel, stride, padding="same", use_bias=False, name=f"block{number}_conv")(x)
        # The default momentum of 0.99 needs more steps to settle than a training of minutes has.
        x = keras.layers.BatchNormalization(momentum=0.9, name=f"block{number}_norm")(x)
        x = keras.layers.ReLU(name=f"block{number}_relu")(x)
    return keras.Model(pixels, x, name="small_conv_net")

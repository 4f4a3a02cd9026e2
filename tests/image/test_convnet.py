"""SmallConvNet: shapes, and that it learns what it is for."""

from __future__ import annotations

import keras
import numpy as np

from vsemb.image.backbones import BackboneConfig, build_backbone
from vsemb.image.convnet import small_conv_net


def test_shapes():
    assert small_conv_net((64, 64, 3)).output_shape == (None, 4, 4, 128)
    assert build_backbone(BackboneConfig("SmallConvNet")).output_shape == (None, 256)
    assert build_backbone(BackboneConfig("SmallConvNet", pooling="mean")).output_shape == (None, 128)


def test_it_learns_shape_and_colour():
    # Four classes: a red or blue, filled square or hollow frame somewhere in a grey picture.
    random = np.random.default_rng(0)
    pixels = np.full((256, 64, 64, 3), 200, np.float32)
    labels = np.arange(256) % 4
    for picture, label in zip(pixels, labels, strict=True):
        y, x = random.integers(0, 44, 2)
        picture[y : y + 20, x : x + 20] = [220, 30, 30] if label % 2 else [30, 30, 220]
        if label >= 2:
            picture[y + 5 : y + 15, x + 5 : x + 15] = 200
    keras.utils.set_random_seed(0)
    backbone = build_backbone(BackboneConfig("SmallConvNet"), seed=1)
    model = keras.Sequential([backbone, keras.layers.Dense(4)])
    model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(True), metrics=["accuracy"])
    model.fit(pixels[:192], labels[:192], batch_size=32, epochs=12, verbose=0)
    _, accuracy = model.evaluate(pixels[192:], labels[192:], verbose=0)
    assert accuracy > 0.9

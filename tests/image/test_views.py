"""Views: ten crops, bad rows and batches of any size, through the network."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from vsemb.errors import InvalidArgumentError
from vsemb.image.backbones import BackboneConfig, build_backbone
from vsemb.image.views import decode_views, encode_images, encode_views

SMALL = BackboneConfig("SmallConvNet", size=32)


def encoded(count: int) -> tf.Tensor:
    images = np.random.default_rng(6).integers(0, 256, (count, 20, 30, 3), dtype=np.uint8)
    return tf.stack([tf.io.encode_png(image) for image in images])


def test_ten_crops_are_averaged_and_a_bad_row_is_zero():
    config = BackboneConfig("SmallConvNet", size=32, crops=10)
    backbone = build_backbone(config)
    rows = tf.concat([encoded(2), [b"bad"]], axis=0)
    features, valid = encode_images(backbone, config, rows)
    views, _ = decode_views(rows, config)
    assert views.shape == (3, 10, 32, 32, 3) and valid.numpy().tolist() == [True, True, False]
    by_view = encode_views(backbone, views).numpy()
    for view in range(10):
        np.testing.assert_allclose(by_view[:, view], backbone(views[:, view]), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(features[:2], by_view[:2].mean(axis=1), rtol=1e-5, atol=1e-5)
    assert not features[2].numpy().any()


def test_encode_images_in_a_graph_with_any_number_of_rows():
    backbone = build_backbone(SMALL)
    function = tf.function(
        lambda rows: encode_images(backbone, SMALL, rows), input_signature=[tf.TensorSpec([None], tf.string)]
    )
    assert function(tf.zeros([0], tf.string))[0].shape == (0, 256)
    rows = encoded(3)
    np.testing.assert_allclose(function(rows)[0], encode_images(backbone, SMALL, rows)[0], rtol=1e-4, atol=1e-5)
    assert function.get_concrete_function().structured_outputs[0].shape.as_list() == [None, 256]


def test_views_need_a_known_size():
    function = tf.function(
        lambda pixels: encode_views(build_backbone(SMALL), pixels),
        input_signature=[tf.TensorSpec([None, 1, None, None, 3])],
        autograph=False,
    )
    with pytest.raises(InvalidArgumentError, match="known but for the batch"):
        function.get_concrete_function()

"""A SavedModel of texts and images that needs no training, for servers under load."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from vsemb.exporting.versions import publishing
from vsemb.image.decode import decode_images


class Sizes(tf.Module):
    """`encode_text`: bytes of each text; `encode_image`: mean colour of each image; both plus a constant.

    Args:
        constant: added to all embeddings.
        width: numbers per embedding, half of them with the other sign.
        weights: MiB of a variable that is not used.
    """

    def __init__(self, constant: float = 0.0, width: int = 2, weights: int = 0) -> None:
        super().__init__()
        self.constant = tf.Variable(constant)
        self.signs = tf.constant([1.0, -1.0] * (width // 2))
        self.weights = tf.Variable(tf.random.stateless_uniform([weights, 2**18], (0, 0)), trainable=False)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def encode_text(self, text):
        length = tf.cast(tf.strings.length(text), tf.float32) + self.constant
        return {"embedding": length[:, None] * self.signs, "valid": length > self.constant}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
    def encode_image(self, image_bytes):
        pixels, valid = decode_images(image_bytes, 32)
        mean = tf.reduce_mean(pixels, axis=[1, 2, 3]) + self.constant
        return {"embedding": mean[:, None] * self.signs, "valid": valid}


def publish(base: Path, constant: float = 0.0, version: int | None = None, width: int = 2, weights: int = 0) -> Path:
    """Write a version of `Sizes` and return its directory."""
    with publishing(base, version) as publication:
        module = Sizes(constant, width, weights)
        functions = {"encode_text": module.encode_text, "encode_image": module.encode_image}
        signatures = {"serving_default": module.encode_text, **functions}
        tf.saved_model.save(module, str(publication.temporary), signatures)
    assert publication.path is not None
    return publication.path

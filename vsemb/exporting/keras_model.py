"""SavedModels of Keras models without a run directory, see `vsemb.models.DualEncoder.export`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.errors import invalid_argument
from vsemb.exporting.neighbours import require_independence
from vsemb.exporting.reference_outputs import Arrays
from vsemb.exporting.savedmodel import write
from vsemb.exporting.served_inputs import BaseImageInput, TextInput
from vsemb.exporting.served_model import ServedModel
from vsemb.exporting.signatures import Outputs, embedding_rows, first_rows, one_row_at_least
from vsemb.models.dual_encoder import DualEncoder
from vsemb.ops.tensorflow import tf


class TokenInput(TextInput):
    """Token ids, for models without a tokenizer.

    Args:
        shape: shape of a batch of ids.
    """

    def __init__(self, shape: tuple[int | None, ...]) -> None:
        super().__init__(one_row_at_least)
        self.specs = (tf.TensorSpec((None, None, *shape[2:]), tf.int32, name="token_ids"),)

    @property
    def instance(self) -> dict[str, Any]:
        return {"token_ids": [2, 3]}

    def ids(self, token_ids: tf.Tensor) -> tf.Tensor:
        return self.tokenizer(token_ids)

    def examples(self, short: bool = False) -> Arrays:
        ids = np.tril(np.resize(np.array([2, 1], np.int32), (4, 4)))
        further = self.specs[0].shape[2:]
        return {"token_ids": np.broadcast_to(ids.reshape(4, 4, *[1] * len(further)), (4, 4, *further)).copy()}


class EncoderInput(BaseImageInput):
    """Input of the image encoder: bytes if it decodes images, else numbers.

    Args:
        model: the model.
        shape: shape of a batch of numbers.
    """

    def __init__(self, model: DualEncoder, shape: tuple[int | None, ...]) -> None:
        self.encoder: Any = model.image_encoder
        self.multi_vector = model.similarity.multi_vector
        self.shape = shape

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        if hasattr(self.encoder, "decode"):
            return super().specs
        return (tf.TensorSpec((None, *self.shape[1:]), tf.float32, name="image"),)

    def __call__(self, encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self.encoder.decode(encoded)

    def examples(self) -> Arrays:
        if hasattr(self.encoder, "decode"):
            return super().examples()
        sizes = (3, *(size or 3 for size in self.shape[1:]))
        return {"image": np.random.default_rng(0).normal(size=sizes).astype(np.float32)}

    def rows(self, model: Any, image_bytes: tf.Tensor = None, **more: tf.Tensor) -> Outputs:
        if image_bytes is not None:
            return super().rows(model, image_bytes)
        rows, numbers = tf.shape(more["image"])[0], one_row_at_least(more["image"])
        valid = tf.reduce_all(tf.math.is_finite(numbers), axis=range(1, numbers.shape.rank))
        return first_rows(embedding_rows(model.encode_images(numbers), valid), rows)


def export_model(model: DualEncoder, directory: str | os.PathLike[str]) -> None:
    """Write a Keras model as a SavedModel with the signatures for serving.

    Args:
        model: the model, built.
        directory: directory of the SavedModel.

    Raises:
        InvalidArgumentError: for a model that was not built, a multi-vector model without a tokenizer, or an encoder
            whose embedding of a row depends on other rows of the batch.
        DataError: if the files cannot be written.
    """
    shapes = (model.get_build_config() or {}).get("input_shape") or {}
    if "text" not in shapes:
        raise invalid_argument("model", model.name, "a built model", "Call it on a batch, or fit it, first.")
    texts = TokenInput(tuple(shapes["text"])) if model.tokenizer is None else model.tokenizer
    images = EncoderInput(model, tuple(shapes["image"])) if "image" in shapes else None
    served = ServedModel(model, texts, images)
    # Token ids of a fixed number, as of texts of one length, are never padded.
    require_independence(model, served, model.tokenizer is not None or tuple(shapes["text"])[1:] == (None,))
    write(served, Path(directory))

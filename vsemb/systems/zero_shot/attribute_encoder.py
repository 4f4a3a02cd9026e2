"""Classes described by a vector of attributes each, and one linear layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from vsemb.configured import Configured
from vsemb.encoders.text_encoder import TextCorpus, TextEncoderPart, TextSpec
from vsemb.errors import invalid_argument
from vsemb.parts import Count

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class AttributeEncoder(Configured, keras.layers.Layer):
    """Looks up the attributes of a class and maps them linearly (Reed et al. 2016, section 4.4).

    The paper's point of comparison: a vector a class, written by experts, instead of sentences. It reads
    class names, as ids of a `ClassTokenizer`, so that it stands where a sentence encoder does.

    Args:
        classes: number of classes, those without training images included.
        attributes: numbers a class has.
        dim: size of the embedding.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps) int, the class of each row first: 0 = none, 1 = an unknown class, whose
            attributes are zeros.

    Returns:
        (batch, dim).

    Example: two classes, "striped" and "striped and red".

    >>> encoder = AttributeEncoder(classes=2, attributes=2, dim=4)
    >>> encoder.set_attributes(np.array([[0, 0], [0, 0], [1, 0], [1, 1]]))
    >>> encoder(np.array([[2], [3]])).shape
    TensorShape([2, 4])
    """

    def __init__(self, classes: Count, attributes: Count, dim: int = 1024, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self.affine = keras.layers.Dense(dim, dtype=self.dtype_policy, name="affine")

    def build(self, input_shape: Any) -> None:
        # A weight, so that it is saved with the model.
        self.table = self.add_weight(
            shape=(self.classes + 2, self.attributes), initializer="zeros", trainable=False, name="table"
        )
        self.affine.build((input_shape[0], self.attributes))

    def set_attributes(self, values: np.ndarray) -> None:
        """Sets the attributes of every class.

        Args:
            values: (classes + 2, attributes) float, rows by id: 0 (padding) and 1 (unknown) are zeros.

        Raises:
            InvalidArgumentError: for another shape, a value that is not finite, or attributes of ids 0 and 1.
        """
        expected = (self.classes + 2, self.attributes)
        if tuple(values.shape) != expected:
            raise invalid_argument("values", tuple(values.shape), f"an array of shape {expected}")
        if not np.isfinite(values).all():
            raise invalid_argument("values", "NaN or infinity", "finite numbers")
        if values[:2].any():
            raise invalid_argument("values", values[:2].tolist(), "zeros in rows 0 (padding) and 1 (unknown)")
        if not self.built:
            self.build((None, 1))
        self.table.assign(values)

    def call(self, token_ids: Tensor) -> Tensor:
        return self.affine(ops.take(self.table, token_ids[:, 0], axis=0))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, Any]:
        return input_shape[0], self.dim


@dataclass(frozen=True)
class Attributes(TextEncoderPart, kind="attributes"):
    """The attributes of a class and a linear map."""

    accepts: ClassVar[str] = "classes"

    def build(self, dim: int | None, spec: TextSpec, dtype: str) -> AttributeEncoder:
        # Ids of padding and of unknown classes are no classes.
        classes, attributes = spec.vocabulary_size - 2, spec.info["attribute_dim"]
        return AttributeEncoder(classes, attributes, attributes if dim is None else dim, dtype=dtype)

    def initialize(self, layer: keras.layers.Layer, corpus: TextCorpus) -> None:
        assert corpus.dataset is not None
        known = corpus.dataset.annotation("attributes").matrix(corpus.vocabulary.words)
        layer.set_attributes(np.concatenate([np.zeros((2, known.shape[1]), np.float32), known]))

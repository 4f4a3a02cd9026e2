"""Towers of a model as functions of numbers, for formats that have neither strings nor image decoders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vsemb.exporting.reference_outputs import Arrays
from vsemb.exporting.signatures import Outputs, function_of
from vsemb.ops.tensorflow import tf

#: Names of the towers.
TOWERS = ("image", "text")


@dataclass(frozen=True, eq=False)
class Tower:
    """One tower of a model, from one input of numbers to embeddings.

    Attributes:
        name: `text` or `image`.
        spec: its input; the batch, and the steps of a text, are open.
        rows: computes the outputs from the input by name, eagerly if called outside a graph.
        examples: returns golden rows.
        steps: size of open sizes behind the batch, for formats without them.
        facts: JSON values that tell how to make the input from a text or an image file.
        files: returns name -> content of further files, such as the tokenizer.
        limits: sentences for the model card.
    """

    name: str
    spec: tf.TensorSpec
    rows: Callable[..., Outputs]
    examples: Callable[[], np.ndarray]
    steps: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    files: Callable[[], Mapping[str, str]] = dict
    limits: tuple[str, ...] = ()

    def shape(self, batch: int | None = None, fixed: bool = False) -> list[int | None]:
        """Return the shape of the input.

        Args:
            batch: number of rows; None for any.
            fixed: whether open sizes behind the batch become `steps`.
        """
        return [batch, *(self.steps if fixed and size is None else size for size in self.spec.shape[1:])]

    def function(self, shape: Sequence[int | None]) -> Any:
        """Return the function of inputs of a shape, not traced yet."""
        return function_of(self.rows, tf.TensorSpec(shape, self.spec.dtype, name=self.spec.name))

    def outputs(self, values: np.ndarray) -> Arrays:
        """Compute rows with the model itself."""
        return {name: value.numpy() for name, value in self.rows(**{self.spec.name: tf.constant(values)}).items()}

"""What can be written as a SavedModel: its signatures, whatever they compute.

A system that serves something else than embeddings either adds a `Signature` to a `vsemb.export.ServedModel`, or
writes an `Exportable` of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import tensorflow as tf

from vsemb.export.contract import About, Golden
from vsemb.export.reference_outputs import Arrays, Tie
from vsemb.export.rows import Outputs, function_of

# Largest difference from the Keras model that a reload may show, relative to the largest entry (1 for unit
# vectors). A graph adds the same numbers in another order and over rows padded to another length: up to
# 5e-7 in float32 and, since it rounds in other places, 1e-3 in bfloat16 were seen with all recipes. A wrong
# weight, a lost table or another preprocessing is 1e-2 and more.
_TOLERANCES = {"float32": 1e-5, "bfloat16": 5e-3}
#: Why `tolerance_of` allows as much as it does.
REASON = (
    "Relative to the largest entry (1 at least). Other batches, processors and libraries add the same "
    "numbers in another order: up to 5e-7 was seen in float32 and 1e-3 in bfloat16. Other weights, tables or "
    "preprocessing make 1e-2 and more."
)


@dataclass(frozen=True, eq=False)
class Signature:
    """One signature of a SavedModel.

    Attributes:
        name: its name.
        inputs: its named inputs, each with the batch as 0th dimension.
        rows: computes the outputs, step by step where it is called outside a graph; takes the inputs by name. One of
            the outputs is `valid`, bool (batch,).
        examples: gives golden rows, good and bad, that the signature is tried with before it is published.
        scale: gives, by output, the least that differences are relative to: 1 where it says nothing.
        ties: by output, which differences count for nothing, see `vsemb.export.reference_outputs.Tie`.
        instance: one row as TensorFlow Serving's REST API takes it, for a command that people try; `{"b64": FILE}`
            for the content of a file.
        limits: sentences for the model card.
    """

    name: str
    inputs: tuple[tf.TensorSpec, ...]
    rows: Callable[..., Outputs]
    examples: Callable[[], Arrays]
    scale: Callable[[], Mapping[str, float]] = dict
    ties: Mapping[str, Tie] = field(default_factory=dict)
    instance: Any = None
    limits: Sequence[str] = ()

    @cached_property
    def function(self) -> Any:
        """The compiled function."""
        return function_of(self.rows, *self.inputs)


class Exportable:
    """Something that `vsemb.export.export_savedmodel` can write, try out and publish.

    Attributes:
        offered: the signatures; the first is also `serving_default`.

    Class attributes:
        invalid: what a row that cannot be read is answered by, besides `valid` false.
        made: what the model makes.
        comparable: whether what two versions of the model make can be compared.
    """

    invalid: ClassVar[str] = "zeros"
    made: ClassVar[str] = "outputs"

    offered: Sequence[Signature]

    @property
    def default(self) -> Signature:
        """The signature that is also `serving_default`."""
        return self.offered[0]

    @property
    def functions(self) -> dict[str, Any]:
        """The compiled functions by signature name."""
        return {signature.name: signature.function for signature in self.offered}

    @property
    def signatures(self) -> dict[str, Any]:
        """The concrete functions by signature name, `serving_default` first."""
        named = {name: function.get_concrete_function() for name, function in self.functions.items()}
        return {"serving_default": named[self.default.name], **named}

    @property
    def tables(self) -> list[Any]:
        """Lookup tables that the functions read."""
        return []

    @property
    def tolerance(self) -> float:
        """The largest relative difference that two computations of one row may show."""
        return tolerance_of(["float32"])

    def promises(self, golden: Mapping[str, Golden]) -> dict[str, Any]:
        """Returns the fields of the contract that only this kind of model knows.

        Args:
            golden: what each signature gave.
        """
        del golden
        return {}

    def about(self, golden: Mapping[str, Golden]) -> About:
        """Returns what the model card says of the model.

        Args:
            golden: what each signature gave.
        """
        raise NotImplementedError


def tolerance_of(dtypes: Iterable[str]) -> float:
    """Returns the largest relative difference between two computations in these types.

    Example:

    >>> tolerance_of(["float32", "bfloat16"])
    0.005
    """
    return max(_TOLERANCES.get(dtype, 0.0) for dtype in dtypes)


def tables_of(holder: object) -> list[Any]:
    """Returns the lookup tables among an object's attributes."""
    kinds = tf.lookup.StaticHashTable | tf.lookup.StaticVocabularyTable
    return [value for value in vars(holder).values() if isinstance(value, kinds)]


def tensors(inputs: Arrays) -> dict[str, tf.Tensor]:
    """Returns arrays as TensorFlow's tensors."""
    return {key: tf.constant(values, tf.string if values.dtype == object else None) for key, values in inputs.items()}

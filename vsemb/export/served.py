"""What can be written as a SavedModel: the parts that an export asks of it, whatever it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from vsemb.export.contract import Golden
from vsemb.export.golden import Arrays

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


class Case(NamedTuple):
    """What one signature is tried with before it is published.

    Attributes:
        signature: its name.
        reference: what computes the same without the SavedModel; takes the inputs by name.
        inputs: golden rows, good and bad.
        scale: the least that differences are relative to.
    """

    signature: str
    reference: Callable[..., Mapping[str, tf.Tensor]]
    inputs: Arrays
    scale: float = 1.0


class Served(Protocol):
    """Something that `vsemb.export.savedmodel` can write, try out and publish."""

    @property
    def signatures(self) -> dict[str, Any]:
        """The concrete functions by signature name, `serving_default` first."""

    @property
    def default(self) -> str:
        """The signature that is also `serving_default`."""

    @property
    def tables(self) -> list[Any]:
        """Lookup tables that the functions read."""

    @property
    def tolerance(self) -> float:
        """The largest relative difference that two computations of one row may show."""

    def cases(self) -> list[Case]:
        """Returns what each signature but `serving_default` is tried with."""

    def promises(self, golden: Mapping[str, Golden]) -> dict[str, Any]:
        """Returns the fields of the contract that only this kind of model knows.

        Args:
            golden: what each signature gave.
        """


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

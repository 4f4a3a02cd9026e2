"""How the texts of a request become the token ids that a model's text encoder takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from vsemb.export.exportable import tables_of
from vsemb.export.reference_outputs import Arrays, golden_texts
from vsemb.export.rows import one_row_at_least
from vsemb.text.normalize import MAX_BYTES


class TextInput:
    """Raw strings, tokenized in graph. Systems whose models take something else bring a subclass.

    Args:
        tokenizer: string (batch,) -> int ids (batch, steps), 0 where there is no token; its lookup tables go into
            the SavedModel.

    Class attributes:
        name: what the signatures are called by: `encode_NAME` and `search_NAME`.
        specs: the inputs of `encode_NAME`.
        max_bytes: what is behind them is not read; None for no limit.
        instance: one row as the REST API takes it.
    """

    name: ClassVar[str] = "text"
    specs: ClassVar[tuple[tf.TensorSpec, ...]] = (tf.TensorSpec([None], tf.string, name="text"),)
    max_bytes: ClassVar[int | None] = MAX_BYTES
    instance: ClassVar[Any] = "a dog running on a beach"

    def __init__(self, tokenizer: Callable[[tf.Tensor], tf.Tensor]) -> None:
        self.tokenizer: Any = tokenizer

    @property
    def takes(self) -> str:
        """What texts are, in the plural, for the model card."""
        return "sentences"

    @property
    def max_tokens(self) -> int | None:
        """The most tokens of a text that are read; None for no limit, or where the tokenizer does not say."""
        return getattr(self.tokenizer, "max_length", None)

    @property
    def tables(self) -> list[Any]:
        """Lookup tables that tokenizing reads."""
        return tables_of(self.tokenizer)

    def ids(self, text: tf.Tensor) -> tf.Tensor:
        """Returns the ids of a batch, of one row at least: the inputs are those of `specs`, by name."""
        return self.tokenizer(one_row_at_least(text))

    def from_strings(self, served: Any) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
        """Returns the function from raw strings to embeddings, for callers in Python.

        Args:
            served: the `vsemb.export.ServedModel`.
        """
        return served.default.function

    def examples(self, short: bool = False) -> Arrays:
        """Returns golden rows of `specs`.

        Args:
            short: whether long texts are left out.
        """
        return {"text": np.array(golden_texts(self.tokenizer, short), object)}

    def limits(self) -> list[str]:
        """Returns sentences for the model card."""
        found = [f"Of a text, what is behind {self.max_bytes:,} bytes is not read."]
        if self.max_tokens is not None:
            found.append(f"A text is read up to {self.max_tokens} tokens.")
        return found

    def cannot(self) -> list[str]:
        """Returns what the model cannot do with texts, for the model card."""
        return []

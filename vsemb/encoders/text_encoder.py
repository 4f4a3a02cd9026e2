"""What every text encoder of a recipe is: a part that builds a layer from token ids to the embedding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import keras
import numpy as np

from vsemb.errors import invalid_argument
from vsemb.parts import Part

if TYPE_CHECKING:
    from vsemb.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class TextSpec:
    """What an encoder must know of the texts it reads.

    Attributes:
        vocabulary_size: number of token ids, padding and unknown included.
        length: the most tokens of a text.
        info: what `run.json` says, for sizes that systems add, such as `attribute_dim`.
    """

    vocabulary_size: int
    length: int
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TextCorpus:
    """The training texts, from which parts of an encoder are initialized.

    Attributes:
        vocabulary: of the tokens.
        ids: (tokens,) int32, all texts one behind the other; of trees the ids alone.
        offsets: (texts + 1,) int64, where each text begins.
        whole_words: whether a token is a word.
        seed: of random draws.
        dataset: the dataset of the texts, where there is one.
    """

    vocabulary: Vocabulary
    ids: np.ndarray
    offsets: np.ndarray
    whole_words: bool
    seed: int
    dataset: Any = None

    @cached_property
    def document_frequencies(self) -> np.ndarray:
        """In how many texts each id stands, int64 (len(vocabulary),)."""
        # The room of texts imports TensorFlow, which encoders do without.
        from vsemb.text.cooccurrence import document_frequencies

        return document_frequencies(self.ids, self.offsets, len(self.vocabulary))


@dataclass(frozen=True)
class TextEncoderPart(Part, family="text encoder"):
    """How a recipe turns token ids into an embedding; base of the family `text encoder`.

    Class attributes:
        accepts: what tokens it reads, see `vsemb.text.tokenizers.TokenizerPart.produces`.
        produces: `vector`, or `multi_vector` for one vector per token.
    """

    accepts: ClassVar[str] = "ids"
    produces: ClassVar[str] = "vector"

    def build(self, dim: int | None, spec: TextSpec, dtype: str) -> keras.layers.Layer:
        """Builds the layer.

        Args:
            dim: size of the embedding; None for the encoder's own size, without a map behind it.
            spec: the texts.
            dtype: dtype policy of the layer.

        Raises:
            InvalidArgumentError: for a field that does not fit `dim` or the texts.
        """
        raise NotImplementedError

    def initialize(self, layer: keras.layers.Layer, corpus: TextCorpus) -> None:
        """Sets what the layer learns from the training texts before the first step.

        Args:
            layer: what `build` returned, built.
            corpus: the training texts.

        Raises:
            VsembError: if it cannot be learned from them.
        """

    def check_tokenizer(self, tokenizer: Any) -> None:
        """Checks that the encoder reads what a tokenizer makes.

        Args:
            tokenizer: a `vsemb.text.tokenizers.TokenizerPart`.

        Raises:
            InvalidArgumentError: if it does not.
        """
        if tokenizer.produces != self.accepts:
            fix = f"Set text.tokenizer to one that makes {self.accepts}."
            raise invalid_argument("text.encoder", self.kind, f"an encoder of {tokenizer.produces}", fix)

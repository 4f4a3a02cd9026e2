"""The text tower of a recipe: a tokenizer and an encoder of its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import keras

from vsemb.encoders.recurrent import Recurrent
from vsemb.encoders.text_encoder import TextCorpus, TextEncoderPart, TextSpec
from vsemb.parts import Part
from vsemb.text.tokenizers import Tokenizer, TokenizerPart, Words


@dataclass(frozen=True)
class Text(Part):
    """The text tower.

    Attributes:
        tokenizer: turns texts into token ids.
        encoder: turns token ids into the embedding.
    """

    tokenizer: TokenizerPart = field(default_factory=Words)
    encoder: TextEncoderPart = field(default_factory=Recurrent)

    def check(self) -> None:
        self.encoder.check_tokenizer(self.tokenizer)

    def build(self, dim: int | None, vocabulary_size: int, info: Mapping[str, Any], dtype: str) -> keras.layers.Layer:
        """Builds the encoder, see `TextEncoderPart.build`."""
        return self.encoder.build(dim, TextSpec(vocabulary_size, self.tokenizer.length, info), dtype)

    def corpus(self, tokenizer: Tokenizer, texts: list[str], seed: int, dataset: Any = None) -> TextCorpus:
        """Returns training texts as ids, from which the encoder is initialized.

        Args:
            tokenizer: what the recipe's tokenizer built.
            texts: the training texts, as the tokenizer reads them.
            seed: of random draws.
            dataset: their dataset, where there is one.
        """
        tokens, offsets = tokenizer.encode(texts)
        return TextCorpus(
            tokenizer.vocabulary,
            tokenizer.word_ids(tokens),
            offsets,
            self.tokenizer.whole_words,
            seed,
            dataset,
        )

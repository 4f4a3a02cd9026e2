"""Pretrained text networks on vsemb's token ids: towers of dual encoders, BERT and its relatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import keras
from keras import ops

from vsemb.configured import Configured, build_layers
from vsemb.encoders.text_encoder import TextEncoderPart, TextSpec, outside_if_negative
from vsemb.errors import invalid_argument
from vsemb.parts import Positive
from vsemb.systems.presets.files import (
    build_network,
    display_name,
    kept_name,
    load_network,
    poolings,
    require_preset,
    text_network,
)

if TYPE_CHECKING:
    from vsemb.text.tokenizers import TokenizerPart

Tensor = Any

# Token ids begin with padding (0) and the unknown word (1), then the published ids.
_SHIFT = 2


@keras.saving.register_keras_serializable("vsemb")
class PresetTextEncoder(Configured, keras.layers.Layer):
    """Published text network with its start, end and padding ids.

    Args:
        network: model from published ids (batch, steps) int32 to (batch, features), such as the text tower of
            CLIP (arXiv:2103.00020) or SigLIP (arXiv:2303.15343), or a pooled BERT (arXiv:1810.04805).
        length: maximum number of ids per text, including start and end.
        dim: size of the embedding; None for the network's size, otherwise an affine map is added.
        start: published id at the start of a text; None to omit it.
        end: published id at the end of a text; None to omit it.
        padding: published id of padding.
        fixed: whether to pad every text to `length` instead of the longest text of the batch.
        prefix: published ids between the start and each text, such as the ids of "query: " for E5 (arXiv:2212.03533).
        frozen: whether the network is neither trained nor gets dropout; the affine map is trained.
        learning_rate_share: factor of the learning rate for the network, for optimizers of vsemb.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps) int: published ids + 2, 0 as padding on the right; truncated to `length`.

    Returns:
        (batch, dim).

    Raises:
        InvalidArgumentError: for a length without space for a token beside start and end.

    Example:

    >>> ids = keras.Input((None,), dtype="int32")
    >>> network = keras.Model(ids, ops.cast(ids, "float32"))  # returns its input
    >>> encoder = PresetTextEncoder(network, 6, start=7, end=8, padding=9)
    >>> encoder(ops.array([[3, 4, 5], [3, 0, 0]])).numpy().astype(int).tolist()
    [[7, 1, 2, 3, 8], [7, 1, 8, 9, 9]]
    """

    def __init__(
        self,
        network: keras.Model,
        length: int,
        dim: int | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        padding: int = 0,
        fixed: bool = False,
        prefix: Sequence[int] = (),
        frozen: bool = False,
        learning_rate_share: Positive = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self._before = [*([] if start is None else [start]), *prefix]
        self.most = length - len(self._before) - (end is not None)
        if self.most < 1:
            raise invalid_argument("length", length, "a number above the count of ids of start, prefix and end")
        self._freeze()
        for variable in network.trainable_variables:
            variable.learning_rate_share = learning_rate_share
        self.affine: keras.layers.Dense | None = None
        if dim is not None and dim != network.output_shape[-1]:
            self.affine = keras.layers.Dense(dim, dtype=self.dtype_policy, name="affine")

    @property
    def trainable(self) -> bool:
        """Whether the layer is trained, apart from a frozen network."""
        return bool(super().trainable)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        # A model sets this of all its layers, also when it is loaded.
        keras.layers.Layer.trainable.fset(self, value)
        self._freeze()

    def _freeze(self) -> None:
        if getattr(self, "frozen", False):
            # Keras skips an assignment of the present value: layers inside a loaded layer would be trained.
            self.network.trainable = True
            self.network.trainable = False

    def build(self, input_shape: Any) -> None:
        build_layers((self.affine, (input_shape[0], self.network.output_shape[-1])))

    def published_ids(self, token_ids: Tensor) -> Tensor:
        """Return the published ids for the network, (batch, steps) int32."""
        ids = ops.cast(token_ids, "int32")[:, : self.most]
        there = ops.not_equal(ids, 0)
        lengths = ops.sum(ops.cast(there, "int32"), axis=1, keepdims=True)
        ids = outside_if_negative(ops.where(there, ids - _SHIFT, self.padding))
        filling = ops.full_like(ids[:, :1], self.padding)
        before = [ops.full_like(filling, number) for number in self._before]
        behind = (self.most if self.fixed else 0) + (self.end is not None)
        ids = ops.concatenate([*before, ids, ops.tile(filling, (1, behind))], axis=1)
        if self.end is not None:
            places = ops.cumsum(ops.ones_like(ids), axis=1) - 1
            ids = ops.where(ops.equal(places, lengths + len(before)), self.end, ids)
        return ids[:, : self.length]

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        features = self.network(self.published_ids(token_ids), training=training and not self.frozen)
        return features if self.affine is None else self.affine(features)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, Any]:
        return input_shape[0], self.dim or self.network.output_shape[-1]


@dataclass(frozen=True)
class PresetEncoder(TextEncoderPart, kind="preset"):
    """Text network of a preset: CLIP, MetaCLIP 2, SigLIP, BERT, RoBERTa or XLM-R, with an affine map for another size.

    Attributes:
        name: `hub:` and the preset, equal to the tokenizer's.
        weights: `preset` for its published weights; null for random ones.
        pooling: `mean` over the tokens or `first` token of a BERT, RoBERTa or XLM-R; null for the mean, or for the
            embedding of a dual encoder.
        prefix: put before every text, such as "query: " for E5.
        trainable: whether the network is trained; the affine map always is.
        learning_rate_share: factor of the learning rate for the network.
    """

    name: str = ""
    weights: Literal["preset"] | None = None
    pooling: Literal["embedding", "mean", "first"] | None = None
    prefix: str = ""
    trainable: bool = True
    learning_rate_share: Positive = 1.0

    @property
    def label(self) -> str:
        return display_name(self.name)

    def check(self) -> None:
        require_preset("text.encoder.name", self.name)

    def check_tokenizer(self, tokenizer: TokenizerPart) -> None:
        if getattr(tokenizer, "name", None) != self.name:
            fix = f"Set text.tokenizer=preset and text.tokenizer.name={self.name}."
            raise invalid_argument("text.tokenizer", tokenizer.kind, "the tokenizer of the encoder's preset", fix)

    def build(self, dim: int | None, spec: TextSpec, dtype: str) -> PresetTextEncoder:
        # Imported here, because it imports TensorFlow and encoders must not.
        from vsemb.systems.presets.tokenizer import PresetText

        texts = PresetText.open(self.name)
        possible = poolings(texts.network["class_name"])
        pooling = self.pooling or possible[0]
        if pooling not in possible:
            raise invalid_argument("text.encoder.pooling", pooling, f"{' or '.join(possible)} for {self.label}")
        network = load_network(self.name, dtype) if self.weights else build_network(texts.network, dtype)
        return PresetTextEncoder(
            text_network(network, pooling, texts.padding),
            texts.length,
            dim,
            start=texts.start,
            end=texts.end,
            padding=texts.padding,
            fixed=texts.fixed,
            prefix=texts.prefix_ids(self.prefix),
            frozen=not self.trainable,
            learning_rate_share=self.learning_rate_share,
            dtype=dtype,
        )

    def localized(self, path: Path) -> PresetEncoder:
        return replace(self, name=kept_name(self.name, path, "text"))

    def without_downloads(self) -> PresetEncoder:
        return replace(self, weights=None)

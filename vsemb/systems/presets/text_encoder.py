"""Text tower of a pretrained dual encoder on vsemb's token ids."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import keras
from keras import ops

from vsemb.configured import Configured, build_layers
from vsemb.encoders.text_encoder import TextEncoderPart, TextSpec
from vsemb.errors import invalid_argument
from vsemb.systems.presets.files import (
    build_network,
    display_name,
    kept_name,
    load_network,
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
            CLIP (arXiv:2103.00020) or SigLIP (arXiv:2303.15343).
        length: maximum number of ids per text, including start and end.
        dim: size of the embedding; None for the network's size, otherwise an affine map is added.
        start: published id at the start of a text; None to omit it.
        end: published id at the end of a text; None to omit it.
        padding: published id of padding.
        fixed: whether to pad every text to `length` instead of the longest text of the batch.
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
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self.most = length - (start is not None) - (end is not None)
        if self.most < 1:
            raise invalid_argument("length", length, "a number above the count of start and end ids")
        self.affine: keras.layers.Dense | None = None
        if dim is not None and dim != network.output_shape[-1]:
            self.affine = keras.layers.Dense(dim, dtype=self.dtype_policy, name="affine")

    def build(self, input_shape: Any) -> None:
        build_layers((self.affine, (input_shape[0], self.network.output_shape[-1])))

    def published_ids(self, token_ids: Tensor) -> Tensor:
        """Return the published ids for the network, (batch, steps) int32."""
        ids = ops.cast(token_ids, "int32")[:, : self.most]
        there = ops.not_equal(ids, 0)
        lengths = ops.sum(ops.cast(there, "int32"), axis=1, keepdims=True)
        ids = ops.where(there, ids - _SHIFT, self.padding)
        filling = ops.full_like(ids[:, :1], self.padding)
        before = [] if self.start is None else [ops.full_like(filling, self.start)]
        behind = (self.most if self.fixed else 0) + (self.end is not None)
        ids = ops.concatenate([*before, ids, ops.tile(filling, (1, behind))], axis=1)
        if self.end is not None:
            places = ops.cumsum(ops.ones_like(ids), axis=1) - 1
            ids = ops.where(ops.equal(places, lengths + (self.start is not None)), self.end, ids)
        return ids[:, : self.length]

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        features = self.network(self.published_ids(token_ids), training=training)
        return features if self.affine is None else self.affine(features)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, Any]:
        return input_shape[0], self.dim or self.network.output_shape[-1]


@dataclass(frozen=True)
class PresetEncoder(TextEncoderPart, kind="preset"):
    """Text tower of a CLIP, MetaCLIP 2 or SigLIP preset, with an affine map for another size.

    Attributes:
        name: `hub:` and the preset, equal to the tokenizer's.
        weights: `preset` for its published weights; null for random ones.
    """

    name: str = ""
    weights: Literal["preset"] | None = None

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
        network = load_network(self.name, dtype) if self.weights else build_network(texts.network, dtype)
        return PresetTextEncoder(
            text_network(network),
            texts.length,
            dim,
            start=texts.start,
            end=texts.end,
            padding=texts.padding,
            fixed=texts.fixed,
            dtype=dtype,
        )

    def localized(self, path: Path) -> PresetEncoder:
        return replace(self, name=kept_name(self.name, path, "text"))

    def without_downloads(self) -> PresetEncoder:
        return replace(self, weights=None)

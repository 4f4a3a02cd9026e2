"""Recurrent sentence encoders: GRU and LSTM, faster on a CPU than in Keras, and the peephole LSTM."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import keras
import numpy as np
from keras import ops

from vsemb.configured import build_layers, uniform
from vsemb.encoders.cells import PeepholeLSTMCell
from vsemb.encoders.generalized_pooling import GeneralizedPooling
from vsemb.encoders.pooling import PooledSentenceEncoder, Pooling, step_terms
from vsemb.encoders.text_encoder import WordEmbedding, WordEncoderPart, padding_mask
from vsemb.ops.backend import has_gpu, is_portable
from vsemb.parts import Positive, Share, Size

Tensor = Any

Cell = Literal["gru", "gru-reset-before", "lstm", "peephole-lstm"]
Directions = Literal["forward", "concat", "average"]


_LEARNED_POOLINGS: dict[str, type[GeneralizedPooling]] = {"generalized": GeneralizedPooling}
#: Dtype of the matrix products -> that of the state and of everything elementwise.
_STATE_DTYPES = {"float32": "float32", "bfloat16": "float32", "float64": "float64"}


class FastLoop:
    """Run the loop of a Keras recurrent layer with `vsemb.ops.recurrent_loops` on CPUs, where it is faster.

    Class attributes:
        loop: a key of `vsemb.ops.recurrent_loops.LOOPS`.
    """

    loop: ClassVar[str]

    def inner_loop(self, sequences: Tensor, initial_state: Any, mask: Any, training: bool = False) -> Any:
        """Return the last output, all outputs and the last states, as `keras.layers.RNN.inner_loop` does."""
        layer: Any = self
        mask = mask[0] if isinstance(mask, (list, tuple)) else mask
        if not self.own_loop_serves(training):
            return self._loop_of_keras(sequences, initial_state, mask, training)
        from vsemb.ops.recurrent_loops import LOOPS

        inputs = ops.transpose(sequences, (1, 0, 2))
        if layer.go_backwards:
            inputs = ops.flip(inputs, axis=0)
        if mask is not None:
            mask = ops.expand_dims(ops.transpose(ops.cast(mask, "bool")), -1)
            mask = ops.flip(mask, axis=0) if layer.go_backwards else mask
        recurrent, bias, _ = self.direction()
        products = self.products(ops.reshape(inputs, (-1, inputs.shape[-1])))
        sums = ops.reshape(products, (*ops.shape(inputs)[:-1], products.shape[1]))
        initial = tuple(ops.cast(state, bias.dtype) for state in initial_state)
        states = LOOPS[self.loop][0](sums, recurrent, bias, mask, initial, training)
        outputs, last = states[0], [state[-1] for state in states]
        if not layer.return_sequences:
            return last[0], ops.expand_dims(last[0], 1), last
        if layer.zero_output_for_mask and mask is not None:
            outputs = ops.where(mask, outputs, ops.zeros((), outputs.dtype))
        return last[0], ops.transpose(outputs, (1, 0, 2)), last

    def _loop_of_keras(self, sequences: Tensor, initial_state: Any, mask: Any, training: bool) -> Any:
        """Run the loop of Keras, where cuDNN stops a compiled step at a row without words: that row runs one step."""
        keras_loop = super().inner_loop  # type: ignore[misc]
        if mask is None:
            return keras_loop(sequences, initial_state, mask, training)
        mask = ops.cast(mask, "bool")
        empty = ops.logical_not(ops.any(mask, axis=1, keepdims=True))
        first = ops.arange(mask.shape[1] or ops.shape(mask)[1]) == 0
        run = ops.logical_or(mask, ops.logical_and(empty, first))
        last, outputs, states = keras_loop(sequences, initial_state, run, training)
        states = [ops.where(empty, before, state) for before, state in zip(initial_state, states, strict=True)]
        return ops.where(empty, 0, last), ops.where(empty[..., None], 0, outputs), states

    def direction(self) -> tuple[Tensor, Tensor, bool]:
        """Return the recurrent matrix, in the dtype of the products, the bias, and `go_backwards`."""
        layer: Any = self
        cell, dtype = layer.cell, layer.compute_dtype
        bias = ops.cast(cell.bias, _STATE_DTYPES[dtype])
        return ops.cast(cell.recurrent_kernel, dtype), bias, layer.go_backwards

    def products(self, inputs: Tensor) -> Tensor:
        """Return the products of inputs, (n, size), and the kernel, in the dtype of the bias."""
        layer: Any = self
        dtype = layer.compute_dtype
        product = ops.matmul(ops.cast(inputs, dtype), ops.cast(layer.cell.kernel, dtype))
        return ops.cast(product, _STATE_DTYPES[dtype])

    def sums(self, inputs: Tensor) -> Tensor:
        """Return the products of inputs and the kernel, plus the bias of the inputs."""
        layer: Any = self
        bias = layer.cell.bias  # (width,), or (2, width) if the state has a bias, too
        products = self.products(inputs)
        return products + ops.cast(ops.reshape(bias, (-1, bias.shape[-1]))[0], products.dtype)

    def own_loop_serves(self, training: bool) -> bool:
        """Whether the loops of `vsemb.ops` serve the layer's options here."""
        if keras.backend.backend() != "tensorflow" or is_portable():
            return False
        layer: Any = self
        activations = [keras.activations.serialize(f) for f in (layer.activation, layer.recurrent_activation)]
        return (
            activations == ["tanh", "sigmoid"]
            and layer.use_bias
            and layer.compute_dtype in _STATE_DTYPES
            and not layer.unroll
            and not (training and (layer.dropout or layer.recurrent_dropout))
            and layer.use_cudnn is not True
            and not has_gpu()
        )


@keras.saving.register_keras_serializable("vsemb")
class GRU(FastLoop, keras.layers.GRU):
    """`keras.layers.GRU`: same arguments, weights and results up to rounding, faster on a CPU.

    On TensorFlow without a GPU, the loop over the steps has a custom gradient and, with bfloat16, keeps its state in
    float32. On other devices and backends, and with options that this loop does not support (dropout, activations,
    `reset_after=False`, `unroll`), it is the loop of Keras.

    Example:

    >>> GRU(4)(ops.ones((2, 3, 5))).shape
    TensorShape([2, 4])
    """

    loop = "gru"

    def own_loop_serves(self, training: bool) -> bool:
        return self.reset_after and super().own_loop_serves(training)


@keras.saving.register_keras_serializable("vsemb")
class LSTM(FastLoop, keras.layers.LSTM):
    """`keras.layers.LSTM`: same arguments, weights and results up to rounding, faster on a CPU.

    See `GRU` for conditions.

    Example:

    >>> LSTM(4)(ops.ones((2, 3, 5))).shape
    TensorShape([2, 4])
    """

    loop = "lstm"


@keras.saving.register_keras_serializable("vsemb")
class RecurrentSentenceEncoder(PooledSentenceEncoder):
    """Encode a sentence: word vectors -> recurrent layer -> pooling -> (if sizes differ) a linear map to `dim`.

    Args:
        words: the word vectors.
        dim: size of the sentence embedding; None for the size of the pooled states.
        cell: `"gru"` (the Toronto code, VSE++), `"gru-reset-before"` (Cho et al. 2014: the reset gate acts before the
            recurrent matrix; slower), `"lstm"` (Keras'), or `"peephole-lstm"` (equations 1-5 of Kiros et al. 2014).
        units: size of the recurrent state per direction.
        directions: `"forward"`, or both directions: `"concat"` (concatenated) or `"average"`.
        pooling: pooling of the states: `"last"` (the papers), `"mean"`, `"max"`, `"mean+max"`, or `"generalized"`, see
            `GeneralizedPooling`.
        dropout: share of pooled entries set to 0 in training.
        init_scale: recurrent weights are initialized uniformly in [-init_scale, init_scale], with 0.08 in Kiros et al.;
            None for Keras' defaults (Glorot and orthogonal).
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps) int, 0 = padding, on the right.
        training: whether dropout is applied.

    Returns:
        (batch, dim).

    Raises:
        InvalidArgumentError: for an unknown cell, direction or pooling.

    Example:

    >>> import numpy as np
    >>> words = WordEmbedding(vocabulary_size=10, dim=4)
    >>> RecurrentSentenceEncoder(words, dim=8, units=8)(np.array([[2, 3, 0]])).shape
    TensorShape([1, 8])
    """

    def __init__(
        self,
        words: WordEmbedding,
        dim: int | None = 1024,
        *,
        cell: Cell = "gru",
        units: int = 1024,
        directions: Directions = "forward",
        pooling: Pooling | Literal["generalized"] = "last",
        dropout: float = 0.0,
        init_scale: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self._folded: Callable[[Tensor], tuple[list[Tensor], Tensor]] | None = None
        self.recurrent = self._recurrent_layer()
        learned = _LEARNED_POOLINGS.get(pooling)
        pool = None if learned is None else learned(dtype=self.dtype_policy)
        self.add_head(2 * units if directions == "concat" else units, pool)

    def _recurrent_layer(self) -> keras.layers.Layer:
        # The last state comes out of Keras' own masking, also for the backward direction, whose last
        # state stands at the first word.
        sequences = self.pooling != "last"
        options: dict[str, Any] = {"dtype": self.dtype_policy}
        if self.init_scale is not None:
            options["kernel_initializer"] = uniform(self.init_scale, None)
            if self.cell != "peephole-lstm":
                options["recurrent_initializer"] = options["kernel_initializer"].clone()
        if self.cell == "peephole-lstm":
            cell = PeepholeLSTMCell(self.units, **options)
            layer = keras.layers.RNN(cell, return_sequences=sequences, dtype=self.dtype_policy)
        else:
            if self.cell == "gru-reset-before":
                options["reset_after"] = False
            layer_type = LSTM if self.cell == "lstm" else GRU
            layer = layer_type(self.units, return_sequences=sequences, **options)
        if self.directions == "forward":
            return layer
        merge = {"concat": "concat", "average": "ave"}[self.directions]
        return keras.layers.Bidirectional(layer, merge_mode=merge, dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        build_layers(
            (self.words, input_shape),
            (self.recurrent, self.words.compute_output_shape(input_shape)),
            (self._pool, (*input_shape[:2], self.state_size)),
            (self.projection, (input_shape[0], self.pooled_size)),
        )

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        mask = padding_mask(token_ids)
        if not training and self._is_fast():
            return self.head(self._packed(token_ids, mask))
        states = self.recurrent(self.words(token_ids, training=training), mask=mask, training=training)
        return self.head(states if self.pooling == "last" else self._pool(states, mask), training)

    def step_terms(self, token_ids: Tensor) -> Tensor:
        """Split the embeddings into terms of the steps, see `vsemb.encoders.pooling.step_terms`."""
        mask = padding_mask(token_ids)
        states = self.recurrent(self.words(token_ids), mask=mask)
        return step_terms(states, mask, self.pooling, self.projection)

    @property
    def _layers_by_direction(self) -> list[Any]:
        if self.directions == "forward":
            return [self.recurrent]
        return [self.recurrent.forward_layer, self.recurrent.backward_layer]

    def _is_fast(self) -> bool:
        """Whether `packed_loop` serves all directions in inference, and the pooling its outputs."""
        return hasattr(self._pool, "of_words") and all(
            isinstance(layer, FastLoop) and layer.own_loop_serves(False) for layer in self._layers_by_direction
        )

    def _packed(self, token_ids: Tensor, mask: Tensor) -> Tensor:
        """Return the pooled states, in less time than the layers; see `packed_loop`."""
        from vsemb.ops.recurrent_loops import packed_loop

        layers = self._layers_by_direction
        directions = [layer.direction() for layer in layers]
        inputs = self._folded or self._input_sums
        outputs, rows = packed_loop(layers[0].loop, directions, inputs, token_ids, mask)
        all_states, last_states = zip(*outputs, strict=True)
        states = last_states if self.pooling == "last" else all_states
        merged = (states[0] + states[1]) / 2 if self.directions == "average" else ops.concatenate(states, axis=-1)
        return merged if self.pooling == "last" else self._pool.of_words(merged, rows, ops.shape(mask)[0])

    def _input_sums(self, tokens: Tensor) -> tuple[list[Tensor], Tensor]:
        """Multiply the vectors of distinct words by the kernels; see `packed_loop`."""
        from vsemb.ops.row_means import unique_rows

        distinct, places = unique_rows(tokens)
        vectors = self.words(distinct)
        return [layer.sums(vectors) for layer in self._layers_by_direction], places

    @property
    def folded_bytes(self) -> int:
        """Size of the tables of `folded`; 0 if words are composed, or if another loop than `packed_loop` runs."""
        if self.words.composes or not self._is_fast():
            return 0
        # The sums are as wide as the recurrent matrix.
        widths = [layer.cell.recurrent_kernel.shape[1] for layer in self._layers_by_direction]
        dtype = np.dtype(_STATE_DTYPES[self.compute_dtype])
        return self.words.vocabulary_size * sum(widths) * dtype.itemsize

    @contextlib.contextmanager
    def folded(self) -> Iterator[None]:
        """Look up the input sums of all words, in inference inside this context, instead of computing them.

        The tables hold `words @ kernel + bias` of the current weights, one table per direction. A graph that is traced
        inside uses them in place of word vectors and kernels. Save it inside, too, because the tables are deleted at
        the end.

        Example:

        >>> import numpy as np
        >>> encoder = RecurrentSentenceEncoder(WordEmbedding(vocabulary_size=10, dim=4), dim=8, units=8)
        >>> ids = np.array([[2, 3, 0]])
        >>> before = encoder(ids)
        >>> with encoder.folded():
        ...     np.testing.assert_allclose(encoder(ids), before, atol=1e-6)
        """
        sums, _ = self._input_sums(ops.arange(self.words.vocabulary_size))
        tables = [keras.Variable(table, trainable=False, name="folded_words").value for table in sums]
        # A function, since Keras would count variables among the layer's weights.
        self._folded = lambda tokens: (tables, ops.cast(tokens, "int32"))
        try:
            yield
        finally:
            self._folded = None


@dataclass(frozen=True)
class Recurrent(WordEncoderPart, kind="recurrent"):
    """A recurrent network over word vectors.

    Attributes:
        cell: `gru`, `gru-reset-before` (the original GRU), `lstm` or `peephole-lstm`.
        units: size of the recurrent state of each direction.
        directions: `forward`, or both directions, as `concat` or `average`.
        pooling: pooling of the states: `last`, `mean`, `max`, `mean+max`, or `generalized`, which learns weights.
        dropout: share of pooled entries dropped in training.
        init_scale: recurrent weights are uniform in +- this; null for Keras' defaults.
    """

    layer: ClassVar[type[keras.layers.Layer]] = RecurrentSentenceEncoder

    cell: Cell = "gru"
    units: Size = 1024
    directions: Directions = "forward"
    pooling: Literal["last", "mean", "max", "mean+max", "generalized"] = "last"
    dropout: Share = 0.0
    init_scale: Positive | None = None

    @property
    def label(self) -> str:
        return self.cell

"""The multimodal recurrent network: prediction of the next word from an image and the words so far.

The variant with attention attends to the grid cells of the image at every word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import keras
from keras import ops

from vsemb.configured import Configured, build_layers, uniform
from vsemb.encoders import PixelEncoder, WordEmbedding
from vsemb.encoders.cells import ProjectedGRUCell, ProjectedLSTMCell, ReLUCell
from vsemb.encoders.pooled_map import channels_of
from vsemb.errors import invalid_argument
from vsemb.image.backbones import build_backbone
from vsemb.image.presets import display_name
from vsemb.parts import Count, Part, Positive, Share, Size
from vsemb.systems.captions.next_word import NextWordModel, read_ids

if TYPE_CHECKING:
    from vsemb.recipes.info import RunInfo

Tensor = Any

#: Name of a cell -> size of its inputs, as a multiple of `units`.
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
_CELLS = {"rnn": ReLUCell, "gru": ProjectedGRUCell, "lstm": ProjectedLSTMCell}
Cell = Literal["rnn", "gru", "lstm"]
ImageSteps = Literal["first", "all"]


@keras.saving.register_keras_serializable("vsemb")
class MultimodalRNN(NextWordModel):
    """Multimodal recurrent network of captions (Karpathy & Fei-Fei 2015, equations 13 to 15).

        b_v = W_hi CNN(I)                                           (13)
        h_t = f(W_hx x_t + W_hh h_(t-1) + b_h + 1(t=1) b_v)         (14)
        y_t = softmax(W_oh h_t + b_o)                               (15)

    f is a ReLU. x_1 is the START vector, row 0 of the table of words, and h_0 = 0. For `"gru"` and `"lstm"`, b_v has
    one entry per input of the gates, and is added in the same place.

    Batches have `image`, (n, ...) features or pixels, and `text`; see `NextWordModel`.

    Args:
        image_encoder: layer from images to b_v, (n, `GATES[cell]` x units): `vsemb.encoders.ImageEncoder`
            (without bias, as in equation 13) or `PixelEncoder`.
        words: the word vectors; its dropout is applied to x_t.
        cell: `"rnn"` (equation 14), `"gru"` or `"lstm"` (the default).
        units: size of the state; default 512.
        image_steps: steps at which b_v is added, `"first"` (the default) or `"all"`.
        dropout: dropout rate of the state before the softmax, in training; default 0. The recurrence has no dropout.
        init_scale: W_hx and W_hh are initialized uniform in [-init_scale, init_scale]; None for Glorot and orthogonal
            initialization.
        l2: see `NextWordModel`.
        **kwargs: arguments of `keras.Model`. The layers created here have the precision of `words`.

    Call args:
        inputs: {"image": (n, ...), "text": (n, steps) int}.
        training: whether dropout is applied.

    Returns:
        (n, steps + 1, words) float32 logits.

    Raises:
        InvalidArgumentError: if the cell is unknown, a number is out of range, or the image encoder has another output
            size.

    Example:

    >>> from vsemb.encoders import ImageEncoder
    >>> model = MultimodalRNN(ImageEncoder(4 * 8), WordEmbedding(10, 6), cell="lstm", units=8)
    >>> model({"image": ops.ones((2, 5)), "text": ops.array([[2, 3, 4], [5, 0, 0]])}).shape
    TensorShape([2, 4, 10])
    >>> log_probs, state = model.step(model.start({"image": ops.ones((2, 5))}), ops.zeros(2, "int32"))
    >>> log_probs.shape
    TensorShape([2, 10])
    """

    # Batches of pairs have ids, which a loss over pairs reads.
    input_names = ("image", "text", "image_id")

    def __init__(
        self,
        image_encoder: keras.layers.Layer,
        words: WordEmbedding,
        *,
        cell: Cell = "lstm",
        units: Count = 512,
        image_steps: ImageSteps = "first",
        dropout: float = 0.0,
        init_scale: float | None = None,
        l2: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(words.vocabulary_size, l2=l2, **kwargs)
        # Set before the image encoder: optimizers keep variables in the order in which layers were set.
        self.words = words
        self.keep_arguments(locals())
        self._check_image_encoder(image_encoder)
        options: dict[str, Any] = {"dtype": words.dtype_policy}
        kernel = uniform(init_scale, "glorot_uniform")
        recurrent = "orthogonal" if init_scale is None else kernel.clone()
        self.projection = keras.layers.Dense(
            GATES[cell] * units, use_bias=False, kernel_initializer=kernel, name="projection", **options
        )
        self.recurrent = keras.layers.RNN(_CELLS[cell](units, recurrent, **options), return_sequences=True, **options)
        self._dropout_layer = keras.layers.Dropout(dropout, **options)
        # The bias is a separate float32 weight: bfloat16 rounds log frequencies near -8 to one decimal.
        self.output_map = keras.layers.Dense(self.vocabulary_size, use_bias=False, name="output", **options)

    def _check_image_encoder(self, encoder: keras.layers.Layer) -> None:
        size = GATES[self.cell] * self.units
        dim = encoder.compute_output_shape((None, 1))[-1]
        if dim != size:
            allowed = f"a layer to {size} = {GATES[self.cell]} x units entries with cell={self.cell!r}"
            raise invalid_argument("image_encoder", f"one to {dim} entries", allowed)

    def build(self, input_shape: Any) -> None:
        build_layers(
            (self.image_encoder, tuple(input_shape["image"])),
            (self.words, (None, None)),
            (self.projection, (None, None, self.words.dim)),
            (self.recurrent, (None, None, GATES[self.cell] * self.units)),
            (self.output_map, (None, None, self.units)),
        )
        self.output_bias = self.add_weight(shape=(self.vocabulary_size,), initializer="zeros", name="output_bias")

    def call(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        image, seen = self._look(inputs["image"], training)
        sums = self.projection(self.words(read_ids(inputs["text"]), training=training))
        added = ops.expand_dims(ops.cast(image, sums.dtype), 1)
        if self.image_steps == "all":
            sums = sums + added
        else:
            sums = ops.concatenate([sums[:, :1] + added, sums[:, 1:]], axis=1)
        hidden = self._to_say(self.recurrent(sums, training=training), seen)
        return self._logits(self._dropout_layer(hidden, training=training))

    def _look(self, image: Tensor, training: bool = False) -> tuple[Tensor, dict[str, Tensor]]:
        """Return b_v, and the tensors that attention reads at every step, by name."""
        return self.image_encoder(image, training=training), {}

    def _to_say(self, hidden: Tensor, seen: dict[str, Tensor]) -> Tensor:
        """Return the input of the softmax from states, (n, steps, units)."""
        return hidden

    def _logits(self, hidden: Tensor) -> Tensor:
        return ops.cast(self.output_map(hidden), "float32") + self.output_bias

    def start(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        image, seen = self._look(inputs["image"])
        dtype, names = self.recurrent.compute_dtype, self._state_names()
        zeros = ops.zeros((ops.shape(image)[0], self.units), dtype)
        return {"image": ops.cast(image, dtype), **seen, **dict.fromkeys(names, zeros)}

    def step(self, state: dict[str, Tensor], words: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return self.step_projected(state, self.projected(words))

    def projected(self, words: Tensor) -> Tensor:
        """Return W_hx x of words.

        Args:
            words: (rows,) int32.

        Returns:
            (rows, `GATES[cell]` x units).
        """
        return self.projection(self.words(words))

    def step_projected(self, state: dict[str, Tensor], projected: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Read the next word as `step`, from its row of `projected`."""
        image, names = state["image"], self._state_names()
        seen = {name: value for name, value in state.items() if name not in ("image", *names)}
        sums = projected + image
        hidden, states = self.recurrent.cell(sums, [state[name] for name in names])
        if self.image_steps == "first":
            image = ops.zeros_like(image)
        said = self._to_say(ops.expand_dims(hidden, 1), seen)[:, 0]
        log_probs = ops.log_softmax(self._logits(said), axis=-1)
        return log_probs, {"image": image, **seen, **dict(zip(names, states, strict=True))}

    def _state_names(self) -> tuple[str, ...]:
        return ("hidden", "memory") if self.cell == "lstm" else ("hidden",)


@dataclass(frozen=True)
class Decoder(Part, family="decoder"):
    """The recurrent network that writes captions; base of the family `decoder`.

    Attributes:
        cell: `rnn` (equation 14 of Karpathy & Fei-Fei), `gru` or `lstm`.
        units: size of the recurrent state.
        image_steps: steps with the image as input, `first` or `all`.
        dropout: dropout rate of the state before the softmax, in training.
        frequency_bias: whether the softmax bias is initialized with log word frequencies.
        init_scale: recurrent weights are initialized uniform in +- this value; null for the Keras defaults.

    Class attributes:
        model: class of the model.
    """

    model: ClassVar[type[keras.Model]]

    cell: Cell = "lstm"
    units: Size = 512
    image_steps: ImageSteps = "first"
    dropout: Share = 0.0
    frequency_bias: bool = True
    init_scale: Positive | None = None

    def check_image(self, image: Any) -> None:
        """Check that the decoder supports an image tower.

        Args:
            image: a `vsemb.recipes.towers.ImageTower`.

        Raises:
            InvalidArgumentError: with the field of the tower.
        """
        raise NotImplementedError

    def image_encoder(self, image: Any, info: RunInfo, seed: int, dtype: str) -> keras.layers.Layer:
        """Build the layer from images to the input of the decoder.

        Args:
            image: a `vsemb.recipes.towers.ImageTower`.
            info: contents of `run.json`.
            seed: seed of a backbone's random weights.
            dtype: dtype policy of the layer.
        """
        raise NotImplementedError

    def build(self, image_encoder: keras.layers.Layer, words: WordEmbedding, l2: float) -> MultimodalRNN:
        """Build the model.

        Args:
            image_encoder: layer returned by `image_encoder`.
            words: the word vectors.
            l2: see `NextWordModel`.
        """
        return self.model(image_encoder, words, l2=l2, **self.arguments("frequency_bias"))


@dataclass(frozen=True)
class RecurrentDecoder(Decoder, kind="recurrent"):
    """A recurrent network with one vector per image as input (Karpathy & Fei-Fei 2015)."""

    model: ClassVar[type[keras.Model]] = MultimodalRNN

    def check_image(self, image: Any) -> None:
        if image.projection.keeps_size:
            fix = "The image goes to all gates of the cell."
            raise invalid_argument("image.projection", image.projection.kind, "a map to another size", fix)

    def image_encoder(self, image: Any, info: RunInfo, seed: int, dtype: str) -> keras.layers.Layer:
        return image.build(GATES[self.cell] * self.units, info, seed=seed, dtype=dtype)


@keras.saving.register_keras_serializable("vsemb")
class SpatialFeatureEncoder(Configured, keras.layers.Layer):
    """Affine map of the features and position of each grid cell: v_p = ReLU(W f_p + b_p).

    The cells are the flattened map of a convolutional network.

    Args:
        cells: number of cells, height x width of the map.
        dim: size of a cell's vector.
        dropout: dropout rate of the features in training; default 0.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        features: (batch, cells x channels) float, cell by cell, as returned by pooling `flat`.
        training: whether dropout is applied.

    Returns:
        (batch, cells, dim).

    Raises:
        InvalidArgumentError: if a number is < 1, or the size of the features is not a multiple of `cells`.

    Example:

    >>> SpatialFeatureEncoder(cells=4, dim=8)(ops.ones((2, 4 * 3))).shape
    TensorShape([2, 4, 8])
    """

    def __init__(self, cells: Count, dim: Count, *, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self._dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.affine = keras.layers.Dense(dim, use_bias=False, dtype=self.dtype_policy, name="affine")

    def build(self, input_shape: Any) -> None:
        self.affine.build((input_shape[0], self.cells, channels_of(input_shape[-1], self.cells)))
        self.position = self.add_weight(shape=(self.cells, self.dim), initializer="zeros", name="position")

    def call(self, features: Tensor, training: bool = False) -> Tensor:
        features = self._dropout_layer(features, training=training)
        features = ops.reshape(features, (-1, self.cells, features.shape[-1] // self.cells))
        return ops.relu(self.affine(features) + ops.cast(self.position, self.compute_dtype))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return input_shape[0], self.cells, self.dim


@keras.saving.register_keras_serializable("vsemb")
class AttentiveRNN(MultimodalRNN):
    """A `MultimodalRNN` with attention between its cell and its softmax (Luong et al. 2015, section 3.1).

        b_v = W_hi mean_p v_p                                       (13, mean over cells)
        h_t: see equation 14
        c_t = attention of h_t to v_1 ... v_P                       (Vaswani et al. 2017, equation 4)
        y_t = softmax(W_oh tanh(W_c [h_t; c_t]) + b_o)              (Luong, equations 5 and 6)

    A single vector per image must encode all pairs of colour and shape. With attention, the state after "a red"
    attends to red cells, and reads the shape there. c_t is not fed back into the cell, so all words of a caption are
    still trained at once.

    Args:
        image_encoder: layer from images to v, (n, cells, units), with at least two cells:
            `vsemb.encoders.PixelEncoder` with a `SpatialFeatureEncoder`.
        words: see `MultimodalRNN`.
        heads: number of attention heads, a divisor of `units`; default 4.
        **kwargs: other arguments of `MultimodalRNN`.

    Raises:
        InvalidArgumentError: see `MultimodalRNN`; also if `heads` does not divide `units`.

    Example:

    >>> model = AttentiveRNN(SpatialFeatureEncoder(4, 8), WordEmbedding(10, 6), units=8, heads=2)
    >>> model({"image": ops.ones((2, 4 * 5)), "text": ops.array([[2, 3, 4], [5, 0, 0]])}).shape
    TensorShape([2, 4, 10])

    References:
        Luong, Pham, Manning. Effective Approaches to Attention-based Neural Machine Translation. EMNLP 2015,
        arXiv:1508.04025.
        Xu et al. Show, Attend and Tell. ICML 2015, arXiv:1502.03044.
    """

    def __init__(
        self, image_encoder: keras.layers.Layer, words: WordEmbedding, *, heads: int = 4, **kwargs: Any
    ) -> None:
        super().__init__(image_encoder, words, **kwargs)
        if heads < 1 or self.units % heads:
            raise invalid_argument("heads", heads, f"a divisor of units={self.units}")
        self.heads = heads
        options: dict[str, Any] = {"dtype": words.dtype_policy}
        self.summary = keras.layers.Dense(GATES[self.cell] * self.units, use_bias=False, name="summary", **options)
        self.attention = keras.layers.MultiHeadAttention(heads, self.units // heads, name="attention", **options)
        self.combination = keras.layers.Dense(
            self.units, activation="tanh", use_bias=False, name="combination", **options
        )

    def _check_image_encoder(self, encoder: keras.layers.Layer) -> None:
        shape = encoder.compute_output_shape((None, 1))
        if len(shape) != 3 or shape[-1] != self.units or (shape[1] or 0) < 2:
            allowed = f"a layer to two or more grid cells of {self.units} = units entries"
            raise invalid_argument("image_encoder", f"one to {shape[1:]}", allowed)

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        cells = (None, None, self.units)
        self.summary.build((None, self.units))
        self.attention.build(cells, cells)
        self.combination.build((None, None, 2 * self.units))

    def _look(self, image: Tensor, training: bool = False) -> tuple[Tensor, dict[str, Tensor]]:
        cells = ops.cast(self.image_encoder(image, training=training), self.words.compute_dtype)
        return self.summary(ops.mean(cells, axis=1)), {"cells": cells}

    def _to_say(self, hidden: Tensor, seen: dict[str, Tensor]) -> Tensor:
        cells = seen["cells"]
        looked = self.attention(hidden, cells, cells)
        return self.combination(ops.concatenate([hidden, looked], axis=-1))


@dataclass(frozen=True)
class AttentiveDecoder(Decoder, kind="attentive"):
    """A recurrent network that attends to the grid cells of the image at every word.

    Attributes:
        heads: number of attention heads, a divisor of `units`.
    """

    model: ClassVar[type[keras.Model]] = AttentiveRNN

    heads: Count = 4

    def check(self) -> None:
        if self.units % self.heads:
            raise invalid_argument("decoder.heads", self.heads, f"a divisor of units={self.units}")

    def check_image(self, image: Any) -> None:
        if not image.from_pixels:
            fix = "Train from pixels: see the variant attention of multimodal-rnn."
            raise invalid_argument("image", image.kind, "'pixels' with decoder=attentive", fix)
        if image.pooling != "flat":
            fix = "Set image.pooling=flat."
            raise invalid_argument("image.pooling", image.pooling, "'flat' with decoder=attentive", fix)
        if image.layer is not None:
            raise invalid_argument("image.layer", image.layer, "omitted with decoder=attentive")
        if not image.projection.keeps_size:
            fix = "The decoder maps each grid cell by itself."
            raise invalid_argument("image.projection", image.projection.kind, "'none' with decoder=attentive", fix)

    def image_encoder(self, image: Any, info: RunInfo, seed: int, dtype: str) -> keras.layers.Layer:
        if not image.config.network.gives_map:
            name = display_name(image.backbone)
            raise invalid_argument("image.backbone", name, "a network that gives a map, with decoder=attentive")
        backbone = build_backbone(image.config, image.weights, seed=seed)
        height, width = backbone.get_layer("flat").input.shape[1:3]
        cells = SpatialFeatureEncoder(height * width, self.units, dropout=image.dropout, dtype=dtype)
        return PixelEncoder(backbone, cells, frozen_statistics=image.frozen_statistics, dtype=dtype)

"""The dual encoder: an image tower and a text tower that meet in one space."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import keras

from vsemb import losses, similarities
from vsemb.configured import Configured
from vsemb.errors import VsembError, invalid_argument
from vsemb.models.in_batch import InBatchObjective, LogitScale
from vsemb.models.replicated import ReplicatedModel
from vsemb.ops.chunks import map_in_chunks
from vsemb.parts import Count, NonNegative

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class DualEncoder(Configured, ReplicatedModel):
    """Images and sentences in one space, trained with an in-batch loss in both directions.

    `fit` takes batches of inputs alone (no `y`), as `vsemb.data.batches.PairBatches` makes them:

        image           (n, ...) features or pixels
        text            (n, steps) int token ids, row i describing image i; (n, steps, 2) for trees
        image_id        (n,) int64; rows with one id are never each other's negatives
        negative_image, negative_image_id   (m, ...), (m,)  optional: more negatives for the texts
        negative_text, negative_text_id     (m, steps), (m,)  optional: more negatives for the images;
                        with them, the other rows of the batch are no negatives (Kiros et al. 2014:
                        "contrastive terms are chosen randomly from the training set")
        class_id        (n,) int64 optional: rows of one class are never each other's negatives, and a
                        loss over classes (`StructuredJointEmbedding`) compares these
        text_image_id   (k,) int64 optional: when there are k texts for n images, the id of the image
                        that each describes; every text then makes a pair with its image

    With a similarity of sets (`Similarity.multi_vector`), such as `"max-sim"`, an image is a set of regions and a
    text one of words: features are (n, regions, size), embeddings (n, regions, dim) and (n, steps, dim), and
    a row of zeros is padding in all of them. Everything else stays as it is; sampled negatives may have
    another number of regions or steps than the batch.

    Under a distribution strategy the candidates are those of all replicas, and a step equals the
    single-device step on the whole batch. The replicas' shares of a batch of sets have one number of regions
    and of steps.

    Args:
        image_encoder: layer from images (features or pixels) to (n, dim), or (n, regions, dim) for sets, as
            `RegionEncoder`.
        text_encoder: layer from token ids to (n, dim), or (n, steps, dim) for sets.
        similarity: the kind of one, such as `"cosine"`, or a `Similarity`.
        logit_scale: a `LogitScale`, for losses that want a learned temperature.
        image_weight: weight of the loss whose queries are images.
        text_weight: weight of the loss whose queries are texts; with 0 for one of the two, the loss is
            asymmetric.
        l2: L2 penalty: this much times half the sum of squares of all trained matrices is added to the loss,
            once a step whatever the batch. Biases, scales and tables of word vectors (`WordEmbedding`) are
            left out.
        chunk_size: rows that each encoder embeds at a time in training, the rest of a batch waiting its turn;
            None for all at once. Memory of activations is then that of a chunk, whatever the batch, and
            gradients are the same; each chunk is embedded once more for its gradient, which takes about a
            third more time (`vsemb.models.dual_encoder`). With dropout, rows draw other masks than they
            would at once.
        block_size: queries of the loss that are scored at a time; None for all at once. The matrix of all
            scores is then never held, and loss and gradients are the same. Every loss has it; what it costs
            is that each direction computes its scores. `SigmoidLoss` has both directions in one, and under a
            strategy meets the candidates of one replica at a time instead of gathering all
            (`vsemb.ops.replicas`).
        **kwargs: arguments of `keras.Model`.

    Call args:
        inputs: the mapping above; `image` or `text` alone is enough.
        training: whether dropout acts.

    Returns:
        {"image": (n, dim) float32, "text": (n, dim) float32}, whichever were given, normalised; of sets
        (n, regions, dim) and (n, steps, dim).

    Example:

    >>> import numpy as np
    >>> from vsemb.encoders import ImageEncoder, LinearSentenceEncoder, WordEmbedding
    >>> model = DualEncoder(ImageEncoder(4), LinearSentenceEncoder(WordEmbedding(10, 4)))
    >>> model.compile("adam", loss=losses.PairwiseRanking(margin=0.2))
    >>> batch = {"image": np.ones((2, 8)), "text": np.ones((2, 3), "int32"), "image_id": np.arange(2)}
    >>> sorted(model(batch))
    ['image', 'text']
    """

    def __init__(
        self,
        image_encoder: keras.layers.Layer,
        text_encoder: keras.layers.Layer,
        similarity: str | similarities.Similarity = "cosine",
        *,
        logit_scale: LogitScale | None = None,
        image_weight: float = 1.0,
        text_weight: float = 1.0,
        l2: NonNegative = 0.0,
        chunk_size: Count | None = None,
        block_size: Count | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        if not (image_weight >= 0 and text_weight >= 0 and image_weight + text_weight > 0):
            received = (image_weight, text_weight)
            raise invalid_argument("image_weight, text_weight", received, "numbers >= 0, one of them > 0")
        self.similarity = similarities.get(similarity)
        if logit_scale is not None and not logit_scale.built:
            logit_scale.build()

    def build(self, input_shape: Any) -> None:
        shapes = input_shape if isinstance(input_shape, Mapping) else {}
        for name, encoder in (("image", self.image_encoder), ("text", self.text_encoder)):
            if name in shapes and not encoder.built:
                encoder.build(tuple(shapes[name]))

    def encode_images(self, images: Tensor, training: bool = False) -> Tensor:
        """Embeds images; (n, ...) -> (n, [regions,] dim) float32 in the similarity's geometry."""
        return self.similarity.normalize(self.image_encoder(images, training=training))

    def encode_texts(self, token_ids: Tensor, training: bool = False) -> Tensor:
        """Embeds token ids; (n, steps) -> (n, [steps,] dim) float32 in the similarity's geometry."""
        return self.similarity.normalize(self.text_encoder(token_ids, training=training))

    def call(self, inputs: Mapping[str, Tensor], training: bool = False) -> dict[str, Tensor]:
        sides = {
            "image": (self.image_encoder, partial(self.encode_images, training=training)),
            "text": (self.text_encoder, partial(self.encode_texts, training=training)),
        }
        outputs = {}
        for name in ("image", "negative_image", "text", "negative_text"):
            if name in inputs:
                encoder, encode = sides[name.removeprefix("negative_")]
                if training and self.chunk_size is not None:
                    outputs[name] = encode_in_chunks(encoder, encode, inputs[name], self.chunk_size)
                else:
                    outputs[name] = encode(inputs[name])
        return outputs

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Tensor:
        """Returns the loss of both directions, candidates gathered from all replicas.

        Args:
            x: the inputs, see the class.
            y: not used; the ids in `x` say what belongs together.
            y_pred: what `call` returned for `x`.
            sample_weight: not used.
            training: whether a gradient is going to be asked for.

        Raises:
            InvalidArgumentError: if the model was compiled with a loss that is not row-wise, or `x` has
                classes together with negatives or ids of their own for the texts.
        """
        row_loss = losses.get(self.loss)
        if self.optimizer is not None:
            row_loss.bind_step(self.finished_steps)
        weights = self.image_weight, self.text_weight
        in_batch = InBatchObjective(row_loss, self.similarity, self.logit_scale, *weights, self.block_size)
        return self.with_penalties(in_batch(x, y_pred, training))


def encode_in_chunks(
    encoder: keras.layers.Layer, encode: Callable[[Tensor], Tensor], rows: Tensor, chunk_size: int
) -> Tensor:
    """Embeds rows chunk by chunk in training, so that activations of one chunk are in memory at a time.

    The gradients for the encoder's weights are those of all rows at once, to rounding. Dropout draws each
    chunk's masks once: where a chunk is computed again for its gradient, they come out as they were. What
    an encoder writes down, such as the moving averages of a batch normalisation, is updated once a chunk.
    The gradient of a table of word vectors has one row a word, see `WordEmbedding`'s `dense_gradient`.

    Args:
        encoder: the layer whose weights are trained.
        encode: from rows to embeddings, with that layer.
        rows: (n, ...) inputs; they get no gradient.
        chunk_size: rows at a time, >= 1.

    Returns:
        (n, ...) float32, what `encode` returns.

    Raises:
        VsembError: if the encoder adds losses of its own while it embeds (`add_loss`, activity
            regularisers), which would be counted for a chunk instead of a batch.

    Where an encoder looks at several rows at once, as a batch normalisation with batch statistics does, it
    sees those of a chunk. Random numbers must come from `keras.random` with a `SeedGenerator` that the
    encoder owns, as those of Keras' layers do.

    Example:

    >>> from vsemb.encoders import ImageEncoder
    >>> encoder = ImageEncoder(4)
    >>> encoder.build((None, 8))
    >>> encode_in_chunks(encoder, encoder, keras.ops.ones((5, 8)), 2).shape
    TensorShape([5, 4])
    """
    if not encoder.built:
        encoder.build(rows.shape)
    trained, others = encoder.trainable_variables, encoder.non_trainable_variables
    changed: set[int] = set()

    def function(rows: Tensor, weights: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        mapping = [*zip(trained, weights, strict=True), *zip(others, state, strict=True)]
        with keras.StatelessScope(mapping, collect_losses=True, initialize_variables=False) as scope:
            embeddings = encode(rows)
        if scope.losses:
            raise VsembError(
                f"{encoder.name} adds losses of its own while it embeds, which chunks would change. Train it "
                "without chunk_size, or without its activity regularisers."
            )
        after = [scope.get_current_value(variable) for variable in others]
        changed.update(number for number, value in enumerate(after) if value is not state[number])
        return embeddings, after

    weights, state = ([variable.value for variable in some] for some in (trained, others))
    embeddings, state = map_in_chunks(function, rows, chunk_size, weights, state)
    for number in sorted(changed):
        others[number].assign(state[number])
    return embeddings

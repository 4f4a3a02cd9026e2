"""Gradient caching (Gao et al. 2021, arXiv:2101.06983): big batches through an encoder, a chunk at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras

from vsemb.errors import VsembError
from vsemb.ops.chunks import map_in_chunks

Tensor = Any


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

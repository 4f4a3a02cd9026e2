"""Tables of folded words in a SavedModel: recurrent text encoders look up the products of all words with their kernels.

They are faster, above all for one text, and need more memory than the word vectors that they replace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import keras

from vsemb.exporting.signatures import layers_of

#: Maximum size of the tables of a model in bytes.
MAX_BYTES = 64_000_000


@contextlib.contextmanager
def folded_words(*models: keras.layers.Layer) -> Iterator[list[str]]:
    """Fold words in functions that are traced and saved in this context, if all tables together are small enough.

    Args:
        *models: models or layers that may contain a `vsemb.encoders.RecurrentSentenceEncoder`.

    Yields:
        A sentence for the model card; none for models without words that can be folded.

    Example:

        with folded_words(model) as sentences:
            tf.saved_model.save(module, directory, signatures=signatures)
    """
    sizes = {layer: layer.folded_bytes for layer in layers_of(*models) if hasattr(layer, "folded_bytes")}
    encoders = [layer for layer, size in sizes.items() if size]
    size = sum(sizes.values())
    if not encoders:
        yield []
        return
    tables = f"{size / 1e6:,.1f} MB"
    limit = f"{MAX_BYTES / 1e6:,.1f} MB"
    if size > MAX_BYTES:
        yield [f"The products of all words with the input matrices are not stored: {tables} is more than {limit}."]
        return
    with contextlib.ExitStack() as stack:
        for encoder in encoders:
            stack.enter_context(encoder.folded())
        yield [f"The products of all words with the input matrices are stored, {tables}. The limit is {limit}."]

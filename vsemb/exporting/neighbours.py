"""Rows of a served model must not depend on the other rows of their batch.

A server puts rows of several clients into one batch and pads short texts. If a text encoder reads padding, an embedding
depends on the texts of other clients. The functions here embed rows together, in another order, and alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from vsemb.errors import DataError, InvalidArgumentError, invalid_argument, one_line
from vsemb.exporting.reference_outputs import Arrays, compare, part
from vsemb.exporting.signatures import tensors, tolerance_of
from vsemb.ops.tensorflow import tf

#: Texts for a SavedModel that does not tell its vocabulary; each word is frequent in English captions.
TEXTS = ["a", "a dog", "man", "two people in the red water near a white dog and a black cat"]


# Steps of token ids, beyond those of the examples.
_STEPS = (8, 16, 32, 64, 128)


def dependence(embed: Callable[..., Any], inputs: Arrays, tolerance: float) -> str | None:
    """Compare rows of a batch with the same rows in another order and alone.

    Args:
        embed: a signature, from tensors by name to `embedding` and `valid`.
        inputs: rows, short and long ones.
        tolerance: maximum difference, relative to the largest entry. Matrix products of other sizes add in another
            order, so rows are not equal bit for bit, see `vsemb.exporting.signatures.REASON`.

    Returns:
        A phrase that states the difference, or None.
    """
    count = len(next(iter(inputs.values())))
    together = _run(embed, inputs)
    turned = _run(embed, {name: values[::-1] for name, values in inputs.items()})
    for row in range(count):
        alone = _run(embed, _trimmed(part(inputs, row)))
        for how, batch, place in (("in another order", turned, count - 1 - row), ("alone", together, row)):
            _, problem = compare(alone, part(batch, place), tolerance)
            if problem:
                return f"row {row} {how} {problem}"
    return None


def require_independence(model: Any, served: Any, padded_ids: bool = True) -> None:
    """Check that texts and images have the same embeddings alone and beside others.

    Args:
        model: the `DualEncoder`.
        served: its `vsemb.exporting.ServedModel`.
        padded_ids: whether token ids that the model takes may be padded with 0.

    Raises:
        InvalidArgumentError: naming the encoder and the layer, also if an example cannot be embedded.
    """
    concrete = served.signatures
    for name, signature in (("text_encoder", served.text), ("image_encoder", served.image)):
        if signature is None or (signature is served.text and not padded_ids):
            continue
        embed, inputs = concrete[signature.name], signature.examples()
        try:
            problem = dependence(embed, inputs, served.tolerance)
        except tf.errors.OpError as error:
            raise _failed(name, getattr(model, name), error) from error
        if problem is None and "token_ids" in inputs:
            problem = _dependence_of_longer(embed, inputs["token_ids"], served.tolerance)
        if problem:
            raise _refused(name, getattr(model, name), problem)


def _dependence_of_longer(embed: Callable[..., Any], ids: np.ndarray, tolerance: float) -> str | None:
    """Compare rows of more token ids, up to the number that the encoder takes; arguments as `dependence`."""
    for steps in _STEPS:
        rows = np.zeros((3, steps, *ids.shape[2:]), ids.dtype)
        for row, length in enumerate((1, steps // 2 + 1, steps)):
            rows[row, :length] = np.resize(ids[-1], rows[row, :length].shape)
        try:
            problem = dependence(embed, {"token_ids": rows}, tolerance)
        except tf.errors.OpError:
            break  # Such as embeddings of fewer positions; a longer row is an error of its own request.
        if problem:
            return problem
    return None


def check_loaded(path: str, name: str, encode: Any, rows: Mapping[str, Sequence[str | bytes]]) -> bool:
    """Check that a signature of a SavedModel embeds rows in the same way alone and beside others.

    Args:
        path: the SavedModel, for the message.
        name: name of the signature.
        encode: the signature, as TensorFlow loads it.
        rows: texts, or bytes of images.

    Returns:
        Whether the check could tell: the signature takes these inputs, and a row is valid.

    Raises:
        DataError: if a row depends on others.
    """
    specs = encode.structured_input_signature[1]
    if set(rows) != set(specs) or any(spec.dtype != "string" for spec in specs.values()):
        return False
    inputs = {key: np.array(list(map(tf.compat.as_bytes, values)), object) for key, values in rows.items()}
    outputs = encode(**tensors(inputs))
    if not {"embedding", "valid"} <= set(outputs):
        return False
    # The numbers may have been computed in bfloat16.
    if problem := dependence(encode, inputs, tolerance_of(["bfloat16"])):
        raise DataError(
            f"{path} must embed rows in the same way alone and beside others in {name}; {problem}. Export it again "
            "from the Keras model, whose `export` names the layer and the fix."
        )
    return bool(outputs["valid"].numpy().any())


def _refused(name: str, encoder: keras.layers.Layer, problem: str) -> InvalidArgumentError:
    side = name.removesuffix("_encoder")
    fix = "Look for a layer that mixes rows, such as one with statistics of the batch."
    if side == "text":
        fix = "Its layers must ignore padding, token id 0: pass on and read Keras' masks."
        unmasked = [each.name for each in _embeddings(encoder) if not each.mask_zero]
        if unmasked:
            fix = f"Set mask_zero=True in its layer {unmasked[0]}: keras.layers.Embedding(…, mask_zero=True)."
    allowed = f"a layer that embeds each {side} in the same way alone and beside others"
    return invalid_argument(name, f"{type(encoder).__name__}, where {problem}", allowed, fix)


def _failed(name: str, encoder: keras.layers.Layer, error: tf.errors.OpError) -> InvalidArgumentError:
    # TensorFlow puts a trace before the reason, and the node behind it.
    reason = one_line(error.message.split("\n\t [[")[0].rpartition("\n")[2], 200)
    received = f"{type(encoder).__name__}, which fails: {reason}"
    fix = "Export tries texts of 0 to 300 words; cut longer ones in the tokenizer." if name == "text_encoder" else None
    return invalid_argument(name, received, "a layer that embeds rows of every size that its inputs can have", fix)


def _embeddings(encoder: keras.layers.Layer) -> Iterable[keras.layers.Embedding]:
    return [layer for layer in encoder._flatten_layers() if isinstance(layer, keras.layers.Embedding)]


def _trimmed(row: Arrays) -> Arrays:
    """Return a row without the padding of its token ids."""
    if "token_ids" not in row:
        return row
    ids = row["token_ids"]
    return {**row, "token_ids": ids[:, : max(1, np.count_nonzero(ids))]}


def _run(embed: Callable[..., Any], inputs: Arrays) -> Arrays:
    outputs = embed(**tensors(inputs))
    return {name: outputs[name].numpy() for name in ("embedding", "valid")}

"""Writing a trained model as a SavedModel that TensorFlow Serving loads, and trying it out first."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from vsemb.errors import DataError
from vsemb.export.corpus import Corpus
from vsemb.export.signatures import ClassPrompts, ImageInput, ServedModel
from vsemb.export.versions import publishing
from vsemb.models import DualEncoder, EntailmentModel

# Largest difference from the Keras model that a reload may show, relative to the largest entry (1 for unit
# vectors). A graph adds the same numbers in another order and over rows padded to another length: up to
# 2e-7 in float32 and, since it rounds in other places, 5e-4 in bfloat16 were seen with all recipes. A wrong
# weight, a lost table or another preprocessing is 1e-2 and more.
_TOLERANCES = {"float32": 1e-5, "bfloat16": 5e-3}


def export_savedmodel(
    model: DualEncoder | EntailmentModel,
    tokenizer: Callable[[tf.Tensor], tf.Tensor],
    out: str | os.PathLike[str],
    *,
    image_input: ImageInput | None,
    classes: ClassPrompts | None = None,
    corpus: Corpus | None = None,
    version: int | None = None,
    fingerprint: str | None = None,
) -> Path:
    """Writes a model as `out/<version>/`, whole or not at all.

    Signatures, with the batch as 0th dimension: `encode_text` (`text` string [B]), also as
    `serving_default`, and `encode_image` (`image_bytes` string [B]), each to `embedding` float32
    [B, D] and `valid` bool [B]; with classes also `classify` (`image_bytes` string [B]) to `classes`
    string [B, C], `scores` float32 [B, C] and `valid` bool [B]. Core TensorFlow operations only, so any
    TensorFlow Serving runs it. Before it is published it is loaded and must give what the Keras model gives.

    Args:
        model: the trained model.
        tokenizer: string (batch,) -> int ids (batch, steps), 0 where there is no word; its lookup
            tables go into the SavedModel.
        out: the model's directory, e.g. `savedmodels/flickr8k`.
        image_input: from bytes to the model's image input; None leaves `encode_image` out.
        classes: what `classify` tells apart; None leaves it out.
        corpus: what `search_text` and `search_image` search; None leaves them out.
        version: its number, from 1; None for the next.

    Returns:
        The directory of the version.

    Raises:
        InvalidArgumentError: for classes without an image input.
        DataError: if the version exists, the file system refuses, or the reloaded SavedModel differs
            from the model.

    Example:

        export_savedmodel(run.model, run.tokenizer, "savedmodels/flickr8k", image_input=None)
    """
    served = ServedModel(model, tokenizer, image_input, classes, corpus)
    with publishing(out, version) as publication:
        write(served, publication.temporary)
        verify(served, publication.temporary)
    assert publication.path is not None
    return publication.path


def write(served: ServedModel, directory: Path) -> None:
    """Writes the SavedModel of a served model into a directory."""
    signatures = served.signatures
    module = tf.Module()
    # Only what the functions read: no optimizer, no seeds of dropout, no Keras objects, which would ask
    # for Keras when the SavedModel is loaded in Python.
    variables = {id(v): v for function in signatures.values() for v in function.graph.variables}
    module.weights = list(variables.values())
    module.tables = [value for value in vars(served.tokenizer).values() if _is_table(value)]
    try:
        with _quiet():
            tf.saved_model.save(module, str(directory), signatures=signatures)
    except tf.errors.OpError as error:
        raise DataError(f"Cannot write the SavedModel: {error.message}.") from error


def verify(served: ServedModel, directory: Path) -> None:
    """Loads a SavedModel and compares it with the Keras model on a few inputs, good and bad.

    The Keras model is given one row at a time, the SavedModel all rows at once, so that a row that
    depends on its neighbours shows too.

    Raises:
        DataError: if an embedding or score differs or is not finite, or a row's validity differs.
    """
    loaded = tf.saved_model.load(str(directory))
    encoders = [served.model.text_encoder]
    # Name, the Keras model's function, inputs, and the least that differences are relative to.
    cases: list[tuple[str, Any, list[bytes], float]] = []
    cases.append(("encode_text", served.text_rows, golden_texts(served.tokenizer), 1.0))
    if served.image_input is not None:
        encoders.append(served.model.image_encoder)
        cases.append(("encode_image", served.image_rows, golden_images(), 1.0))
    if served.classes is not None:
        cases.append(("classify", served.class_rows, golden_images(), _score_scale(served)))
    tolerance = max(_TOLERANCES.get(encoder.compute_dtype, 0.0) for encoder in encoders)
    for name, reference, inputs, scale in cases:
        function = loaded.signatures[name]
        (argument,) = function.structured_input_signature[1]
        got = {key: value.numpy() for key, value in function(**{argument: tf.constant(inputs)}).items()}
        rows = [reference(tf.constant([row])) for row in inputs]
        wanted = {key: np.concatenate([row[key] for row in rows]) for key in got}
        _compare(name, wanted, got, tolerance, scale)
        if function(**{argument: tf.zeros([0], tf.string)})["valid"].shape[0] != 0:
            raise DataError(f"The SavedModel's {name} does not take an empty batch; it was not published.")


def golden_texts(tokenizer: Any) -> list[bytes]:
    """Returns texts to try an export with: of the vocabulary's words where there is one, and odd ones."""
    words = getattr(getattr(tokenizer, "vocabulary", None), "words", ())
    # Single ones too, since a word may be the name of a class, which is a text of its own.
    known = [words[0], " ".join(words[:7]), words[-1]] if words else []
    odd = ["a dog running on a beach", "zyzzyva", "", " .!? ", "ÜBER " * 300]
    return [text.encode() for text in (*known, *odd)] + [b"a \xff\xfe dog"]


def golden_images() -> list[bytes]:
    """Returns images to try an export with: a JPEG, a PNG with alpha, a truncated one and no image."""
    random = np.random.default_rng(0)
    jpeg = tf.io.encode_jpeg(random.integers(0, 256, (37, 53, 3), dtype=np.uint8)).numpy()
    png = tf.io.encode_png(random.integers(0, 256, (64, 64, 4), dtype=np.uint8)).numpy()
    return [jpeg, b"not an image", png, png[: len(png) // 2], b""]


def _score_scale(served: ServedModel) -> float:
    """Returns how large scores may be: rounding grows with the embeddings, even where scores are near 0."""
    assert served.classes is not None
    images = served.image_rows(tf.constant(golden_images()))["embedding"].numpy()
    largest = [np.linalg.norm(side, axis=-1).max() for side in (images, served.classes.embeddings)]
    return max(1.0, float(np.prod(largest)))


def _compare(
    name: str,
    wanted: dict[str, np.ndarray],
    got: dict[str, np.ndarray],
    tolerance: float,
    scale: float,
) -> None:
    if got["valid"].tolist() != wanted["valid"].tolist():
        raise DataError(
            f"The SavedModel's {name} finds other rows valid than the model ({got['valid'].tolist()}, "
            f"not {wanted['valid'].tolist()}); it was not published."
        )
    for key in sorted(wanted):
        if wanted[key].dtype != np.float32:
            if not np.array_equal(got[key], wanted[key]):
                raise DataError(
                    f"The SavedModel's {name} gives other {key} than the model; it was not published."
                )
            continue
        if not all(np.isfinite(outputs[key]).all() for outputs in (wanted, got)):
            # Named as the reader knows them: embeddings, scores.
            raise DataError(f"{name} gives {key.rstrip('s')}s that are not finite; it was not published.")
        largest = max(scale, float(np.abs(wanted[key]).max()))
        difference = float(np.abs(got[key] - wanted[key]).max()) / largest
        if difference > tolerance:
            raise DataError(
                f"The SavedModel's {name} differs from the model by {difference:.1e}, more than "
                f"{tolerance:.0e}; it was not published."
            )


def _is_table(value: Any) -> bool:
    return isinstance(value, tf.lookup.StaticHashTable | tf.lookup.StaticVocabularyTable)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps TensorFlow from saying where assets would have gone."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)

"""Writing a trained model as a SavedModel that TensorFlow Serving loads, and trying it out first."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from vsemb import __version__
from vsemb.errors import DataError
from vsemb.export.card import ModelFacts, card_path, model_card, version_card_path, write_card
from vsemb.export.contract import (
    Contract,
    Golden,
    geometry,
    hashes,
    publish_contract,
    version_contract_path,
)
from vsemb.export.corpus import Corpus
from vsemb.export.golden import (
    Arrays,
    compare,
    golden_alignments,
    golden_images,
    golden_k,
    golden_regions,
    golden_sets,
    golden_texts,
    golden_trees,
    part,
)
from vsemb.export.image_input import ImageInput
from vsemb.export.servable import check_servable, signature_specs
from vsemb.export.signatures import ClassPrompts, ServedModel
from vsemb.export.versions import publishing
from vsemb.export.warmup import write_warmup
from vsemb.image.decode import MAX_PIXELS
from vsemb.models import DualEncoder, EntailmentModel
from vsemb.models.entailment import COMPARISONS
from vsemb.text.normalize import MAX_BYTES

# Largest difference from the Keras model that a reload may show, relative to the largest entry (1 for unit
# vectors). A graph adds the same numbers in another order and over rows padded to another length: up to
# 5e-7 in float32 and, since it rounds in other places, 1e-3 in bfloat16 were seen with all recipes. A wrong
# weight, a lost table or another preprocessing is 1e-2 and more.
_TOLERANCES = {"float32": 1e-5, "bfloat16": 5e-3}
_REASON = (
    "Relative to the largest entry (1 at least). Other batches, processors and libraries add the same "
    "numbers in another order: up to 5e-7 was seen in float32 and 1e-3 in bfloat16. Other weights, tables or "
    "preprocessing make 1e-2 and more."
)


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
    card: ModelFacts | None = None,
    report: Callable[[str], None] = warnings.warn,
) -> Path:
    """Writes a model as `out/<version>/`, whole or not at all.

    Signatures, with the batch as 0th dimension: `encode_text` (`text` string [B]), also as
    `serving_default`, and `encode_image` (`image_bytes` string [B]), each to `embedding` float32
    [B, D] and `valid` bool [B]; with classes also `classify` (`image_bytes` string [B]) to `classes`
    string [B, C], `scores` float32 [B, C] and `valid` bool [B]. A model of sets has embeddings float32
    [B, items, D] and `align`. A model that takes dependency trees has
    `encode_tree` (`tokens` string [B, T], `heads` int32 [B, T]) in place of `encode_text`; see
    `vsemb.export.signatures.ServedModel`. Core TensorFlow operations only, so any
    TensorFlow Serving runs it. Before it is published it is loaded and must give what the Keras model gives.

    Beside it, in `assets.extra`, go warm-up requests, the contract and the model card; once published, the
    last two also become `contracts/NAME.json` and `contracts/NAME.md` next to `out`, see
    `vsemb.export.contract` and `vsemb.export.card`.

    Args:
        model: the trained model.
        tokenizer: string (batch,) -> int ids (batch, steps), 0 where there is no word, or a
            `vsemb.text.tree_tokenizer.TreeTokenizer`; its lookup tables go into the SavedModel.
        out: the model's directory, e.g. `savedmodels/flickr8k`.
        image_input: from bytes to the model's image input; None leaves `encode_image` out.
        classes: what `classify` tells apart; None leaves it out.
        corpus: what `search_text` (or `search_tree`) and `search_image` search; None leaves them out.
        version: its number, from 1; None for the next.
        fingerprint: of the run, for the contract.
        card: what the model card says beside what the model itself tells; None where none of it is known.
        report: takes a line for each thing that clients of the export before will notice: a signature that
            is gone, another type or size.

    Returns:
        The directory of the version.

    Raises:
        InvalidArgumentError: for classes without an image input, and classes or a corpus of a model of sets.
        DataError: if the version exists, the file system refuses, the reloaded SavedModel differs from the
            model, or not every TensorFlow Serving could run it.

    Example:

        export_savedmodel(run.model, run.tokenizer, "savedmodels/flickr8k", image_input=None)
    """
    served = ServedModel(model, tokenizer, image_input, classes, corpus)
    facts = ModelFacts() if card is None else card
    base = Path(os.path.realpath(out))
    with publishing(base, version) as publication:
        write(served, publication.temporary)
        check_servable(publication.temporary)
        golden = verify(served, publication.temporary)
        requests = [
            (name, part(rows.inputs, row))
            for name, rows in golden.items()
            for row in map(int, np.flatnonzero(rows.outputs["valid"]))
        ]
        write_warmup(publication.temporary, base.name, requests)
        contract = _contract(served, golden, base.name, fingerprint, publication.temporary)

        def write_numbered(number: int) -> None:
            numbered = replace(contract, model_version=number)
            numbered.write(version_contract_path(publication.temporary))
            write_card(model_card(numbered, facts), version_card_path(publication.temporary))

        publication.numbered = write_numbered
    assert publication.path is not None
    published = replace(contract, model_version=int(publication.path.name))
    publish_contract(published, base, report)
    write_card(model_card(published, facts), card_path(base))
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


def verify(served: ServedModel, directory: Path) -> dict[str, Golden]:
    """Loads a SavedModel and compares it with the Keras model on a few inputs, good and bad.

    The Keras model is given one row at a time, the SavedModel all rows at once, so that a row that
    depends on its neighbours shows too.

    Returns:
        signature -> the inputs, and what the SavedModel gives for them.

    Raises:
        DataError: if an embedding or score differs or is not finite, or a row's validity differs.
    """
    loaded = tf.saved_model.load(str(directory))
    golden: dict[str, Golden] = {}
    for name, reference, inputs, scale in _cases(served):
        function = loaded.signatures[name]
        outputs = _run(function, inputs)
        for row in range(len(outputs["valid"])):
            alone = part(inputs, row)
            wanted = {key: value.numpy() for key, value in reference(**_tensors(alone)).items()}
            _, problem = compare(wanted, part(outputs, row), _tolerance(served), scale)
            if problem:
                raise DataError(
                    f"The SavedModel's {name} is not the model's: for golden row {row} it {problem}; "
                    "it was not published."
                )
        none = _run(function, {key: values[:0] for key, values in inputs.items()})
        if len(none["valid"]) != 0:
            raise DataError(f"The SavedModel's {name} does not take an empty batch; it was not published.")
        golden[name] = Golden(inputs, outputs, scale)
    return {"serving_default": golden[served.sentences], **golden}


def _cases(served: ServedModel) -> list[tuple[str, Callable[..., Any], Arrays, float]]:
    """Returns signature, the Keras model's function, inputs, and the least differences are relative to."""
    images = {"image_bytes": np.array(golden_images(), object)}
    if served.image_input is not None and served.image_input.wants_boxes:
        images = golden_regions()
    encode: Callable[..., Any]
    search_rows: Callable[..., Any]
    if served.encode_tree is None:
        texts = (golden_sets if served.sets else golden_texts)(served.tokenizer)
        sentences = {"text": np.array(texts, object)}
        encode, search, search_rows = served.text_rows, "search_text", served.text_search_rows
    else:
        sentences = golden_trees(served.tokenizer)
        encode, search, search_rows = served.tree_rows, "search_tree", served.tree_search_rows
    cases: list[tuple[str, Callable[..., Any], Arrays, float]] = []
    cases.append((served.sentences, encode, sentences, 1.0))
    if served.image_input is not None:
        cases.append(("encode_image", served.image_rows, images, 1.0))
    if served.align is not None:
        words = encode(**_tensors(sentences))["embedding"].numpy()
        rows = golden_alignments(served.tokenizer, boxes="boxes" in images)
        cases.append(("align", served.align_rows, rows, _score_scale(served.image_rows, images, words)))
    if served.classes is not None:
        scale = _score_scale(served.image_rows, images, served.classes.embeddings)
        cases.append(("classify", served.class_rows, images, scale))
    if served.corpus is not None:
        items = served.corpus.embeddings
        scale = _score_scale(encode, sentences, items)
        cases.append((search, search_rows, _with_k(sentences), scale))
        if served.image_input is not None:
            scale = _score_scale(served.image_rows, images, items)
            cases.append(("search_image", served.image_search_rows, _with_k(images), scale))
    return cases


def _with_k(inputs: Arrays) -> Arrays:
    return {**inputs, "k": golden_k(len(next(iter(inputs.values()))))}


def _score_scale(encode: Callable[..., Any], inputs: Arrays, others: np.ndarray) -> float:
    """Returns how large scores may be: rounding grows with the embeddings, even where scores are near 0."""
    embedded = encode(**_tensors(inputs))["embedding"].numpy()
    largest = [np.linalg.norm(side, axis=-1).max() for side in (embedded, others)]
    scale = float(np.prod(largest))
    # What is not finite is reported where it is found.
    return max(1.0, scale) if np.isfinite(scale) else 1.0


def _tolerance(served: ServedModel) -> float:
    encoders = [served.model.text_encoder]
    if served.image_input is not None:
        encoders.append(served.model.image_encoder)
    return max(_TOLERANCES.get(encoder.compute_dtype, 0.0) for encoder in encoders)


def _contract(
    served: ServedModel, golden: dict[str, Golden], name: str, fingerprint: str | None, directory: Path
) -> Contract:
    model = served.model
    similarity = COMPARISONS[model.comparison]() if isinstance(model, EntailmentModel) else model.similarity
    tolerance = _tolerance(served)
    return Contract(
        model=name,
        model_version=0,
        fingerprint=fingerprint,
        signatures=signature_specs(directory),
        golden=golden,
        tolerance=tolerance,
        tolerance_reason=_REASON,
        dim=golden[served.sentences].outputs["embedding"].shape[-1],
        similarity={"name": type(similarity).__name__, "config": similarity.get_config()},
        geometry=geometry(similarity),
        max_text_bytes=MAX_BYTES if served.encode_tree is None else None,
        max_tokens=getattr(served.tokenizer, "max_length", None),
        max_pixels=None if served.image_input is None else MAX_PIXELS,
        versions={"vsemb": __version__, "tensorflow": tf.__version__},
        sha256=hashes(directory),
    )


def _run(function: Any, inputs: Arrays) -> Arrays:
    return {key: value.numpy() for key, value in function(**_tensors(inputs)).items()}


def _tensors(inputs: Arrays) -> dict[str, tf.Tensor]:
    return {
        key: tf.constant(values, tf.string if values.dtype == object else None)
        for key, values in inputs.items()
    }


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

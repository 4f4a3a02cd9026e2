"""Writing a trained model as a SavedModel that TensorFlow Serving loads, and trying it out first."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from vsemb import __version__
from vsemb.errors import DataError
from vsemb.export.card import ModelFacts, card_path, model_card, version_card_path, write_card
from vsemb.export.contract import Contract, Golden, hashes, publish_contract, version_contract_path
from vsemb.export.corpus import Corpus
from vsemb.export.golden import Arrays, compare, part
from vsemb.export.image_input import ImageInput
from vsemb.export.servable import check_servable, signature_specs
from vsemb.export.served import REASON, Served, tensors
from vsemb.export.signatures import ClassPrompts, ServedModel
from vsemb.export.versions import publishing
from vsemb.export.warmup import write_warmup
from vsemb.models import DualEncoder

if TYPE_CHECKING:
    from vsemb.systems.captions.captioner import Captioner
    from vsemb.systems.entailment.model import EntailmentModel


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
            `vsemb.systems.trees.tree_tokenizer.TreeTokenizer`; its lookup tables go into the SavedModel.
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
    return _published(served, out, version, fingerprint, card, report)


def export_captioner(
    captioner: Captioner,
    out: str | os.PathLike[str],
    *,
    image_input: ImageInput,
    facts: Mapping[str, int | float] | None = None,
    version: int | None = None,
    fingerprint: str | None = None,
    card: ModelFacts | None = None,
    report: Callable[[str], None] = warnings.warn,
) -> Path:
    """Writes what captions images as `out/<version>/`, as `export_savedmodel` writes a model of embeddings.

    There is one signature, `caption`, also as `serving_default`: `image_bytes` string [B] to `captions`
    string [B, N], best first, `log_probs` float32 [B, N], natural logarithms, and `valid` bool [B]. How many
    captions, of which beam and how long they may be is fixed here.

    Args:
        captioner: from the images of a model to captions, such as
            `vsemb.systems.captions.captioner.NeuralCaptioner`.
        out: the model's directory, e.g. `savedmodels/captions`.
        image_input: from bytes to the images that the captioner takes.
        facts: how it writes, see `vsemb.systems.captions.signature.ServedCaptioner`.
        version: its number, from 1; None for the next.
        fingerprint: of the run, for the contract.
        card: what the model card says beside what the captioner itself tells.
        report: as `export_savedmodel`.

    Returns:
        The directory of the version.

    Raises:
        InvalidArgumentError: for regions that have to come with an image.
        DataError: as `export_savedmodel`; also where words are drawn by chance, since no one could hold a
            server to what it wrote.

    Example:

        export_captioner(NeuralCaptioner(model, vocabulary), "savedmodels/captions", image_input=image_input)
    """
    from vsemb.systems.captions.signature import ServedCaptioner

    served = ServedCaptioner(captioner, image_input, facts)
    return _published(served, out, version, fingerprint, card, report)


def _published(
    served: Served,
    out: str | os.PathLike[str],
    version: int | None,
    fingerprint: str | None,
    card: ModelFacts | None,
    report: Callable[[str], None],
) -> Path:
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


def write(served: Served, directory: Path) -> None:
    """Writes the SavedModel of what is served into a directory."""
    signatures = served.signatures
    module = tf.Module()
    # Only what the functions read: no optimizer, no seeds of dropout, no Keras objects, which would ask
    # for Keras when the SavedModel is loaded in Python.
    variables = {id(v): v for function in signatures.values() for v in function.graph.variables}
    module.weights = list(variables.values())
    module.tables = served.tables
    try:
        with _quiet():
            tf.saved_model.save(module, str(directory), signatures=signatures)
    except tf.errors.OpError as error:
        raise DataError(f"Cannot write the SavedModel: {error.message}.") from error


def verify(served: Served, directory: Path) -> dict[str, Golden]:
    """Loads a SavedModel and compares it with what it was made of on a few inputs, good and bad.

    The Keras model is given one row at a time, the SavedModel all rows at once, so that a row that
    depends on its neighbours shows too.

    Returns:
        signature -> the inputs, and what the SavedModel gives for them.

    Raises:
        DataError: if an output differs or is not finite, or a row's validity differs.
    """
    loaded = tf.saved_model.load(str(directory))
    golden: dict[str, Golden] = {}
    for name, reference, inputs, scale in served.cases():
        function = loaded.signatures[name]
        outputs = _run(function, inputs)
        for row in range(len(outputs["valid"])):
            alone = part(inputs, row)
            wanted = {key: value.numpy() for key, value in reference(**tensors(alone)).items()}
            _, problem = compare(wanted, part(outputs, row), served.tolerance, scale)
            if problem:
                raise DataError(
                    f"The SavedModel's {name} is not the model's: for golden row {row} it {problem}; "
                    "it was not published."
                )
        none = _run(function, {key: values[:0] for key, values in inputs.items()})
        if len(none["valid"]) != 0:
            raise DataError(f"The SavedModel's {name} does not take an empty batch; it was not published.")
        golden[name] = Golden(inputs, outputs, scale)
    return {"serving_default": golden[served.default], **golden}


def _contract(
    served: Served, golden: dict[str, Golden], name: str, fingerprint: str | None, directory: Path
) -> Contract:
    return Contract(
        model=name,
        model_version=0,
        fingerprint=fingerprint,
        signatures=signature_specs(directory),
        golden=golden,
        tolerance=served.tolerance,
        tolerance_reason=REASON,
        versions={"vsemb": __version__, "tensorflow": tf.__version__},
        sha256=hashes(directory),
        **served.promises(golden),
    )


def _run(function: Any, inputs: Arrays) -> Arrays:
    return {key: value.numpy() for key, value in function(**tensors(inputs)).items()}


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

"""Writing a trained model as a SavedModel that TensorFlow Serving loads, and trying it out first.

Beside it lie warm-up requests, which TensorFlow Serving sends to the model as it loads it, so that the first real one
is fast. They are PredictionLog messages, whose classes come with tensorflow-serving-api, an extra: what is written here
is four nested messages, encoded by hand.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from vsemb.errors import DataError
from vsemb.exporting.card import ModelFacts, card_path, model_card, version_card_path
from vsemb.exporting.contract import Contract, Golden, hashes, publish_contract, version_contract_path
from vsemb.exporting.reference_outputs import Arrays, compare, part
from vsemb.exporting.servable import check_servable, signature_specs
from vsemb.exporting.served_model import REASON, Exportable, tensors
from vsemb.exporting.versions import publishing
from vsemb.files import write_text

#: TensorFlow Serving fails to load a model with more warm-up requests.
MOST_RECORDS = 1000

WARMUP_FILE = "tf_serving_warmup_requests"


def export_savedmodel(
    served: Exportable,
    out: str | os.PathLike[str],
    *,
    version: int | None = None,
    fingerprint: str | None = None,
    card: ModelFacts | None = None,
    report: Callable[[str], None] = warnings.warn,
) -> Path:
    """Writes a model as `out/<version>/`, whole or not at all.

    The signatures are those of what is served, with the batch as 0th dimension; the first is also
    `serving_default`. Core TensorFlow operations only, so any TensorFlow Serving runs it. Before it is published it
    is loaded and must give what the Keras model gives.

    Beside it, in `assets.extra`, go warm-up requests, the contract and the model card; once published, the
    last two also become `contracts/NAME.json` and `contracts/NAME.md` next to `out`, see
    `vsemb.exporting.contract` and `vsemb.exporting.card`.

    Args:
        served: what is served, such as a `vsemb.exporting.ServedModel`.
        out: the model's directory, e.g. `savedmodels/flickr8k`.
        version: its number, from 1; None for the next.
        fingerprint: of the run, for the contract.
        card: what the model card says beside what the model itself tells; None where none of it is known.
        report: takes a line for each thing that clients of the export before will notice: a signature that
            is gone, another type or size.

    Returns:
        The directory of the version.

    Raises:
        DataError: if the version exists, the file system refuses, the reloaded SavedModel differs from the
            model, or not every TensorFlow Serving could run it.

    Example:

        export_savedmodel(ServedModel(run.model, run.tokenizer), "savedmodels/flickr8k")
    """
    base, facts = Path(os.path.realpath(out)), card or ModelFacts()
    with publishing(base, version) as publication:
        directory = publication.temporary
        write(served, directory)
        check_servable(directory)
        golden = verify(served, directory)
        requests = [
            (name, part(rows.inputs, row))
            for name, rows in golden.items()
            for row in map(int, np.flatnonzero(rows.outputs["valid"]))
        ]
        write_warmup(directory, base.name, requests)
        contract = Contract(
            model=base.name,
            model_version=0,
            fingerprint=fingerprint,
            signatures=signature_specs(directory),
            golden=golden,
            tolerance=served.tolerance,
            tolerance_reason=REASON,
            versions={"vsemb": metadata.version("vsemb"), "tensorflow": tf.__version__},
            sha256=hashes(directory),
            instance=served.default.instance,
            about=served.about,
            **served.promises,
        )

        def write_numbered(number: int) -> None:
            numbered = replace(contract, model_version=number)
            numbered.write(version_contract_path(directory))
            write_text(version_card_path(directory), model_card(numbered, facts))

        publication.numbered = write_numbered
    assert publication.path is not None
    published = replace(contract, model_version=int(publication.path.name))
    publish_contract(published, base, report)
    write_text(card_path(base), model_card(published, facts))
    return publication.path


def write(served: Exportable, directory: Path) -> None:
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


def verify(served: Exportable, directory: Path) -> dict[str, Golden]:
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
    for signature in served.offered:
        name, inputs, scale = signature.name, signature.examples(), signature.scale()
        function = loaded.signatures[name]
        outputs = _run(function, inputs)
        for row in range(len(outputs["valid"])):
            alone = part(inputs, row)
            wanted = {key: value.numpy() for key, value in signature.rows(**tensors(alone)).items()}
            _, problem = compare(wanted, part(outputs, row), served.tolerance, scale, signature.ties)
            if problem:
                raise DataError(
                    f"The SavedModel's {name} is not the model's: for golden row {row} it {problem}; "
                    "it was not published."
                )
        none = _run(function, {key: values[:0] for key, values in inputs.items()})
        if len(none["valid"]) != 0:
            raise DataError(f"The SavedModel's {name} does not take an empty batch; it was not published.")
        golden[name] = Golden(inputs, outputs, scale, signature.ties)
    return {"serving_default": golden[served.default.name], **golden}


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


def write_warmup(directory: Path, model: str, requests: Iterable[tuple[str, Mapping[str, np.ndarray]]]) -> Path:
    """Writes warm-up requests into a SavedModel.

    Args:
        directory: of the SavedModel; its `assets.extra` is made.
        model: the name that it is served by.
        requests: signature and inputs by name, each with the batch as 0th dimension; strings are bytes.

    Returns:
        The file.

    Raises:
        DataError: for more than `MOST_RECORDS`, or if the file system refuses.

    Example:

        write_warmup(Path("1"), "flickr8k", [("encode_text", {"text": np.array([b"a dog"], object)})])
    """
    records = [prediction_log(model, signature, inputs) for signature, inputs in requests]
    if len(records) > MOST_RECORDS:
        raise DataError(f"{len(records)} warm-up requests are more than the {MOST_RECORDS} that are allowed.")
    path = directory / "assets.extra" / WARMUP_FILE
    path.parent.mkdir(exist_ok=True)
    try:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in records:
                writer.write(record)
    except tf.errors.OpError as error:
        raise DataError(f"Cannot write {path}: {error.message}.") from error
    return path


def prediction_log(model: str, signature: str, inputs: Mapping[str, np.ndarray]) -> bytes:
    """Encodes a PredictionLog with a PredictRequest.

    Args:
        model: the name that the model is served by.
        signature: its signature.
        inputs: values by name.

    Example:

    >>> b"encode_text" in prediction_log("m", "encode_text", {"text": np.array([b"a dog"], object)})
    True
    """
    # tensorflow_serving/apis: ModelSpec.name = 1, signature_name = 3; PredictRequest.model_spec = 1,
    # inputs = 2 (a map: key = 1, value = 2); PredictLog.request = 1; PredictionLog.predict_log = 6.
    spec = _field(1, model.encode()) + _field(3, signature.encode())
    request = _field(1, spec)
    for name, values in sorted(inputs.items()):
        tensor = tf.make_tensor_proto(values.tolist() if values.dtype == object else values)
        request += _field(2, _field(1, name.encode()) + _field(2, tensor.SerializeToString()))
    return _field(6, _field(1, request))


def _field(number: int, content: bytes) -> bytes:
    """Encodes a field of bytes: key, length, content."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])

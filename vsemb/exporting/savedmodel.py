"""Export of a trained model as a SavedModel for TensorFlow Serving, checked before it is published.

TensorFlow Serving sends the warm-up requests of a version to the model while loading it, so that the first real request
is fast. They are PredictionLog messages. Their classes come with tensorflow-serving-api, an optional extra, so the four
nested messages are encoded by hand.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.console import progress
from vsemb.errors import DataError
from vsemb.exporting.card import ModelFacts, card_path, model_card, version_card_path
from vsemb.exporting.contract import Contract, hashes, publish_contract, version_contract_path
from vsemb.exporting.costs import costs
from vsemb.exporting.folding import folded_words
from vsemb.exporting.neighbours import dependence
from vsemb.exporting.reference_outputs import Arrays, Golden, compare, part
from vsemb.exporting.servable import check_servable, signature_specs
from vsemb.exporting.signatures import REASON, Exportable, tensors
from vsemb.exporting.versions import publishing
from vsemb.files import write_text
from vsemb.ops.tensorflow import tf

#: Maximum number of warm-up requests; TensorFlow Serving refuses models with more.
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
    """Write a model as `out/<version>/`, atomically.

    The signatures have the batch as 0th dimension; the first is also `serving_default`. The graph holds core TensorFlow
    operations only, so any TensorFlow Serving runs it. Before publication the SavedModel is loaded and compared with
    the Keras model.

    Warm-up requests, contract and model card are written to `assets.extra` of the version; contract and card also to
    `contracts/NAME.json` and `contracts/NAME.md` beside `out`, see `vsemb.exporting.contract` and
    `vsemb.exporting.card`.

    Args:
        served: the model, such as a `vsemb.exporting.ServedModel`.
        out: the model's directory, e.g. `savedmodels/flickr8k`.
        version: version number, from 1; None for the next.
        fingerprint: fingerprint of the run, for the contract.
        card: further facts for the model card; None for none.
        report: called with one line per change that affects clients of the previous export, such as a removed
            signature or another type.

    Returns:
        The directory of the version.

    Raises:
        DataError: if the version exists, writing fails, the reloaded SavedModel differs from the model, or the model
            needs more than TensorFlow Serving offers, see `check_servable`.

    Example:

        export_savedmodel(ServedModel(run.model, run.tokenizer), "savedmodels/flickr8k")
    """
    base, facts = Path(os.path.realpath(out)), card or ModelFacts()
    steps = progress(desc="export", total=2 + len(served.offered), unit="step", leave=False)
    with publishing(base, version) as publication, steps:
        directory = publication.temporary
        words = write(served, directory)
        steps.update()
        check_servable(directory)
        steps.update()
        loaded = tf.saved_model.load(str(directory))
        golden = verify(served, loaded.signatures, steps.update)
        size = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
        inputs = {name: rows.inputs for name, rows in golden.items() if name != "serving_default"}
        facts = replace(facts, costs=[*costs(loaded.signatures, inputs, size), *words])
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
            examples={"serving_default": served.default.instance}
            | {signature.name: signature.instance for signature in served.offered if signature.instance},
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


def write(served: Exportable, directory: Path) -> list[str]:
    """Write the SavedModel of a model into a directory.

    Returns:
        Sentences for the model card, see `folded_words`.
    """
    module = tf.Module()
    module.tables = served.tables
    with folded_words(*served.layers) as sentences:
        # Copies, because functions that were traced before do not look up folded words.
        offered = [replace(signature) for signature in served.offered]
        # Saving traces a function again, which takes seconds. It does not trace concrete functions, but these lack the
        # defaults of inputs.
        concrete = {signature.name: signature.function.get_concrete_function() for signature in offered}
        signatures = {one.name: one.function if one.defaults else concrete[one.name] for one in offered}
        signatures = {"serving_default": signatures[served.default.name], **signatures}
        # Only variables of the functions, without optimizer and dropout seeds. Keras objects would require Keras when
        # the SavedModel is loaded in Python.
        module.weights = _captured_variables(concrete.values())
        try:
            with _quiet():
                tf.saved_model.save(module, str(directory), signatures=signatures)
        except tf.errors.OpError as error:
            raise DataError(f"Cannot write the SavedModel: {error.message}.") from error
    return sentences


def _captured_variables(functions: Collection[Any]) -> list[tf.Variable]:
    """Return the variables of concrete functions in the order in which they were captured.

    TensorFlow gives them in the order of a set, which differs from trace to trace, and files number them.
    """
    variables = {id(v.handle): v for function in functions for v in function.graph.variables}
    captured = dict.fromkeys(id(each) for function in functions for each in function.captured_inputs)
    return [variables[handle] for handle in captured if handle in variables]


def verify(
    served: Exportable, loaded: Mapping[str, Any], verified: Callable[[], Any] = lambda: None
) -> dict[str, Golden]:
    """Compare a loaded SavedModel with its model on golden rows, valid and invalid.

    The model gets one row at a time and the SavedModel all rows at once, which reveals rows that depend on their
    neighbours.

    Args:
        served: the model.
        loaded: signature -> its function in the SavedModel.
        verified: called after each signature.

    Returns:
        signature -> the inputs and the SavedModel's outputs.

    Raises:
        DataError: if an output differs or is not finite, or a row's validity differs.
    """
    golden: dict[str, Golden] = {}
    for signature in served.offered:
        name, inputs, scale = signature.name, signature.examples(), signature.scale()
        function = loaded[name]
        outputs = _run(function, inputs)
        for row in range(len(outputs["valid"])):
            alone = part(inputs, row)
            wanted = {key: value.numpy() for key, value in signature.rows(**tensors(alone)).items()}
            _, problem = compare(wanted, part(outputs, row), served.tolerance, scale, signature.ties)
            if problem:
                if apart := dependence(function, inputs, served.tolerance) if "embedding" in outputs else None:
                    problem = f"depends on the other rows of a batch: {apart}"
                raise DataError(
                    f"The SavedModel's {name} must equal the model's; for golden row {row} it {problem}. "
                    "It was not published."
                )
        none = _run(function, {key: values[:0] for key, values in inputs.items()})
        if len(none["valid"]) != 0:
            raise DataError(f"The SavedModel's {name} must accept an empty batch. It was not published.")
        golden[name] = Golden(inputs, outputs, scale, signature.ties)
        verified()
    return {"serving_default": golden[served.default.name], **golden}


def _run(function: Any, inputs: Arrays) -> Arrays:
    return {key: value.numpy() for key, value in function(**tensors(inputs)).items()}


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence TensorFlow's message about assets."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def write_warmup(directory: Path, model: str, requests: Iterable[tuple[str, Mapping[str, np.ndarray]]]) -> Path:
    """Write warm-up requests into a SavedModel.

    Args:
        directory: directory of the SavedModel; its `assets.extra` is created.
        model: name under which it is served.
        requests: signature and inputs by name, each with the batch as 0th dimension; strings are bytes.

    Returns:
        The path of the file.

    Raises:
        DataError: for more than `MOST_RECORDS` requests, or if writing fails.

    Example:

        write_warmup(Path("1"), "flickr8k", [("encode_text", {"text": np.array([b"a dog"], object)})])
    """
    records = [prediction_log(model, signature, inputs) for signature, inputs in requests]
    if len(records) > MOST_RECORDS:
        raise DataError(f"The number of warm-up requests must be at most {MOST_RECORDS}; got {len(records)}.")
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
    """Encode a PredictionLog with a PredictRequest.

    Args:
        model: name under which the model is served.
        signature: name of the signature.
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
    """Encode a field of bytes: key, length, content."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])

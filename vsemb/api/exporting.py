"""Acts on exported models: `vsemb.export` and `vsemb.verify`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, overload

from vsemb.acts import Fields, act, additions, chosen
from vsemb.console import say
from vsemb.errors import invalid_argument, unknown_name
from vsemb.parts import Positive, Version
from vsemb.registry import kinds
from vsemb.results import Result
from vsemb.runs.formats import ExportFormat
from vsemb.runs.inputs import kind_of
from vsemb.runs.options import ExportOption

if TYPE_CHECKING:
    from vsemb.exporting.verify import Verification
    from vsemb.runs.run import Run
    from vsemb.runs.serve import Exported


#: The format that TensorFlow Serving reads.
SAVEDMODEL = "savedmodel"


@overload
def export(
    run: Run | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    version: int | None = None,
    index: str | os.PathLike[str] | None = None,
    precision: Literal["float32", "mixed_bfloat16"] | None = None,
    sign: str | os.PathLike[str] | None = None,
    measure: str | None = None,
    format: Literal["savedmodel"] = "savedmodel",
    tower: None = None,
    **options: Any,
) -> Exported: ...


@overload
def export(
    run: Run | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    format: ExportFormat | str,
    tower: Literal["image", "text"] | None = None,
    **options: Any,
) -> Any: ...


@act
def export(
    run: Run | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    version: Version | None = None,
    index: str | os.PathLike[str] | None = None,
    precision: Literal["float32", "mixed_bfloat16"] | None = None,
    sign: str | os.PathLike[str] | None = None,
    measure: str | None = None,
    format: ExportFormat | str = SAVEDMODEL,
    tower: Literal["image", "text"] | None = None,
    **options: Annotated[Any, Fields("export option")],
) -> Any:
    """Write a run as a SavedModel for TensorFlow Serving: strings and image bytes in, embeddings or captions out.

    Each export is a new version, OUT/1, OUT/2, published atomically. Before publication it is loaded and compared with
    the run. The contract of inputs and outputs is written to contracts/NAME.json beside OUT, see `vsemb verify`. The
    model card is written to contracts/NAME.md. The dataset is not needed.

    With an index, the model contains the items of an index from `vsemb index RUN` and searches them. A model of
    dependency trees takes trees instead of strings, because a SavedModel cannot parse.

    The formats `onnx`, `litert` and `litert-int8` run without TensorFlow. OUT is then a new directory with one file per
    tower, from token ids or pixels to embeddings, the tokenizer, and a program that embeds texts and image files. The
    files are compared with the run before they are published. `safetensors` writes the weights alone, into the file
    OUT.

    Args:
        run: a run, or its directory.
        out: directory of the model, such as savedmodels/NAME; a file ending in .safetensors for that format.
        version: version number; default: the next.
        index: index of the run, for search inside the model.
        precision: precision of the embeddings; default: the recipe's, float32 for auto.
        sign: PEM file of the private Ed25519 key that signs the contract.
        measure: split of the training data; the model card also gives its recalls, with 95 % intervals.
        format: savedmodel, onnx, litert, litert-int8 or safetensors.
        tower: the only tower that onnx or litert writes; default: both.
        **options: fields of the options that systems add.

    Returns:
        The version. Its directory is `path`; a SavedModel can be given to `vsemb.load`.

    Raises:
        InvalidArgumentError: for an unknown option, or one that the run or the format does not read.
        DataError: if the version exists, an operation has no counterpart in the format, or the exported model differs
            from the run.
        MissingExtraError: if the libraries of the format are not installed.

    Example:

        exported = vsemb.export(run, "savedmodels/mine")
        model = vsemb.load(exported)
        vsemb.export(run, "exports/mine", format="onnx")
    """
    formats = (SAVEDMODEL, *kinds(str(ExportFormat.family)))
    if isinstance(format, str) and format not in formats:
        raise unknown_name("format", format, formats)
    ending = Path(out).suffix
    named = {".tflite": "litert"}.get(ending, ending[1:])
    if format == SAVEDMODEL and named in formats:
        raise invalid_argument("format", format, f"{named} for a name that ends in {ending}", f"Pass format={named}.")
    if format != SAVEDMODEL:
        # The precision is float32.
        own = {"version": version, "index": index, "precision": precision, "sign": sign, **options}
        return _export_as(chosen(ExportFormat, "format", format, {}), run, out, tower, measure, own)
    if tower is not None:
        raise invalid_argument("tower", tower, "omitted for format=savedmodel, which holds both")
    from vsemb.exporting import signing
    from vsemb.exporting.servable import signature_table
    from vsemb.runs.measure import figures
    from vsemb.runs.run import Run
    from vsemb.runs.serve import Exported, export_run
    from vsemb.searching.storage import read_index

    added = additions(ExportOption, options)
    if kind_of(out) not in (None, "model"):
        raise invalid_argument("out", os.fspath(out), f"a directory of its own; this one is a {kind_of(out)}")
    if sign is not None:
        # Before the export, which takes long.
        signing.read_key(sign, private=True)
    opened = Run.open(run, None if measure is None else "retrieval")
    if precision is not None:
        opened = opened.computed_in(precision)
    path = export_run(
        opened,
        out,
        version,
        index=None if index is None else read_index(index),
        measured=[] if measure is None else [figures(opened, opened.open_data(), measure)],
        report=say,
        extras=[signature for option in added for signature in option.signatures(opened)],
        **{name: value for option in added for name, value in option.settings(opened).items()},
    )
    if sign is not None:
        say(f"signed: {signing.sign(path, sign)}")
    return Exported(path, signature_table(path), opened.sees_images)


def _export_as(
    format: ExportFormat,
    run: Run | str | os.PathLike[str],
    out: str | os.PathLike[str],
    tower: str | None,
    measure: str | None,
    of_savedmodels: Mapping[str, Any],
) -> Result:
    for name, value in of_savedmodels.items():
        if value is not None:
            raise invalid_argument(name, value, f"omitted for format={format.kind}; it is for {SAVEDMODEL}")
    # Before the run is opened, which takes long.
    format.require_library()

    from vsemb.runs.measure import figures
    from vsemb.runs.run import Run

    opened = Run.open(run, None if measure is None else "retrieval")
    measured = [] if measure is None else [figures(opened, opened.open_data(), measure)]
    return format.write(opened, out, tower, measured)


@act
def verify(
    model: str | os.PathLike[str],
    *,
    version: Version | None = None,
    contract: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    timeout: Positive = 600.0,
) -> Verification:
    """Check an exported model against its contract, without Keras and vsemb, as TensorFlow Serving would run it.

    The examples of the contract run in two separate processes: in TensorFlow for Python, and in TensorFlow's C library.
    Types, shapes, outputs and files must equal the contract, and invalid rows must not change other rows. The exit
    status is 1 if a check fails.

    With a key, the model is opened only if the owner of the key has signed it, see `vsemb export --sign`.

    Args:
        model: directory of the model.
        version: version number; default: the newest.
        contract: file of the contract; default: contracts/NAME.json.
        key: PEM file of the public key that must have signed the contract.
        timeout: maximum seconds per process.

    Returns:
        The checks. `failed` lists the failed ones.

    Raises:
        DataError: if the version or a readable contract is missing, or the signature or a signed file is wrong.

    Example:

        assert not vsemb.verify("savedmodels/flickr8k").failed
    """
    from vsemb.exporting.verify import verify_model

    return verify_model(model, version=version, contract=contract, key=key, timeout=timeout)

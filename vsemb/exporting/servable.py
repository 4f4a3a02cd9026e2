"""What every TensorFlow Serving can load and batch: checked on the written file, before it is published.

Outputs are of types that any client knows, the batch is the 0th dimension everywhere, and the graph holds
core TensorFlow operations only. What TensorFlow has by itself is asked of a process of its own, see
`vsemb.exporting.probe`.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.core.protobuf import saved_model_pb2

from vsemb.errors import DataError
from vsemb.exporting import probe
from vsemb.exporting.contract import SIDES, Signatures, written_shape

#: What a probe is called in reports -> its script.
PROBES = dict.fromkeys(probe.PROBES, Path(probe.__file__))
#: Types of inputs and outputs. No bfloat16, which few clients can read.
DTYPES = ("float32", "int64", "int32", "string", "bool")

# Python functions would need the process that wrote them, and cuDNN a GPU.
_NOT_SERVABLE = ("PyFunc", "EagerPyFunc", "PyFuncStateless", "Cudnn")


def read_saved_model(directory: Path) -> saved_model_pb2.SavedModel:
    """Reads the graph of a SavedModel.

    Raises:
        DataError: if there is none or it is broken.
    """
    path = directory / "saved_model.pb"
    try:
        return saved_model_pb2.SavedModel.FromString(path.read_bytes())
    except FileNotFoundError as error:
        raise DataError(f"No SavedModel at {directory}.") from error
    except Exception as error:  # What protobuf raises has no base of its own.
        raise DataError(f"{path} cannot be read: {error}.") from error


def described_signatures(directory: Path, describe: Callable[[Any], Any]) -> Signatures:
    """Returns signature -> inputs, outputs -> name -> what `describe` makes of the TensorInfo.

    Raises:
        DataError: if the SavedModel cannot be read.
    """
    definitions = read_saved_model(directory).meta_graphs[0].signature_def
    return {
        name: {
            side: {key: describe(info) for key, info in sorted(getattr(definitions[name], side).items())}
            for side in SIDES
        }
        for name in sorted(definitions)
        if not name.startswith("__saved_model")  # TensorFlow's own, which initialises the model.
    }


def _spec(info: Any) -> dict[str, Any]:
    shape = [] if info.tensor_shape.unknown_rank else tf.TensorShape(info.tensor_shape).as_list()
    return {"dtype": tf.dtypes.as_dtype(info.dtype).name, "shape": shape}


def signature_specs(directory: Path) -> Signatures:
    """Returns signature -> inputs, outputs -> name -> `dtype` and `shape`, None for a size that is open.

    Raises:
        DataError: if the SavedModel cannot be read.
    """
    return described_signatures(directory, _spec)


def signature_table(path: str | os.PathLike[str]) -> dict[str, dict[str, list[list[str]]]]:
    """Lists the signatures of a SavedModel: signature -> inputs, outputs -> [name, type, shape]s.

    Args:
        path: the directory of a version.

    Returns:
        Shapes are written as `[B, 512]`, see `written_shape`.
    """
    return {
        name: {
            side: [[key, spec["dtype"], written_shape(spec["shape"])] for key, spec in values.items()]
            for side, values in sides.items()
        }
        for name, sides in signature_specs(Path(path)).items()
    }


def check_servable(directory: Path) -> None:
    """Refuses a SavedModel that some TensorFlow Serving could not load or batch.

    Args:
        directory: of the written SavedModel.

    Raises:
        DataError: naming what is wrong: a type, a shape or an operation.

    Example:

        check_servable(Path("savedmodels/flickr8k/1"))
    """
    specs = [
        (f"{name}: the {side[:-1]} {key}", spec["dtype"], spec["shape"])
        for name, sides in signature_specs(directory).items()
        for side in SIDES
        for key, spec in sides[side].items()
    ]
    for what, dtype, shape in specs:
        if dtype not in DTYPES:
            raise DataError(
                f"{what} is {dtype}, which clients cannot take; {', '.join(DTYPES)} are allowed. It was not published."
            )
        if not shape or shape[0] is not None:
            raise DataError(
                f"{what} has the shape {shape}, whose 0th dimension is not the batch. It was not published."
            )
    if foreign := foreign_operations(directory):
        raise DataError(
            f"The model holds operations that not every TensorFlow Serving has: {', '.join(foreign)}. Operations must "
            "be core TensorFlow's and need neither Python nor a GPU. It was not published."
        )


def foreign_operations(directory: Path) -> list[str]:
    """Returns the operations of other libraries than core TensorFlow, and those that need Python or a GPU.

    Raises:
        DataError: if the SavedModel cannot be read.
    """
    graph = read_saved_model(directory).meta_graphs[0].graph_def
    # What `tf.data` maps over rows is a function of the same library.
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    names = {node.op for node in nodes} - {function.signature.name for function in graph.library.function}
    known = known_operations()
    return sorted(name for name in names if name not in known or name.startswith(_NOT_SERVABLE))


def run_probe(script: Path, job: dict[str, Any], timeout: float) -> dict[str, Any]:
    """Runs a probe and returns what it found.

    Args:
        script: the probe.
        job: see `vsemb.exporting.probe`.
        timeout: seconds.

    Raises:
        DataError: if the process ends badly, not at all within `timeout`, or says nothing readable.
    """
    # Isolated: neither the directory at hand nor the environment decides what is imported.
    command = [sys.executable, "-I", str(script)]
    given = json.dumps({**job, "path": [entry for entry in sys.path if entry]}).encode()
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(command, input=given, capture_output=True, timeout=timeout, env=environment)
    except subprocess.TimeoutExpired:
        raise DataError(f"took more than {timeout:g} seconds") from None
    if done.returncode < 0:
        raise DataError(f"crashed with {signal.Signals(-done.returncode).name}")
    if done.returncode:
        raise DataError(f"failed: {_reason(done.stderr.decode(errors='replace'), done.returncode)}")
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        raise DataError("wrote no result") from None


def _reason(said: str, status: int) -> str:
    """Returns the first line of the error that ended a process, without its traceback."""
    _, found, last = said.rpartition("Traceback (most recent call last):\n")
    lines = [line for line in last.splitlines() if line and not line.startswith(" ")]
    return lines[0][:200] if found and lines else f"exit status {status}"


@cache
def known_operations() -> frozenset[str]:
    """Returns the names of the operations that TensorFlow's C library has when nothing else is loaded.

    Raises:
        DataError: if there is no C library.
    """
    listed = base64.b64decode(run_probe(Path(probe.__file__), {}, timeout=300)["operations"])
    return frozenset(operation.name for operation in op_def_pb2.OpList.FromString(listed).op)

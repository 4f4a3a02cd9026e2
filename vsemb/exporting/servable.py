"""Checks that every TensorFlow Serving can load and batch a SavedModel, made before it is published.

Types must be common to all clients, the batch must be the 0th dimension, and the graph must hold core TensorFlow
operations only. A separate process lists the core operations, see `vsemb.exporting.probe`.
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

from vsemb.errors import DataError
from vsemb.exporting import probe
from vsemb.exporting.contract import Signatures, written_shape
from vsemb.exporting.reference_outputs import SIDES
from vsemb.files import read_bytes
from vsemb.ops.tensorflow import tf

#: Name of a probe in reports -> its script.
PROBES = dict.fromkeys(probe.PROBES, Path(probe.__file__))
#: Allowed types of inputs and outputs. Few clients can read bfloat16.
DTYPES = ("float32", "int64", "int32", "string", "bool")

# Python functions need the process that wrote them, cuDNN needs a GPU.
_NOT_SERVABLE = ("PyFunc", "EagerPyFunc", "PyFuncStateless", "Cudnn")


def read_saved_model(directory: Path) -> Any:
    """Read the graph of a SavedModel.

    Raises:
        DataError: if it is missing or unreadable.
    """
    from tensorflow.core.protobuf import saved_model_pb2

    path = directory / "saved_model.pb"
    try:
        return saved_model_pb2.SavedModel.FromString(read_bytes(path))
    except FileNotFoundError as error:
        raise DataError(f"No SavedModel at {directory}. Write one with: vsemb export RUN savedmodels/NAME") from error
    except Exception as error:  # Errors of protobuf have no common base class.
        raise DataError(f"{path} cannot be read: {error}.") from error


def described_signatures(directory: Path, describe: Callable[[Any], Any]) -> Signatures:
    """Return signature -> inputs, outputs -> name -> `describe(TensorInfo)`.

    Raises:
        DataError: if the SavedModel cannot be read.
    """
    definitions = read_saved_model(directory).meta_graphs[0].signature_def
    described: Signatures = {}
    for name in sorted(definitions):
        if name.startswith("__saved_model"):
            continue  # The initializer of the model.
        described[name] = {}
        for side in SIDES:
            infos = sorted(getattr(definitions[name], side).items())
            described[name][side] = {key: describe(info) for key, info in infos}
    return described


def _spec(info: Any) -> dict[str, Any]:
    shape = [] if info.tensor_shape.unknown_rank else tf.TensorShape(info.tensor_shape).as_list()
    return {"dtype": tf.dtypes.as_dtype(info.dtype).name, "shape": shape}


def signature_specs(directory: Path) -> Signatures:
    """Return signature -> inputs, outputs -> name -> `dtype`, `shape` and, for optional inputs, `default`.

    Open sizes are None.

    Raises:
        DataError: if the SavedModel cannot be read.
    """
    specs = described_signatures(directory, _spec)
    definitions = read_saved_model(directory).meta_graphs[0].signature_def
    for name, sides in specs.items():
        for key, value in definitions[name].defaults.items():
            sides["inputs"][key]["default"] = tf.make_ndarray(value).tolist()
    return specs


def signature_table(path: str | os.PathLike[str]) -> dict[str, dict[str, list[list[str]]]]:
    """List the signatures of a SavedModel: signature -> inputs, outputs -> [name, type, shape]s.

    Args:
        path: directory of a version.

    Returns:
        Shapes are strings such as `[B, 512]`, see `written_shape`.
    """
    tables: dict[str, dict[str, list[list[str]]]] = {}
    for name, sides in signature_specs(Path(path)).items():
        tables[name] = {}
        for side, specs in sides.items():
            tables[name][side] = [[key, spec["dtype"], written_shape(spec["shape"])] for key, spec in specs.items()]
    return tables


def check_servable(directory: Path) -> None:
    """Check that every TensorFlow Serving can load and batch a SavedModel.

    Args:
        directory: directory of the SavedModel.

    Raises:
        DataError: for an unsupported type, shape or operation.

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
                f"{what} must be {', '.join(DTYPES[:-1])} or {DTYPES[-1]}; got {dtype}. The model was not published."
            )
        if not shape or shape[0] is not None:
            raise DataError(
                f"{what} must have the batch as 0th dimension; got shape {shape}. The model was not published."
            )
    if foreign := foreign_operations(directory):
        raise DataError(
            f"Operations must be core TensorFlow's and need neither Python nor a GPU; got {', '.join(foreign)}. "
            "The model was not published."
        )


def foreign_operations(directory: Path) -> list[str]:
    """Return operations outside core TensorFlow, and operations that need Python or a GPU.

    Raises:
        DataError: if the SavedModel cannot be read.
    """
    graph = read_saved_model(directory).meta_graphs[0].graph_def
    # Functions that `tf.data` maps over rows are in the same library.
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    names = {node.op for node in nodes} - {function.signature.name for function in graph.library.function}
    known = known_operations()
    return sorted(name for name in names if name not in known or name.startswith(_NOT_SERVABLE))


def run_probe(script: Path, job: dict[str, Any], timeout: float) -> dict[str, Any]:
    """Run a probe and return its results.

    Args:
        script: the probe.
        job: see `vsemb.exporting.probe`.
        timeout: in seconds.

    Raises:
        DataError: if the process fails, exceeds `timeout`, or writes no readable result.
    """
    # Isolated mode: imports depend neither on the working directory nor on the environment.
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
    """Return the first line of the error that ended a process, without its traceback."""
    _, header, last = said.rpartition("Traceback (most recent call last):\n")
    lines = [line for line in last.split("\n") if line and not line.startswith(" ")]
    return lines[0][:200] if header and lines else f"exit status {status}"


@cache
def known_operations() -> frozenset[str]:
    """Return the names of the operations of TensorFlow's C library alone.

    Raises:
        DataError: if the C library is missing.
    """
    listed = base64.b64decode(run_probe(Path(probe.__file__), {}, timeout=300)["operations"])
    from tensorflow.core.framework import op_def_pb2

    return frozenset(operation.name for operation in op_def_pb2.OpList.FromString(listed).op)

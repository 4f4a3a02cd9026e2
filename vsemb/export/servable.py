"""What every TensorFlow Serving can load and batch: checked on the written file, before it is published.

Outputs are of types that any client knows, the batch is the 0th dimension everywhere, and the graph holds
core TensorFlow operations only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from vsemb.errors import DataError
from vsemb.export.contract import SIDES, Signatures, written_shape
from vsemb.export.isolated_checks import known_operations

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

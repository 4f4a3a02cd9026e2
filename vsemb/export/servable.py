"""What every TensorFlow Serving can load and batch: checked on the written file, before it is published.

Outputs are of types that any client knows, the batch is the 0th dimension everywhere, and the graph holds
core TensorFlow operations only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from vsemb.errors import DataError
from vsemb.export.isolated_checks import known_operations

#: Types of inputs and outputs. No bfloat16, which few clients can read.
DTYPES = ("float32", "int64", "int32", "string", "bool")

# Python functions would need the process that wrote them, and cuDNN a GPU.
_NOT_SERVABLE = ("PyFunc", "EagerPyFunc", "PyFuncStateless", "Cudnn")

Specs = dict[str, dict[str, dict[str, dict[str, Any]]]]


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


def signature_specs(directory: Path) -> Specs:
    """Returns signature -> inputs, outputs -> name -> `dtype` and `shape`, None for a size that is open.

    Raises:
        DataError: if the SavedModel cannot be read.
    """
    saved = read_saved_model(directory)
    found: Specs = {}
    for name, signature in sorted(saved.meta_graphs[0].signature_def.items()):
        if name.startswith("__saved_model"):  # TensorFlow's own, which initialises the model.
            continue
        found[name] = {
            side: {
                key: {
                    "dtype": tf.dtypes.as_dtype(info.dtype).name,
                    "shape": tf.TensorShape(info.tensor_shape).as_list() if not info.tensor_shape.unknown_rank else [],
                }
                for key, info in sorted(getattr(signature, side).items())
            }
            for side in ("inputs", "outputs")
        }
    return found


def check_servable(directory: Path) -> None:
    """Refuses a SavedModel that some TensorFlow Serving could not load or batch.

    Args:
        directory: of the written SavedModel.

    Raises:
        DataError: naming what is wrong: a type, a shape or an operation.

    Example:

        check_servable(Path("savedmodels/flickr8k/1"))
    """
    for name, sides in signature_specs(directory).items():
        for side, specs in sides.items():
            for key, spec in specs.items():
                dtype, shape = spec["dtype"], spec["shape"]
                if dtype not in DTYPES:
                    raise DataError(
                        f"{name}: the {side[:-1]} {key} is {dtype}, which clients cannot take; "
                        f"{', '.join(DTYPES)} are allowed. It was not published."
                    )
                if not isinstance(shape, list) or not shape or shape[0] is not None:
                    raise DataError(
                        f"{name}: the {side[:-1]} {key} has the shape {shape}, whose 0th dimension is not "
                        "the batch. It was not published."
                    )
    foreign = foreign_operations(directory)
    if foreign:
        listed = "; ".join(f"{', '.join(names)} of {library}" for library, names in foreign.items())
        raise DataError(
            f"The model holds operations that not every TensorFlow Serving has: {listed}. It was not published."
        )


def foreign_operations(directory: Path) -> dict[str, list[str]]:
    """Returns the operations that are not core TensorFlow's, by what they come with.

    Raises:
        DataError: if the SavedModel cannot be read.
    """
    known = known_operations()
    graph = read_saved_model(directory).meta_graphs[0].graph_def
    # What `tf.data` maps over rows is a function of the same library.
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    names = {node.op for node in nodes} - {function.signature.name for function in graph.library.function}
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        if name in known["tensorflow"] and not name.startswith(_NOT_SERVABLE):
            continue
        library = "tensorflow_text" if name in known["tensorflow_text"] else "another library"
        found.setdefault("a GPU or Python" if name in known["tensorflow"] else library, []).append(name)
    return found

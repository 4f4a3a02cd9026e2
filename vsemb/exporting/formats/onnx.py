"""Conversion of towers to ONNX, by tf2onnx."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.errors import needs_extra
from vsemb.exporting.formats.towers import Tower
from vsemb.ops.backend import portable_graphs

#: Version of ONNX's operators; ONNX Runtime reads it since 1.12.
OPSET = 17


def require_library() -> None:
    """Check that converter and runtime are installed.

    Raises:
        MissingExtraError: if they are not.
    """
    with needs_extra("tf2onnx", "onnx"):
        import onnxruntime  # noqa: F401
        import tf2onnx  # noqa: F401


def convert(tower: Tower, path: Path) -> None:
    """Write a tower as an ONNX file, for any number of rows and steps.

    Raises:
        ValueError: for operations without a counterpart.
        Exception: of tf2onnx.
    """
    import onnx
    import tf2onnx

    # It logs what it cannot convert, with tracebacks.
    logging.getLogger("tf2onnx").setLevel(logging.CRITICAL)
    function = tower.function(tower.shape())
    with portable_graphs():
        model, _ = tf2onnx.convert.from_function(
            function, function.input_signature, opset=OPSET, custom_op_handlers={"Erfc": (_erfc, [])}
        )
    known = {schema.name for schema in onnx.defs.get_all_schemas()}
    if lacking := sorted({node.op_type for node in _nodes(model.graph)} - known):
        raise ValueError(f"the format lacks {', '.join(lacking)}.")
    # Tools show these names; the converter numbers them.
    for value in (*model.graph.input, *model.graph.output):
        for number, size in enumerate(value.type.tensor_type.shape.dim):
            if not size.dim_value:
                size.dim_param = "batch" if number == 0 else "steps"
    path.write_bytes(model.SerializeToString())


def _nodes(graph: Any) -> Iterator[Any]:
    """Yield the nodes of a graph, also those inside of loops."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _erfc(graph: Any, node: Any, name: str, arguments: Any) -> None:
    """Write erfc(x) of an exact GELU as 1 - erf(x), since ONNX lacks it."""
    shapes, dtypes = [graph.get_shape(node.output[0])], [graph.get_dtype(node.output[0])]
    one = graph.make_const(f"{name}_one", np.array(1, np.float32))
    erf = graph.make_node("Erf", node.input, shapes=shapes, dtypes=dtypes)
    outputs = node.output
    graph.remove_node(node.name)
    inputs = [one.output[0], erf.output[0]]
    graph.make_node("Sub", inputs, outputs=outputs, name=node.name, shapes=shapes, dtypes=dtypes)

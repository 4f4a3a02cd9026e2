"""Conversion of towers to LiteRT (TensorFlow Lite), by TensorFlow's converter."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from vsemb.errors import needs_extra
from vsemb.exporting.formats.towers import Tower
from vsemb.ops.backend import portable_graphs
from vsemb.ops.tensorflow import tf


def require_library() -> None:
    """Check that the runtime is installed.

    Raises:
        MissingExtraError: if it is not.
    """
    with needs_extra("ai-edge-litert", "litert"):
        import ai_edge_litert.interpreter  # noqa: F401


def convert(tower: Tower, path: Path, *, int8: bool = False) -> None:
    """Write a tower as a LiteRT file of built-in operations, for one row of a fixed number of steps.

    Loops of LiteRT need known sizes.

    Args:
        tower: the tower.
        path: the file.
        int8: whether matrices and kernels are stored as int8, with a scale for each column or channel. Other values
            are computed in float32.

    Raises:
        ValueError: for operations without a counterpart.
        Exception: of the converter.
    """
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    shape = tower.shape(1, fixed=True)
    with portable_graphs():
        concrete = tower.function(shape).get_concrete_function()
    # The converter loses variables inside of loops.
    frozen = convert_variables_to_constants_v2(concrete, lower_control_flow=False)
    names = sorted(concrete.structured_outputs)
    module, spec = tf.Module(), tf.TensorSpec(shape, tower.spec.dtype, name=tower.spec.name)
    module.function = tf.function(
        lambda values: dict(zip(names, frozen(values), strict=True)), input_signature=[spec], autograph=False
    )
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures=module.function)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        if int8:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        try:
            path.write_bytes(converter.convert())
        except Exception as error:
            # The message is a page with the trace of each operation.
            lacking = sorted(set(re.findall(r"'tf\.(\w+)' op", str(error))))
            if not lacking:
                raise
            raise ValueError(f"the format lacks {', '.join(lacking)}.") from error

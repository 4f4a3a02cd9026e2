"""Which precision a training computes in: bfloat16 where the processor multiplies it faster."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

from vsemb.errors import unknown_name
from vsemb.recipes.schema import PRECISIONS, Recipe

# What Linux calls processors that multiply bfloat16 by themselves: x86-64 (two kinds) and ARM.
_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}


def settled(recipe: Recipe) -> Recipe:
    """Returns the recipe to train by: with a precision in the place of `auto`.

    `auto` is `mixed_bfloat16` on processors that multiply bfloat16 by themselves, and `float32` on others.
    Weights are float32 in both. What is done with a run afterwards is computed in float32, on every machine.

    Args:
        recipe: the recipe.

    Raises:
        InvalidArgumentError: for a precision that does not exist.
    """
    check_precision(recipe)
    precision = recipe.training.precision
    if precision == "auto":
        precision = "mixed_bfloat16" if multiplies_bfloat16() else "float32"
    return dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, precision=precision))


def check_precision(recipe: Recipe) -> None:
    """Refuses a precision that does not exist.

    Raises:
        InvalidArgumentError: if it does not.
    """
    if recipe.training.precision not in PRECISIONS:
        raise unknown_name("training.precision", recipe.training.precision, PRECISIONS)


@functools.cache
def multiplies_bfloat16() -> bool:
    """Tells whether what TensorFlow computes on multiplies bfloat16 faster than float32.

    GPUs do from compute capability 8.0 on; processors if they say so (known on Linux alone).
    """
    import tensorflow as tf

    if gpus := tf.config.list_physical_devices("GPU"):
        capabilities = (tf.config.experimental.get_device_details(gpu) for gpu in gpus)
        return all(details.get("compute_capability", (0, 0)) >= (8, 0) for details in capabilities)
    return bool(_FLAGS & processor_flags())


def processor_flags(path: Path = Path("/proc/cpuinfo")) -> set[str]:
    """Returns what Linux says that the first processor can do; nothing elsewhere.

    Args:
        path: the file that says it.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    named = (line.split(":", 1) for line in lines if ":" in line)
    for name, value in named:
        if name.strip() in ("flags", "Features"):
            return set(value.split())
    return set()

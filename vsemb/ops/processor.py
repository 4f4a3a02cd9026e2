"""What the processor, or the GPU, is good at."""

from __future__ import annotations

import functools
from pathlib import Path

# What Linux calls processors that multiply bfloat16 by themselves: x86-64 (two kinds) and ARM.
_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}


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

"""Costs of a model, for its card: size of its files and of an embedding, time of a row."""

from __future__ import annotations

import os
import platform
import timeit
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from vsemb.exporting.reference_outputs import Arrays, part
from vsemb.exporting.signatures import tensors


def costs(functions: Mapping[str, Callable[..., Any]], examples: Mapping[str, Arrays], size: int) -> list[str]:
    """Return sentences about the size of a model and of an embedding, and about the time of a row.

    Args:
        functions: signature -> its function.
        examples: signature -> rows of inputs, of which a valid one is timed.
        size: bytes of the model's files.

    Example:

        costs(loaded.signatures, {"encode_text": {"text": np.array([b"a dog"], object)}}, 2_000_000)
    """
    sentences, times = [f"The model's files have {size / 1e6:,.1f} MB."], []
    for name, inputs in examples.items():
        outputs = functions[name](**tensors(inputs))
        valid = np.flatnonzero(outputs["valid"])
        if not len(valid):
            continue
        if "embedding" in outputs and len(sentences) == 1:
            sentences.append(f"An embedding has {outputs['embedding'][0].numpy().nbytes:,} bytes.")
        row = tensors(part(inputs, int(valid[0])))
        # The first call of the three may still compile.
        seconds = min(timeit.repeat(partial(functions[name], **row), number=1, repeat=3))
        times.append(f"{name} {1000 * seconds:,.1f} ms")
    if times:
        cores = f"{os.cpu_count()} cores of a {platform.machine()} processor"
        sentences.append(f"A row alone, on {cores}: {', '.join(times)}.")
    return sentences

"""What a SavedModel on disk offers, and how to serve it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

Signatures = dict[str, dict[str, list[list[str]]]]


def signature_table(path: str | os.PathLike[str]) -> Signatures:
    """Lists the signatures of a SavedModel: signature -> inputs, outputs -> [name, type, shape]s.

    Args:
        path: the directory of a version.

    Returns:
        Shapes are written as `[B, 512]`, see `written_shape`.
    """
    loaded = tf.saved_model.load(str(path))
    found: Signatures = {}
    for name, function in loaded.signatures.items():
        specs = {"inputs": function.structured_input_signature[1], "outputs": function.structured_outputs}
        found[name] = {
            side: [[key, spec.dtype.name, _shape(spec)] for key, spec in sorted(values.items())]
            for side, values in specs.items()
        }
    return found


def _shape(spec: tf.TensorSpec) -> str:
    return written_shape(list(spec.shape))


def written_shape(sizes: Sequence[int | None]) -> str:
    """Writes a shape: `B` for the batch, `?` for another size that is open.

    Example:

    >>> written_shape([None, 512]), written_shape([None, None])
    ('[B, 512]', '[B, ?]')
    """
    named = ["?" if size is None else str(size) for size in sizes]
    return "[" + ", ".join(["B", *named[1:]] if sizes and sizes[0] is None else named) + "]"


def serving_command(path: str | os.PathLike[str]) -> str:
    """Returns shell lines that verify a version's model, serve it and ask it once.

    Example:

    >>> print(serving_command("/models/flickr8k/1").splitlines()[1].strip())
    vsemb serve /models/flickr8k
    """
    base = Path(path).absolute().parent
    name, where = shlex.quote(base.name), shlex.quote(str(base))
    url = shlex.quote(f"http://localhost:8501/v1/models/{base.name}:predict")
    return (
        f"  vsemb verify {where}\n"
        f"  vsemb serve {where}\n"
        f'  curl -d \'{{"instances": ["a dog running on a beach"]}}\' {url}\n'
        "or, with TensorFlow Serving, the same API:\n"
        f"  tensorflow_model_server --rest_api_port=8501 \\\n"
        f"    --model_name={name} --model_base_path={where}"
    )

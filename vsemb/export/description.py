"""What a SavedModel on disk offers, and how to serve it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from vsemb.export.servable import signature_specs

Signatures = dict[str, dict[str, list[list[str]]]]


def signature_table(path: str | os.PathLike[str]) -> Signatures:
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


def written_shape(sizes: Sequence[int | None]) -> str:
    """Writes a shape: `B` for the batch, `?` for another size that is open.

    Example:

    >>> written_shape([None, 512]), written_shape([None, None])
    ('[B, 512]', '[B, ?]')
    """
    named = ["?" if size is None else str(size) for size in sizes]
    return "[" + ", ".join(["B", *named[1:]] if sizes and sizes[0] is None else named) + "]"


def serving_command(path: str | os.PathLike[str], trees: bool = False, captions: bool = False) -> str:
    """Returns shell lines that verify a version's model, serve it and ask it once.

    Args:
        path: the directory of a version.
        trees: whether the model takes dependency trees in place of texts.
        captions: whether it takes images alone, and writes captions of them.

    Example:

    >>> print(serving_command("/models/flickr8k/1").splitlines()[1].strip())
    vsemb serve /models/flickr8k
    """
    base = Path(path).absolute().parent
    name, where = shlex.quote(base.name), shlex.quote(str(base))
    tree = '{"tokens": ["", "a", "dog", "runs"], "heads": [0, 2, 3, 0]}'
    asked = tree if trees else '"a dog running on a beach"'
    url = shlex.quote(f"http://localhost:8501/v1/models/{base.name}:predict")
    curl = f"curl -d '{{\"instances\": [{asked}]}}' {url}"
    if captions:
        image = """printf '{"instances": [{"b64": "%s"}]}' "$(base64 -w0 dog.jpg)\""""
        curl = f"{image} |\n    curl -d @- {url}"
    return (
        f"  vsemb verify {where}\n"
        f"  vsemb serve {where}\n"
        f"  {curl}\n"
        "or, with TensorFlow Serving, the same API:\n"
        f"  tensorflow_model_server --rest_api_port=8501 \\\n"
        f"    --model_name={name} --model_base_path={where}"
    )

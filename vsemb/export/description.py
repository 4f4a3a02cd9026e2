"""What a SavedModel on disk offers, and how to serve it."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

from vsemb.export.contract import Contract, version_contract_path, written_shape
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


def serving_command(path: str | os.PathLike[str]) -> str:
    """Returns shell lines that verify a version's model, serve it and ask it once.

    Args:
        path: the directory of a version, with its contract.

    Example:

        print(serving_command("/models/flickr8k/1"))
    """
    path = Path(path).absolute()
    base, instance = path.parent, Contract.read(version_contract_path(path)).instance
    name, where = shlex.quote(base.name), shlex.quote(str(base))
    url = shlex.quote(f"http://localhost:8501/v1/models/{base.name}:predict")
    if isinstance(instance, dict) and "b64" in instance:
        curl = (
            f"""printf '{{"instances": [{{"b64": "%s"}}]}}' "$(base64 -w0 {instance["b64"]})" |\n    curl -d @- {url}"""
        )
    else:
        curl = f"curl -d {shlex.quote(json.dumps({'instances': [instance]}))} {url}"
    return (
        f"  vsemb verify {where}\n"
        f"  vsemb serve {where}\n"
        f"  {curl}\n"
        "or, with TensorFlow Serving, the same API:\n"
        f"  tensorflow_model_server --rest_api_port=8501 \\\n"
        f"    --model_name={name} --model_base_path={where}"
    )

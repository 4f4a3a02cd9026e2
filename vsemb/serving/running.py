"""A server in the foreground: what it prints, and how a signal ends it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import numpy as np

from vsemb.errors import invalid_argument
from vsemb.serving.models import DEFAULT_SIGNATURE, LoadedModel
from vsemb.serving.server import Server


def served_models(directory: str | None, named: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Returns name -> directory for what the command line names.

    Args:
        directory: one model's directory, served under its own name; None for none.
        named: further names and directories.

    Raises:
        InvalidArgumentError: if nothing is named, or a name twice.
    """
    pairs = [(Path(os.path.abspath(directory)).name, directory)] if directory else []
    models: dict[str, str] = {}
    for name, path in [*pairs, *named]:
        if name in models:
            raise invalid_argument("model", name, "each name once")
        models[name] = path
    if not models:
        raise invalid_argument("model", None, "a model's directory, or --model NAME=DIR")
    return models


def serve_until_stopped(server: Server) -> None:
    """Starts a server, prints where it listens, and stops it on SIGTERM or SIGINT.

    A second signal ends the process at once. Call it from the main thread.

    Raises:
        DataError: as `Server.start`.
    """
    stop = threading.Event()
    handled = (signal.SIGTERM, signal.SIGINT)

    def ask(number: int, frame: FrameType | None) -> None:
        for one in handled:
            signal.signal(one, signal.SIG_DFL)
        stop.set()

    before = {one: signal.signal(one, ask) for one in handled}
    try:
        with server:
            print(_greeting(server), flush=True)
            stop.wait()
            print("stopping", flush=True)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _greeting(server: Server) -> str:
    host = f"[{server.host}]" if ":" in server.host else server.host
    rest = f"http://{host}:{server.rest_port}"
    lines = [f"gRPC  {host}:{server.grpc_port}", f"REST  {rest}"]
    for name, versions in server.models.items():
        numbers = sorted(number for number, one in versions.versions.items() if one.available)
        lines.append(f"model {name}, version {', '.join(map(str, numbers))}")
    name, versions = next(iter(server.models.items()))
    with versions.lease() as (_, model):
        body = json.dumps(_example(model))
    url = shlex.quote(f"{rest}/v1/models/{name}:predict")
    return "\n".join([*lines, "", f"  curl -d {shlex.quote(body)} {url}"])


def _example(model: LoadedModel) -> dict[str, object]:
    """Returns the body of a request that fits the model's inputs."""
    name = DEFAULT_SIGNATURE if DEFAULT_SIGNATURE in model.signatures else sorted(model.signatures)[0]
    inputs = model.signatures[name].inputs
    extra = {} if name == DEFAULT_SIGNATURE else {"signature_name": name}
    if inputs.keys() == {"tokens", "heads"}:
        # Whatever else stood there would be no tree.
        return {**extra, "instances": [{"tokens": ["a", "dog", "runs"], "heads": [2, 3, 0]}]}
    values: dict[str, object] = {}
    for key, spec in inputs.items():
        row = [1 if size is None else size for size in (spec.shape or (1,))[1:]]
        one: object = "a dog running on a beach" if spec.dtype.name == "string" else spec.dtype.as_numpy_dtype(1)
        values[key] = np.full(row, one, dtype=object).tolist()
    row_value: object = next(iter(values.values())) if len(values) == 1 else values
    return {**extra, "instances": [_plain(row_value)]}


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value

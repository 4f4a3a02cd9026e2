"""Running the probes: each script in a process of its own, given a job and a time limit."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.errors import DataError

#: What a probe is called in reports -> its script.
PROBES = {
    "TensorFlow without Keras": Path(__file__).parent / "probes" / "tensorflow_alone.py",
    "TensorFlow's C library": Path(__file__).parent / "probes" / "c_library.py",
}


class ProbeError(DataError):
    """A probe crashed, hung or found no TensorFlow."""


def run_probe(script: Path, job: dict[str, Any], timeout: float) -> dict[str, Any]:
    """Runs a probe and returns what it found.

    Args:
        script: the probe.
        job: see `vsemb.export.probes`.
        timeout: seconds.

    Raises:
        ProbeError: if the process ends badly, not at all within `timeout`, or says nothing readable.
    """
    # Isolated: neither the directory at hand nor the environment decides what is imported.
    command = [sys.executable, "-I", str(script)]
    given = json.dumps({**job, "path": [entry for entry in sys.path if entry]}).encode()
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(command, input=given, capture_output=True, timeout=timeout, env=environment)
    except subprocess.TimeoutExpired:
        raise ProbeError(f"took more than {timeout:g} seconds") from None
    if done.returncode < 0:
        raise ProbeError(f"crashed with {signal.Signals(-done.returncode).name}")
    if done.returncode:
        raise ProbeError(f"failed: {_reason(done.stderr.decode(errors='replace'), done.returncode)}")
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        raise ProbeError("wrote no result") from None


def _reason(said: str, status: int) -> str:
    """Returns the first line of the error that ended a process, without its traceback."""
    _, found, last = said.rpartition("Traceback (most recent call last):\n")
    lines = [line for line in last.splitlines() if line and not line.startswith(" ")]
    return lines[0][:200] if found and lines else f"exit status {status}"


@cache
def known_operations() -> dict[str, frozenset[str]]:
    """Returns the operations that TensorFlow's C library knows when nothing else is loaded, and others.

    Returns:
        library -> names of its operations, `tensorflow` for the C library's own.

    Raises:
        ProbeError: if there is no C library.
    """
    listed = run_probe(PROBES["TensorFlow's C library"], {"operations": True}, timeout=300)
    return {library: frozenset(names) for library, names in listed.items()}


def encode(array: np.ndarray, dtype: str) -> dict[str, Any]:
    """Writes an array as a probe reads it."""
    data: Any
    if dtype == "string":
        data = [base64.b64encode(value).decode() for value in array.reshape(-1)]
    else:
        data = base64.b64encode(np.ascontiguousarray(array, dtype).tobytes()).decode()
    return {"dtype": dtype, "shape": list(array.shape), "data": data}


def decode(values: dict[str, Any]) -> np.ndarray:
    """Reads an array that a probe wrote."""
    if values["dtype"] == "string":
        strings = np.empty(len(values["data"]), object)
        strings[:] = [base64.b64decode(value) for value in values["data"]]
        return strings.reshape(values["shape"])
    flat = np.frombuffer(base64.b64decode(values["data"]), values["dtype"])
    return flat.reshape(values["shape"])

"""Running a SavedModel in a process of its own, given a job and a time limit, see `vsemb.export.probe`."""

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

from tensorflow.core.framework import op_def_pb2

from vsemb.errors import DataError
from vsemb.export import probe

#: What a probe is called in reports -> its script.
PROBES = dict.fromkeys(probe.PROBES, Path(probe.__file__))


def run_probe(script: Path, job: dict[str, Any], timeout: float) -> dict[str, Any]:
    """Runs a probe and returns what it found.

    Args:
        script: the probe.
        job: see `vsemb.export.probe`.
        timeout: seconds.

    Raises:
        DataError: if the process ends badly, not at all within `timeout`, or says nothing readable.
    """
    # Isolated: neither the directory at hand nor the environment decides what is imported.
    command = [sys.executable, "-I", str(script)]
    given = json.dumps({**job, "path": [entry for entry in sys.path if entry]}).encode()
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(command, input=given, capture_output=True, timeout=timeout, env=environment)
    except subprocess.TimeoutExpired:
        raise DataError(f"took more than {timeout:g} seconds") from None
    if done.returncode < 0:
        raise DataError(f"crashed with {signal.Signals(-done.returncode).name}")
    if done.returncode:
        raise DataError(f"failed: {_reason(done.stderr.decode(errors='replace'), done.returncode)}")
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        raise DataError("wrote no result") from None


def _reason(said: str, status: int) -> str:
    """Returns the first line of the error that ended a process, without its traceback."""
    _, found, last = said.rpartition("Traceback (most recent call last):\n")
    lines = [line for line in last.splitlines() if line and not line.startswith(" ")]
    return lines[0][:200] if found and lines else f"exit status {status}"


@cache
def known_operations() -> frozenset[str]:
    """Returns the names of the operations that TensorFlow's C library has when nothing else is loaded.

    Raises:
        DataError: if there is no C library.
    """
    listed = base64.b64decode(run_probe(Path(probe.__file__), {}, timeout=300)["operations"])
    return frozenset(operation.name for operation in op_def_pb2.OpList.FromString(listed).op)

"""Memory of a server whose model is replaced very often: `python -m tests.load.swaps --swaps 200 --weights 100`."""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.load.model import publish
from tests.load.process import ServerProcess

PATH = "/v1/models/sizes"
#: Maximum seconds for a version to be loaded, or unloaded.
PATIENCE = 120


def states(server: ServerProcess) -> dict[int, str]:
    """Return version -> state."""
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=PATIENCE)
    connection.request("GET", PATH)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return {int(entry["version"]): entry["state"] for entry in answer["model_version_status"]}


def swap(server: ServerProcess, base: Path, number: int) -> None:
    """Publish a copy of the version before, send a request, and remove that version when it is unloaded."""
    before, deadline = base / str(number - 1), time.monotonic() + PATIENCE
    shutil.copytree(before, base / f".{number}")
    (base / f".{number}").rename(base / str(number))
    while states(server).get(number) != "AVAILABLE" or states(server).get(number - 1) != "END":
        assert time.monotonic() < deadline, f"version {number} is not served"
        time.sleep(0.02)
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=PATIENCE)
    connection.request("POST", f"{PATH}:predict", '{"instances": ["a", "bc"]}')
    assert connection.getresponse().status == 200
    connection.close()
    shutil.rmtree(before)


def measure(swaps: int, weights: int) -> dict[str, Any]:
    """Return the server's memory in MiB after the first fifth of the swaps, and after the last; both as medians.

    Args:
        swaps: number of replacements.
        weights: MiB of the model.
    """
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "sizes"
        publish(base, version=1, weights=weights)
        memory = []
        with ServerProcess(base, "--poll", "0.02") as server:
            for number in range(2, swaps + 2):
                swap(server, base, number)
                memory.append(server.memory())
    parts = np.array_split(np.array(memory), 5)
    return {
        "swaps": swaps,
        "weights_mib": weights,
        "memory_mib": {"first": float(np.median(parts[0])), "last": float(np.median(parts[-1]))},
        "course_mib": memory[:: max(1, swaps // 10)],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--swaps", type=int, default=200)
    parser.add_argument("--weights", type=int, default=100)
    given = parser.parse_args()
    found = measure(given.swaps, given.weights)
    print(json.dumps(found, indent=2))
    first, last = found["memory_mib"].values()
    sys.exit(last > 1.05 * first)

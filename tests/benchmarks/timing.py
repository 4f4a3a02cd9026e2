"""How benchmarks measure: in turns, CPU time, medians."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.benchmarks.peers import THREAD_VARIABLES, Peer, PeerError

_OPENBLAS_KERNELS = ("", "SkylakeX", "Haswell")
_OPENBLAS_SPEED = """
import time, numpy
a = numpy.random.default_rng(0).random((1500, 1500), numpy.float32)
times = []
for _ in range(4):
    begun = time.process_time()
    a @ a
    times.append(time.process_time() - begun)
print(min(times[1:]))
"""
_COLUMNS = ("name", "size", "ratio", "reason", "points", "unit")
#: Steps of a training that are measured in a row, as nothing else comes between them there.
CONSECUTIVE = 5
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def median_seconds(function: Callable[[], Any], rounds: int) -> float:
    """Runs a function once unmeasured and then `rounds` times."""
    function()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return median(times)


def cpu_seconds(function: Callable[[], Any], calls: int = 1) -> float:
    """CPU time of one call, of all threads of this process.

    Args:
        function: what is measured.
        calls: consecutive calls, whose mean is returned. If more than one, an unmeasured call comes first and
            fills the caches, as the step before does in training.

    Example:

    >>> cpu_seconds(lambda: None) < 1
    True
    """
    if calls > 1:
        function()
    begun = time.process_time()
    for _ in range(calls):
        function()
    return (time.process_time() - begun) / calls


def interleaved(measures: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Medians of what functions measure themselves, in turns, so that a slow minute slows all of them.

    Args:
        measures: name -> what returns the seconds of one round; the first round of each is left out.
        rounds: that are measured.

    Returns:
        Seconds by name, without the peers whose processes ended.

    Example:

    >>> interleaved({"a": lambda: 1.0, "b": lambda: 2.0}, rounds=3)
    {'a': 1.0, 'b': 2.0}
    """
    times: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(rounds + 1):
        for name in list(times):
            try:
                found = measures[name]()
            except PeerError:
                del times[name]
                continue
            if number:
                times[name].append(found)
    return {name: median(values) for name, values in times.items()}


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The b of a * size ** b, fitted by least squares of the logarithms.

    Example: twice the size takes four times as long.

    >>> round(exponent([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def row(name: str, size: str, ratio: float, **details: float) -> dict[str, Any]:
    """A row of a report: a ratio, and the numbers behind it."""
    return {"name": name, "size": size, "ratio": float(f"{ratio:.4g}")} | {
        key: float(f"{value:.5g}") for key, value in details.items()
    }


def growth_rows(
    name: str, sizes: Sequence[float], values: Sequence[float], unit: str = "seconds"
) -> list[dict[str, Any]]:
    """The row of how values grow with size: the exponent, and the `points` of the picture; none for a single size.

    Args:
        name: of the row; it contains `growth`.
        sizes: at which values were measured.
        values: measured.
        unit: of the values.

    Example:

    >>> growth_rows("ranks, growth with pairs", [1, 2], [3.0, 6.0])[0]["ratio"]
    1.0
    """
    if len(sizes) < 2:
        return []
    points = [[float(f"{size:.5g}"), float(f"{value:.5g}")] for size, value in zip(sizes, values, strict=True)]
    return [row(name, f"{len(sizes)} sizes", exponent(sizes, values)) | {"points": points, "unit": unit}]


def left_out(name: str, reason: str | Exception) -> dict[str, Any]:
    """A row that could not be measured, and why."""
    if isinstance(reason, Exception):
        lines = str(reason).splitlines() or [""]
        reason = f"{type(reason).__name__}: {lines[0][:120]}"
    return {"name": name, "size": "", "ratio": None, "reason": reason}


def beside(
    peer: Peer, name: str, size: str, seconds: Mapping[str, float], way: str = "peer", **details: float
) -> dict[str, Any]:
    """The row of a peer's time divided by ours, or of the reason that the peer has none.

    Args:
        peer: which was measured.
        name: of the row.
        size: of the problem.
        seconds: medians of `interleaved`, ours under `"ours"`.
        way: under which the peer's stand.
        details: further numbers.
    """
    if way not in seconds:
        return left_out(name, peer.reason or "was not measured")
    ours, taken = seconds["ours"], seconds[way]
    return row(name, size, taken / ours, ours=ours, peer=taken, **details)


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints a report's rows as a table."""
    from vsemb.printing import table

    cells = [
        [
            each["name"],
            each["size"],
            "" if each["ratio"] is None else f"{each['ratio']:.2f}",
            each.get("reason") or ", ".join(f"{key} {each[key]}" for key in each if key not in _COLUMNS),
        ]
        for each in rows
    ]
    print(table(["", "size", "ratio", "details"], cells, text=(0, 1, 3)))


def set_threads(threads: int) -> None:
    """Sets the threads of TensorFlow, and those of libraries that are loaded later."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    if threads:
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))


@functools.cache
def best_openblas() -> dict[str, str]:
    """The environment in which NumPy's OpenBLAS is fastest here; empty where its own choice is."""
    seconds = {}
    for kernels in _OPENBLAS_KERNELS:
        environment = os.environ | dict.fromkeys(THREAD_VARIABLES, "1")
        environment |= {"OPENBLAS_CORETYPE": kernels} if kernels else {}
        # A processor that lacks the instructions ends the process.
        done = subprocess.run([sys.executable, "-c", _OPENBLAS_SPEED], env=environment, capture_output=True, text=True)
        if done.returncode == 0:
            seconds[kernels] = float(done.stdout)
    best = min(seconds, key=lambda kernels: seconds[kernels], default="")
    # Noise is no reason to overrule the library.
    wins = bool(best) and seconds[best] < 0.9 * seconds.get("", np.inf)
    return {"OPENBLAS_CORETYPE": best} if wins else {}


@contextlib.contextmanager
def own_process(threads: int = 1, *, peer: bool = False) -> Iterator[ProcessPoolExecutor]:
    """Yields a process that has done nothing yet, one task at a time; a peer's has the best kernels."""
    chosen = dict.fromkeys(THREAD_VARIABLES, str(threads)) if threads else {}
    chosen |= best_openblas() if peer else {}
    before = {name: os.environ.get(name) for name in chosen}
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        os.environ.update(chosen)
        try:
            pool.submit(os.getpid).result()  # The process starts here, and reads the environment.
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        yield pool


def bytes_beyond(function: Callable[[], Any]) -> int | None:
    """The largest memory of this process during a call beyond that before it; None where Linux is not."""

    def kilobytes(name: str) -> int:
        found = re.search(rf"^{name}:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1])

    try:
        before = kilobytes("VmRSS")
        _CLEAR.write_text("5")  # forgets the largest so far
    except OSError:
        function()
        return None
    function()
    return 1024 * (kilobytes("VmHWM") - before)

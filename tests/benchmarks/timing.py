"""How benchmarks take time: once unmeasured, then the median."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any


def median_seconds(function: Callable[[], Any], rounds: int) -> float:
    """Runs a function once unmeasured and then `rounds` times."""
    function()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return median(times)

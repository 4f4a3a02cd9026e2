"""Two replicas with half the batch each do what one device does with the whole batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.replicas_script import REPLICAS

Results = dict[str, dict[str, Any]]


def run_cases(script: str, *modules: str) -> Results:
    """Runs the cases of modules in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.models.{script}", *modules],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def check_same(result: dict[str, Any], what: str) -> None:
    """Checks that two devices found what one did."""
    one, two = result[what]
    # The sums run in another order; six SGD steps of float32 keep five digits.
    np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-5)


def check_different(results: Results) -> None:
    """Checks that every case has its own gradients, and its own loss, to which the optimizer does not matter."""
    of_losses = [case for case in results if not case.endswith(("-momentum", "-clipped"))]
    for what, cases in (("evaluate", of_losses), ("weights", list(results))):
        assert len({json.dumps(results[case][what][0]) for case in cases}) == len(cases)


@pytest.fixture(scope="module")
def results() -> Results:
    return run_cases("replicas_script", "tests.models.replicas_script")


@pytest.mark.parametrize("case", REPLICAS)
@pytest.mark.parametrize("what", ["evaluate", "fit", "weights"])
def test_two_replicas_equal_one_device(results: Results, case: str, what: str) -> None:
    check_same(results[case], what)


def test_the_cases_are_no_trivial_ones(results: Results) -> None:
    assert set(results) == set(REPLICAS)
    check_different(results)

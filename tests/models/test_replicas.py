"""Two replicas with half the batch each do what one device does with the whole batch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parent / "replicas_script.py"
CASES = ["all", "all-sampled", "hardest", "hardest-sampled", "infonce", "infonce-sampled"]
CASES += ["all-regularised", "all-sampled-order", "entailment", "structured", "structured-released"]
CASES += ["all-l2", "hardest-momentum", "sets", "sets-sampled", "captions", "captions-l2"]
# Gradients clipped by their global norm, and entry by entry: of the sum, and not of each replica.
CASES += ["all-clipped", "sets-clipped"]


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, list]]:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("what", ["evaluate", "fit", "weights"])
def test_two_replicas_equal_one_device(results, case: str, what: str) -> None:
    one, two = results[case][what]
    # The sums run in another order; six SGD steps of float32 keep five digits.
    np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-5)


def test_the_cases_are_no_trivial_ones(results) -> None:
    assert set(results) == {*CASES}
    # Every case has its own gradients, and its own loss, to which the optimizer does not matter.
    of_losses = [case for case in CASES if not case.endswith(("-momentum", "-clipped"))]
    for what, cases in (("evaluate", of_losses), ("weights", CASES)):
        assert len({json.dumps(results[case][what][0]) for case in cases}) == len(cases)

"""Two replicas, in chunks and blocks, do what one device does with the whole batch at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parent / "replicas_chunks_script.py"
CASES = ["infonce-chunks", "infonce-blocks", "hardest", "structured"]
CASES += ["sigmoid", "sigmoid-sum", "sigmoid-sampled"]


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, list]]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("what", ["evaluate", "fit", "weights"])
def test_two_replicas_equal_one_device(results, case: str, what: str) -> None:
    one, two = results[case][what]
    # The sums run in another order; six SGD steps of float32 keep five digits.
    np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-5)


def test_the_cases_are_no_trivial_ones(results) -> None:
    assert set(results) == {*CASES, "dropout"}
    losses = {tuple(results[case]["fit"][0]) for case in CASES if case not in ("infonce-chunks",)}
    assert len(losses) == len(CASES) - 1


@pytest.mark.parametrize("case", CASES)
def test_a_ring_gathers_no_embeddings(results, case: str) -> None:
    # Ids and numbers of rows have one axis, embeddings two.
    assert results[case]["gathered"] == ([1] if case.startswith("sigmoid") else [1, 2])


def test_dropout_and_statistics_under_a_strategy(results) -> None:
    assert np.isfinite(results["dropout"]["fit"]).all()
    # Everything that training writes down has moved: seeds, moving means and variances.
    assert sum(results["dropout"]["moved"]) >= 4
    # Two draws, of the words' dropout and the images', in each of two chunks of six steps.
    assert sorted(results["dropout"]["seeds"])[-2:] == [12, 12]

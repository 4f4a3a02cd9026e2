"""The benchmark of training under JAX, at the smallest size; without PyTorch, its rows say so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.peers import ENVIRONMENTS
from tests.runs.test_jax import QUICK, ROOT

SMALL = ["--models", "contrastive default", "--batches", "8", "--steps", "1", "--rounds", "1", "--devices", "2"]
# Importing TensorFlow fails, as on a machine without it.
WITHOUT_TENSORFLOW = """
import sys
sys.modules["tensorflow"] = None
from tests.benchmarks.jax_training import main
main()
"""


@pytest.mark.slow
def test_a_model_is_measured_on_two_devices(tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="the extra jax is not installed")
    report = tmp_path / "report.json"
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, *SMALL, "--json", str(report)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, cwd=ROOT, env={**os.environ, **QUICK}, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (found,) = json.loads(report.read_text())["models"]
    rates = {way: row["captions_per_second"] for way, row in found["rows"].items()}
    assert min(rates["vsemb float32"], rates["vsemb bfloat16"]) > 0
    if not (ENVIRONMENTS / "torch").is_dir():
        assert "is not installed" in found["failed"]["torch eager float32"]

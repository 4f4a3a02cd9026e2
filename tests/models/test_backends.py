"""The rooms of models on another backend of Keras: the same steps, and no TensorFlow needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.models.backend_steps import BACKENDS, cases_of, flat, train

ROOT = Path(__file__).parents[2]

# Stands in for a machine without TensorFlow: importing it fails.
WITHOUT_TENSORFLOW = """
import sys
sys.modules["tensorflow"] = None
import vsemb.encoders, vsemb.losses, vsemb.models, vsemb.ops, vsemb.similarities
from tests.models import backend_steps
backend_steps.main(*sys.argv[1:])
"""


def run(*arguments: str) -> str:
    pytest.importorskip("jax", reason="the extra jax is not installed")
    quick = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"  # to compile
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": quick}
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def run_both(folder: Path, *modules: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Returns what TensorFlow found, and what JAX did without it from the same weights and batches."""
    cases = cases_of(list(modules))
    expected = {key: value for name, case in cases.items() for key, value in flat(name, train(case)).items()}
    np.savez(folder / "given.npz", **expected)
    said = run(str(folder / "given.npz"), str(folder / "found.npz"), *modules)
    assert said.split() == ["jax"]
    with np.load(folder / "found.npz") as file:
        return expected, dict(file)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory):
    return run_both(tmp_path_factory.mktemp("backends"), "tests.models.backend_steps")


def check_same(results, case: str) -> None:
    """Checks that both backends found the same."""
    expected, other = results
    names = [name for name in expected if name.startswith(f"{case}.")]
    assert names == [name for name in other if name.startswith(f"{case}.")]
    assert {name.split(".")[1] for name in names} == {"first", "loss", "last"}
    for name in names:
        # Three steps of float32; sums run in another order.
        np.testing.assert_allclose(other[name], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("case", BACKENDS)
def test_jax_without_tensorflow_trains_as_tensorflow_does(results, case: str) -> None:
    check_same(results, case)


def test_the_steps_are_no_trivial_ones(results) -> None:
    check_not_trivial(results, list(BACKENDS))


def check_not_trivial(results, cases: list[str]) -> None:
    """Checks that weights move and losses change."""
    expected, _ = results
    for case in cases:
        moved = [
            np.abs(expected[f"{case}.last.{i}"] - expected[name]).max()
            for i, name in enumerate(name for name in expected if name.startswith(f"{case}.first."))
        ]
        assert max(moved) > 0.02
        assert len(np.unique(expected[f"{case}.loss.0"])) == len(expected[f"{case}.loss.0"])

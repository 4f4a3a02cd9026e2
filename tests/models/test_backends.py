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
import vsemb, vsemb.encoders, vsemb.losses, vsemb.models, vsemb.ops, vsemb.similarities
from tests.models import backend_steps
print(backend_steps.train(backend_steps.BACKENDS["vsepp"])["loss"][0])
"""


def run(*arguments: str) -> str:
    pytest.importorskip("jax", reason="the extra jax is not installed")
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def run_both(folder: Path, *modules: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Returns what TensorFlow found, and what JAX did from the same weights and batches."""
    cases = cases_of(list(modules))
    expected = {key: value for name, case in cases.items() for key, value in flat(name, train(case)).items()}
    np.savez(folder / "given.npz", **expected)
    said = run("-m", "tests.models.backend_steps", str(folder / "given.npz"), str(folder / "found.npz"), *modules)
    assert said.split()[0] == "jax"
    with np.load(folder / "found.npz") as file:
        return expected, dict(file)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory):
    return run_both(tmp_path_factory.mktemp("backends"), "tests.models.backend_steps")


def check_same(results, case: str, what: str) -> None:
    """Checks that both backends found the same."""
    expected, found = results
    names = [name for name in expected if name.startswith(f"{case}.{what}.")]
    assert names and names == [name for name in found if name.startswith(f"{case}.{what}.")]
    for name in names:
        # Five steps of float32; sums run in another order.
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("case", BACKENDS)
@pytest.mark.parametrize("what", ["first", "loss", "last"])
def test_jax_trains_as_tensorflow_does(results, case: str, what: str) -> None:
    check_same(results, case, what)


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


def test_models_train_without_tensorflow() -> None:
    assert "[" in run("-c", WITHOUT_TENSORFLOW)

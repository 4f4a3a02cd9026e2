"""Training steps of the systems' models: on two replicas, in chunks, and on another backend of Keras.

The cases are in `step_cases.py` of the systems' folders; those of the base are in `tests/models`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models import test_backends
from tests.models.replicas_script import cases_of
from tests.models.test_replicas import Results, check_different, check_same, run_cases

_FOLDERS = sorted(path.parent.name for path in Path(__file__).parent.glob("*/step_cases.py"))
MODULES = [f"tests.systems.{name}.step_cases" for name in _FOLDERS]
REPLICAS, CHUNKS, BACKENDS = (list(cases_of(MODULES, name)) for name in ("REPLICAS", "CHUNKS", "BACKENDS"))


@pytest.fixture(scope="module")
def on_replicas() -> Results:
    return run_cases("replicas_script", *MODULES)


@pytest.fixture(scope="module")
def in_chunks() -> Results:
    return run_cases("replicas_chunks_script", *MODULES)


@pytest.fixture(scope="module")
def on_backends(tmp_path_factory: pytest.TempPathFactory):
    return test_backends.run_both(tmp_path_factory.mktemp("backends"), *MODULES)


@pytest.mark.parametrize("case", REPLICAS)
@pytest.mark.parametrize("what", ["evaluate", "fit", "weights"])
def test_two_replicas_equal_one_device(on_replicas: Results, case: str, what: str) -> None:
    check_same(on_replicas[case], what)


def test_the_cases_are_no_trivial_ones(on_replicas: Results) -> None:
    check_different(on_replicas)


@pytest.mark.parametrize("case", CHUNKS)
@pytest.mark.parametrize("what", ["evaluate", "fit", "weights"])
def test_two_replicas_in_chunks_equal_one_device(in_chunks: Results, case: str, what: str) -> None:
    check_same(in_chunks[case], what)


@pytest.mark.parametrize("case", BACKENDS)
@pytest.mark.parametrize("what", ["first", "loss", "last"])
def test_jax_trains_as_tensorflow_does(on_backends, case: str, what: str) -> None:
    test_backends.check_same(on_backends, case, what)


def test_the_steps_are_no_trivial_ones(on_backends) -> None:
    test_backends.check_not_trivial(on_backends, BACKENDS)

"""Training steps of the systems' models: on two replicas, in chunks, and on another backend of Keras.

The cases are in `step_cases.py` of the systems' folders; those of the base are in `tests/models`, those of hypernymy in
`tests/pipelines`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from tests.models import test_backends
from tests.models.replica_cases import Results, cases_of, check_different, check_same, run
from tests.models.test_replicas_chunks import run_chunks
from tests.raising import raises_argument

_FOLDERS = sorted(path.parent.name for path in Path(__file__).parent.glob("*/step_cases.py"))
MODULES = [*(f"tests.systems.{name}.step_cases" for name in _FOLDERS), "tests.pipelines.hypernymy.step_cases"]
REPLICAS, CHUNKS, BACKENDS = (cases_of(MODULES, name) for name in ("REPLICAS", "CHUNKS", "BACKENDS"))


@pytest.fixture(scope="module")
def on_replicas(two_devices: tf.distribute.Strategy) -> Results:
    return {name: (run(case), run(case, two_devices)) for name, case in REPLICAS.items()}


@pytest.fixture(scope="module")
def on_backends(two_devices: tf.distribute.Strategy, tmp_path_factory: pytest.TempPathFactory):
    return test_backends.run_both(tmp_path_factory.mktemp("backends"), *MODULES)


@pytest.mark.slow
@pytest.mark.parametrize("case", REPLICAS)
def test_two_replicas_equal_one_device(on_replicas: Results, case: str) -> None:
    check_same(on_replicas, case)


@pytest.mark.slow
def test_the_cases_are_no_trivial_ones(on_replicas: Results) -> None:
    check_different(on_replicas)


@pytest.mark.slow
def test_two_replicas_in_chunks_equal_one_device(two_devices: tf.distribute.Strategy) -> None:
    results, _ = run_chunks(CHUNKS, two_devices)
    for case in CHUNKS:
        check_same(results, case)


@pytest.mark.slow
@pytest.mark.parametrize("case", BACKENDS)
def test_jax_trains_as_tensorflow_does(on_backends, case: str) -> None:
    test_backends.check_same(on_backends, case)


@pytest.mark.slow
def test_the_steps_are_no_trivial_ones(on_backends) -> None:
    test_backends.check_not_trivial(on_backends, list(BACKENDS))


# Pairs of concepts have no names.
@pytest.mark.parametrize("case", sorted(REPLICAS.keys() - {"hypernyms"}))
def test_inputs_that_are_not_read_are_refused(two_devices: tf.distribute.Strategy, case: str) -> None:
    model, rows = REPLICAS[case]()
    inputs, *labels = rows if isinstance(rows, tuple) else (rows,)
    misspelt = f"{min(inputs)}s"
    for call in (lambda x: model.fit(x, *labels, batch_size=8), model.predict):
        with raises_argument("x"):
            call({**inputs, misspelt: next(iter(inputs.values()))})

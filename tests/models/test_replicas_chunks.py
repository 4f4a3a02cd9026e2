"""Two replicas, in chunks and blocks, do what one device does with the whole batch at once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models.replicas_chunks_script import CHUNKS
from tests.models.test_replicas import Results, check_same, run_cases


@pytest.fixture(scope="module")
def results() -> Results:
    return run_cases("replicas_chunks_script", "tests.models.replicas_chunks_script")


@pytest.mark.parametrize("case", CHUNKS)
@pytest.mark.parametrize("what", ["evaluate", "fit", "weights"])
def test_two_replicas_equal_one_device(results, case: str, what: str) -> None:
    check_same(results[case], what)


def test_the_cases_are_no_trivial_ones(results) -> None:
    assert set(results) == {*CHUNKS, "dropout"}
    losses = {tuple(results[case]["fit"][0]) for case in CHUNKS if case not in ("infonce-chunks",)}
    assert len(losses) == len(CHUNKS) - 1


@pytest.mark.parametrize("case", CHUNKS)
def test_a_ring_gathers_no_embeddings(results, case: str) -> None:
    # Ids and numbers of rows have one axis, embeddings two.
    assert results[case]["gathered"] == ([1] if case.startswith("sigmoid") else [1, 2])


def test_dropout_and_statistics_under_a_strategy(results) -> None:
    assert np.isfinite(results["dropout"]["fit"]).all()
    # Everything that training writes down has moved: seeds, moving means and variances.
    assert sum(results["dropout"]["moved"]) >= 4
    # Two draws, of the words' dropout and the images', in each of two chunks of six steps.
    assert sorted(results["dropout"]["seeds"])[-2:] == [12, 12]

"""Dual encoders over sets of vectors, in blocks and in chunks."""

from __future__ import annotations

import functools

import pytest

from tests.models import test_gradient_caching, test_in_batch
from vsemb.losses import PairwiseRanking, SigmoidLoss
from vsemb.systems.regions.encoders import ContextualTokenEncoder, RegionEncoder

ENCODERS = {"images": RegionEncoder, "texts": functools.partial(ContextualTokenEncoder, units=5)}
CASES: list[test_gradient_caching.Case] = [
    (lambda: PairwiseRanking(0.3), "sets", {"similarity": "max-sim", **ENCODERS}),
    (lambda: PairwiseRanking(0.3), "sets-sampled", {"similarity": "late-interaction", **ENCODERS}),
]


@pytest.mark.parametrize(
    "case", [(PairwiseRanking(0.3), "max-sim", ""), (SigmoidLoss(0.5), "late-interaction", "sampled")]
)
def test_blocks_equal_all_scores_at_once(case: test_in_batch.Case) -> None:
    test_in_batch.check_blocks(case)


@pytest.mark.parametrize("case", CASES, ids=["sets", "sets-sampled"])
def test_chunks_give_the_gradients_of_the_whole_batch(case: test_gradient_caching.Case) -> None:
    test_gradient_caching.check_chunks(case)


def test_fit_with_chunks_equals_fit_without() -> None:
    test_gradient_caching.check_fit_with_chunks(CASES[1])

"""Dual encoders over sets of vectors, in blocks and in chunks."""

from __future__ import annotations

import functools

import pytest

from tests.models import test_gradient_caching, test_in_batch
from vsemb.losses import PairwiseRanking, SigmoidLoss
from vsemb.systems.regions.encoders import ContextualTokenEncoder, RegionEncoder

ENCODERS = {"images": RegionEncoder, "texts": functools.partial(ContextualTokenEncoder, units=5)}
SETS: test_gradient_caching.Case = (lambda: PairwiseRanking(0.3), "sets", {"similarity": "max-sim", **ENCODERS})
SAMPLED: test_gradient_caching.Case = (
    lambda: PairwiseRanking(0.3),
    "sets-sampled",
    {"similarity": "late-interaction", **ENCODERS},
)


@pytest.mark.parametrize(
    "case, graph",
    [
        ((lambda: PairwiseRanking(0.3), "max-sim", ""), False),
        ((lambda: SigmoidLoss(0.5), "late-interaction", "sampled"), True),
    ],
    ids=["max-sim", "late-interaction"],
)
def test_blocks_equal_all_scores_at_once(case: test_in_batch.Case, graph: bool) -> None:
    test_in_batch.check_blocks(case, graph)


@pytest.mark.parametrize("case", [SETS, SAMPLED], ids=["sets", "sets-sampled"])
def test_chunks_give_the_gradients_of_the_whole_batch(case: test_gradient_caching.Case) -> None:
    test_gradient_caching.check_chunks(case)


@pytest.mark.slow
def test_fit_with_chunks_equals_fit_without() -> None:
    test_gradient_caching.check_fit_with_chunks(SAMPLED)

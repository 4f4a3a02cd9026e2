"""The weighted sum of losses is just that, and its parts see the optimizer's step."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contract import check_loss
from tests.losses.slow import random_relation
from vsemb.errors import InvalidArgumentError
from vsemb.losses import CombinedLoss, InfoNCE, PairwiseRanking


def make(**arguments) -> CombinedLoss:
    return CombinedLoss([PairwiseRanking(0.2, "hardest"), InfoNCE(0.5)], [1.0, 3.0], **arguments)


def test_sum_of_parts() -> None:
    relation, scores = random_relation(5, 8, seed=2)
    scores = scores.astype(np.float32)
    ranking = PairwiseRanking(0.2, "hardest", reduction=None).call(relation, scores)
    infonce = InfoNCE(0.5).call(relation, scores)
    np.testing.assert_allclose(make().call(relation, scores), ranking + 3 * infonce, rtol=1e-6)


def test_contract() -> None:
    relation, scores = random_relation(5, 8, seed=1)
    check_loss(make(), relation, scores.astype(np.float32))
    check_loss(make(reduction="sum"), relation, scores.astype(np.float32))


def test_step_reaches_the_parts() -> None:
    loss = CombinedLoss([PairwiseRanking(0.2, "hardest", warmup_steps=10)], [1.0])
    relation, scores = np.eye(3, dtype=np.int32), np.full((3, 3), 0.5, np.float32)
    loss.bind_step(0)  # All embeddings at one point: two hinges of 0.2 a query at first,
    np.testing.assert_allclose(float(loss(relation, scores)), 0.4, rtol=1e-6)
    loss.bind_step(10)  # the hardest alone at the end.
    np.testing.assert_allclose(float(loss(relation, scores)), 0.2, rtol=1e-6)


@pytest.mark.parametrize(("losses", "weights"), [([], []), ([InfoNCE()], [1.0, 2.0])])
def test_bad_weights(losses, weights) -> None:
    with pytest.raises(InvalidArgumentError, match="weights"):
        CombinedLoss(losses, weights)

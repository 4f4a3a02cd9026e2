"""The losses of PCME++ by hand, against loops, and of a batch in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tests.contract import check_config, check_loss
from tests.losses.slow import finite_differences, random_labels
from tests.raising import raises_argument
from tests.systems.probabilistic.slow import matching_rows, rows, slow_distance, slow_divergence
from vsemb import recipes
from vsemb.models import LogitScale
from vsemb.models.in_batch import InBatchObjective
from vsemb.systems.probabilistic.matching_loss import Matching, Prior, PseudoPositives
from vsemb.systems.probabilistic.similarity import SampledDistance


def test_by_hand() -> None:
    # Row 0: own logit 0, other 0: log 2 both. Row 1: own 1, other 2, so the other is a pseudo-positive.
    # log(1 + exp(-1)) = 0.313262, log(1 + exp(-2)) = 0.126928.
    # An equal score is a pseudo-positive, too; at 0 it costs the same.
    labels, scores = np.eye(2), np.array([[0.0, 0.0], [2.0, 1.0]])
    expected = [2 * math.log(2), 0.313262 + 0.126928]
    np.testing.assert_allclose(PseudoPositives().call(labels, scores), expected, rtol=1e-5)
    # a = 2 and b = 1: the logit of a distance of 1 is -1.
    value = PseudoPositives(0.5, 1.0)([[1]], [[-1.0]])
    np.testing.assert_allclose(float(value), math.log(1 + math.exp(1)), rtol=1e-6)


@pytest.mark.parametrize("shape", [(4, 4), (3, 9)])
def test_pseudo_positives_equal_a_double_loop_forward_and_gradient(shape: tuple[int, int]) -> None:
    labels, mask, scores = random_labels(*shape, seed=3)

    def slow(values: np.ndarray) -> float:
        return matching_rows(labels, mask, values / 0.3 + 0.5, pseudo=True).mean()

    variable = tf.constant(scores.astype(np.float32))
    with tf.GradientTape() as tape:
        tape.watch(variable)
        value = PseudoPositives(0.3, 0.5)(labels, variable, mask)
    np.testing.assert_allclose(float(value), slow(scores), rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(value, variable), finite_differences(slow, scores), atol=2e-5)


@pytest.mark.parametrize("loss", [PseudoPositives(), PseudoPositives(0.2, 5.0, reduction="sum")])
def test_contract(loss: PseudoPositives) -> None:
    check_loss(loss, *random_labels(5, 8, seed=1))
    with raises_argument("temperature"):
        PseudoPositives(0.0)


def test_the_prior_is_of_each_text_and_its_own_image() -> None:
    images, texts = rows(4, 3, 22), rows(3, 3, 23)
    labels = np.array([[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]])
    values = Prior().of_items(images, texts, ops.array(labels), labels == 1)
    expected = [slow_divergence(images[i]) + slow_divergence(text) for i, text in zip((2, 0, 3), texts, strict=True)]
    # Times four candidates.
    np.testing.assert_allclose(values, np.multiply(4, expected), rtol=1e-5)
    check_config(Prior())


@pytest.mark.parametrize("block_size", [None, 2])
@pytest.mark.parametrize("learned", [True, False])
def test_the_loss_of_a_batch_is_the_papers(block_size: int | None, learned: bool) -> None:
    images, texts = rows(5, 4, 20), rows(5, 4, 21)
    part = Matching(
        temperature=0.5,
        bias=8.0,
        learn_temperature=learned,
        pseudo_weight=0.3,
        prior_weight=0.7,
        block_size=block_size,
    )
    scale = None
    if learned:
        temperature, bias = part.logit_scale()
        scale = LogitScale(1 / temperature, bias=bias)
        scale.build()
    objective = InBatchObjective(part.build(10), SampledDistance(), scale, 1.0, 1.0, block_size)
    computed = objective({}, {"image": ops.array(images), "text": ops.array(texts)})

    logits = np.array([[-2.0 * slow_distance(image, text) + 8.0 for text in texts] for image in images])
    own, everything = np.eye(5), np.ones((5, 5), bool)
    expected = 0.0
    for scores in (logits, logits.T):
        expected += matching_rows(own, everything, scores).mean()
        expected += 0.3 * matching_rows(own, everything, scores, pseudo=True).mean()
    # Some candidates are pseudo-positives.
    assert ((logits > np.diag(logits)[:, None]).sum()) > 2
    # The mean over five queries, times five candidates.
    expected += 0.7 * sum(slow_divergence(row) for row in [*images, *texts])
    assert float(computed) == pytest.approx(expected, rel=1e-5)


def test_a_similarity_without_variances_is_refused() -> None:
    for change in ("similarity=cosine", "similarity=order"):
        with raises_argument("similarity"):
            recipes.get("pcme").with_overrides([change])
    with raises_argument("similarity"):
        recipes.get("contrastive").with_overrides(["loss=matching"])

"""Structured joint embedding: oracles of two and three classes, the expectation, slow loops, gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.contract import check_loss
from tests.losses.slow import finite_differences, structured_rows
from tests.oracles import TOLERANCE, oracle
from tests.raising import raises_argument
from vsemb import losses
from vsemb.losses.ranking import Hardest
from vsemb.models.in_batch import class_labels, pair_labels
from vsemb.similarities import Dot
from vsemb.systems.zero_shot.structured_loss import Structured, StructuredJointEmbedding


@pytest.mark.parametrize("name", ["sje_2_classes", "sje_3_classes"])
def test_oracles_of_one_item_a_class(name: str) -> None:
    entry = oracle(name)
    images = np.array(entry.inputs["image_features"], np.float32)
    texts = np.array(entry.inputs["text_features"], np.float32)
    scores = Dot().scores(images, texts).numpy()
    expected = entry.expected
    np.testing.assert_allclose(scores, expected["F"], **TOLERANCE)
    labels = np.eye(len(images), dtype=np.int32)
    for negatives, prefix in (("hardest", "paper_max"), ("all", "released_code")):
        loss = StructuredJointEmbedding(negatives=negatives)
        np.testing.assert_allclose(float(loss(labels, scores)), expected[f"{prefix}_image_direction"], **TOLERANCE)
        np.testing.assert_allclose(float(loss(labels, scores.T)), expected[f"{prefix}_text_direction"], **TOLERANCE)


def test_oracle_of_the_expectation_over_a_class() -> None:
    entry = oracle("sje_paper_expectation")
    texts = [text for group in entry.inputs["texts_by_class"] for text in group]
    classes = np.array([y for y, group in enumerate(entry.inputs["texts_by_class"]) for _ in group], np.int64)
    assert texts[0] == entry.inputs["true_text"]
    scores = Dot().scores(np.array([entry.inputs["image"]], np.float32), np.array(texts, np.float32))
    own = np.array([[1, 0, 0, 0, 0]], np.int32)
    labels, values, mask = class_labels(own, scores, np.array([entry.inputs["true_class"]]), classes)
    assert labels.numpy().tolist() == [[1, 1, 1, 0, 0, 0]]
    assert mask.numpy().tolist() == [[True, True, False, True, True, False]]
    per_class = (values.numpy()[0, [1, 3, 4]] - values.numpy()[0, 0]) + [0, 1, 1]
    np.testing.assert_allclose(per_class, entry.expected["per_class_value"], **TOLERANCE)
    loss = float(StructuredJointEmbedding()(labels, values, mask))
    np.testing.assert_allclose(loss, entry.expected["loss"], **TOLERANCE)


def test_the_own_class_counts_without_a_margin() -> None:
    # Own text 1.0; the class's other text 3.0: mean 2.0, 1.0 ahead. The wrong class: 1 + 0.5 - 1.0 = 0.5.
    classes = np.array([4, 4, 9])
    own = np.array([[1, 0, 0]], np.int32)
    rows = class_labels(own, np.array([[1.0, 3.0, 0.5]], np.float32), classes[:1], classes)
    assert float(StructuredJointEmbedding()(*rows)) == 1.0
    assert float(StructuredJointEmbedding(negatives="all")(*rows)) == 0.25  # 0.5 / 2 classes


@pytest.mark.parametrize("negatives", ["hardest", "all"])
def test_against_a_loop_over_classes_forward_and_gradient(negatives: str) -> None:
    generator = np.random.default_rng(3)
    classes = np.array([7, 2, 7, 5, 2, 2, 9], np.int64)
    scores = generator.normal(size=(7, 7))
    pairs = np.arange(7)
    labels, _ = pair_labels(classes, classes, pairs, pairs)
    loss = StructuredJointEmbedding(negatives=negatives, reduction="sum")

    def fast(values: tf.Tensor) -> tf.Tensor:
        return loss(*class_labels(labels, values, classes, classes))

    variable = tf.constant(scores, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(variable)
        total = fast(variable)
    rows = structured_rows(scores, classes, classes, pairs, negatives)
    np.testing.assert_allclose(float(total), rows.sum(), rtol=1e-5)
    slow = finite_differences(lambda at: structured_rows(at, classes, classes, pairs, negatives).sum(), scores.copy())
    # float32 sums of seven items in another order, and central differences of 1e-6.
    np.testing.assert_allclose(tape.gradient(total, variable).numpy(), slow, atol=2e-5)


@pytest.mark.parametrize("negatives", ["hardest", "all"])
def test_contract(negatives: str) -> None:
    labels = np.array([[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 0]], np.int32)
    mask = np.array([[1, 1, 0, 1], [1, 1, 1, 1], [0, 1, 1, 1]], bool)
    scores = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    check_loss(StructuredJointEmbedding(0.7, negatives), labels, mask, scores)


def test_warm_up_passes_from_all_classes_to_the_hardest() -> None:
    loss = StructuredJointEmbedding(1.0, warmup_steps=100)
    # Own 0.5, wrong 0.6 and 0.4: hinges 1.1 and 0.9; hardest 1.1, all (1.1 + 0.9) / 3 classes.
    row = ([[1, 0, 0]], [[0.5, 0.6, 0.4]])
    for step, expected in ((None, 1.1), (0, 2 / 3), (50, 2 / 3), (75, (1.1 + 2 / 3) / 2), (100, 1.1)):
        loss.bind_step(step)
        np.testing.assert_allclose(float(loss(*row)), expected, rtol=1e-5)


@pytest.mark.parametrize("reduction", ["sum", "sum_over_batch_size"])
@pytest.mark.parametrize("negatives", ["hardest", "all"])
def test_collapsed_value(negatives: str, reduction: str) -> None:
    loss = StructuredJointEmbedding(0.5, negatives, reduction=reduction)
    both = 2 * float(loss(np.eye(6, dtype=np.int32), np.full((6, 6), 3.0, np.float32)))
    np.testing.assert_allclose(loss.collapsed_value(6, 6), both, rtol=1e-6)


def test_by_name_and_bad_arguments() -> None:
    assert isinstance(losses.get("structured"), StructuredJointEmbedding)
    built = Structured(margin=0.5, negatives=Hardest(warmup_epochs=0.5), reduction="sum").build(10)
    assert (built.margin, built.negatives, built.warmup_steps, built.reduction) == (0.5, "hardest", 5, "sum")
    with raises_argument("margin"):
        StructuredJointEmbedding(-1.0)
    with raises_argument("negatives"):
        StructuredJointEmbedding(negatives="softest")

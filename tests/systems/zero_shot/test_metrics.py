"""Zero-shot recognition and retrieval: the protocol by hand, ties, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles import TOLERANCE, oracle
from tests.raising import raises_argument
from tests.systems.zero_shot.drawn_classes import SlowDot, drawn
from vsemb.errors import DataError
from vsemb.similarities import Cosine, Dot, OrderViolation
from vsemb.systems.zero_shot import metrics as zero_shot
from vsemb.systems.zero_shot.metrics import (
    class_means,
    class_scores,
    evaluate_zero_shot,
    image_rankings,
    precision_at,
    recognized,
)


def flat(by_class: list) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of all classes and the class of each."""
    classes = np.repeat(np.arange(len(by_class)), [len(rows) for rows in by_class])
    return np.array([row for rows in by_class for row in rows], np.float32), classes


@pytest.mark.parametrize("similarity", [Dot(), SlowDot()], ids=["linear", "not"])
def test_oracle(similarity) -> None:
    given = oracle("zero_shot_eval")
    images, image_classes = flat(given.inputs["images_by_class"])
    texts, text_classes = flat(given.inputs["texts_by_class"])
    expected = given.expected
    np.testing.assert_allclose(class_means(texts, text_classes, 3), expected["class_embeddings"], **TOLERANCE)
    # Image 5 is a tie: 0.5 x 0.6 + 0.6 x 0.5 for its own class and 0.6 x 1 for class 1. The oracle has it
    # right, since (0.4 + 0.8) / 2 is a little over 0.6 in double precision. Here a tie is wrong ...
    tied = class_scores(images, texts, text_classes, similarity)
    np.testing.assert_allclose(tied[5, 1:], 0.6, rtol=1e-6)
    metrics = evaluate_zero_shot(images, image_classes, texts, text_classes, Dot(), names="abc")
    np.testing.assert_allclose((metrics.top1, metrics.top1_images), (100 * 1.75 / 3, 400 / 7))
    # ... and what breaks it as the oracle does makes all of the oracle's numbers.
    images[5, 0] += 1e-5
    scores = class_scores(images, texts, text_classes, similarity)
    assert scores.argmax(axis=1).tolist() == [label for row in expected["predictions"] for label in row]
    assert image_rankings(scores, image_classes).tolist() == expected["ranking_by_class"]
    for top, precision in expected["precision_at_k"].items():
        metrics = evaluate_zero_shot(images, image_classes, texts, text_classes, similarity, names="abc", top=int(top))
        np.testing.assert_allclose(metrics.average_precision, 100 * precision, **TOLERANCE)
        np.testing.assert_allclose(metrics.top1, 100 * expected["top1_per_class_mean"], **TOLERANCE)
        np.testing.assert_allclose(metrics.top1_images, 100 * expected["top1_micro"], **TOLERANCE)
    # Classes have 4, 1 and 2 images: of three places, at most 3, 1 and 2 are right.
    np.testing.assert_allclose(metrics.average_precision_limit, 100 * (3 + 1 + 2) / 9)
    assert (metrics.classes, metrics.images, metrics.texts, metrics.top) == (3, 7, 5, 3)
    np.testing.assert_allclose(metrics.chance, 100 / 3)


def test_texts_may_come_in_any_order() -> None:
    images, image_classes, texts, text_classes = drawn()
    order = np.argsort(text_classes, kind="stable")
    assert (np.diff(order) < 0).any()
    for similarity in (Dot(), SlowDot(), OrderViolation()):
        np.testing.assert_allclose(
            class_scores(images, texts, text_classes, similarity),
            class_scores(images, texts[order], text_classes[order], similarity),
            rtol=1e-5,
            atol=1e-5,
        )


def test_a_mean_of_unit_vectors_is_not_made_a_unit_vector() -> None:
    # The two texts of class 0 lie 0.6 and 0.8 from the image, and their mean is shorter than 1.
    texts = np.array([[0.6, 0.8], [0.8, -0.6], [0.71, 0.70]], np.float32)
    scores = class_scores(np.array([[1.0, 0.0]], np.float32), texts, np.array([0, 0, 1]), Cosine())
    np.testing.assert_allclose(scores, [[0.7, 0.71]], rtol=1e-6)


@pytest.mark.parametrize("block", [1, 3, 1 << 20])
def test_scores_are_means_over_texts_in_blocks_of_any_size(monkeypatch, block) -> None:
    images, _, texts, text_classes = drawn()
    images, texts = np.abs(images), np.abs(texts)
    each = -np.square(np.maximum(texts[None] - images[:, None], 0)).sum(axis=-1)  # (images, texts)
    wanted = np.stack([each[:, text_classes == label].mean(axis=1) for label in range(5)], axis=1)
    monkeypatch.setattr(zero_shot, "_SCORES", block * len(texts))
    scores = class_scores(images, texts, text_classes, OrderViolation())
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, wanted, rtol=1e-5)
    # The score of the mean text is another one where scores are not linear.
    means = class_means(texts, text_classes, 5)
    of_means = -np.square(np.maximum(means[None] - images[:, None], 0)).sum(axis=-1)
    assert np.abs(scores - of_means).max() > 0.1


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_mean_embeddings_and_mean_scores_agree_where_scores_are_linear(monkeypatch, block) -> None:
    given = drawn()
    monkeypatch.setattr(zero_shot, "_SCORES", block * len(given[2]))
    fast, slow = (class_scores(given[0], given[2], given[3], each) for each in (Dot(), SlowDot()))
    np.testing.assert_allclose(fast, slow, rtol=1e-5, atol=1e-5)


def test_a_constant_model_recognizes_and_retrieves_nothing() -> None:
    image_classes, text_classes = np.array([0, 0, 1, 1, 2, 2]), np.arange(3)
    metrics = evaluate_zero_shot(
        np.ones((6, 2), np.float32), image_classes, np.ones((3, 2), np.float32), text_classes, Dot(),
        names="abc", top=4,
    )  # fmt: skip
    # Of each class's ranking the four images of the others come first.
    assert (metrics.top1, metrics.top1_images, metrics.average_precision) == (0, 0, 0)
    assert metrics.average_precision_limit == 50


def test_ties_count_against_the_model_and_keep_their_order_otherwise() -> None:
    scores = np.array([[2.0, 1.0], [2.0, 2.0], [0.0, 2.0], [2.0, 3.0]])
    classes = np.array([0, 0, 1, 1])
    assert recognized(scores, classes).tolist() == [True, False, True, True]
    # Class 0: images 0, 1 and 3 tie, of which 3 is wrong. Class 1: 3 is best, then 1 (wrong) and 2 tie.
    assert image_rankings(scores, classes).tolist() == [[3, 0, 1, 2], [3, 1, 2, 0]]
    assert precision_at(image_rankings(scores, classes), classes, 2) == 0.5


def test_more_places_than_images() -> None:
    images, image_classes, texts, text_classes = drawn(images=10)
    metrics = evaluate_zero_shot(images, image_classes, texts, text_classes, Dot(), names="abcde", top=50)
    # Each class has two of the ten images, and all ten are looked at.
    assert metrics.average_precision == pytest.approx(20) == metrics.average_precision_limit


def test_metrics_are_plain_values() -> None:
    given = drawn()
    written = evaluate_zero_shot(*given, Dot(), names="abcde").to_json()
    assert "curve" not in written and {type(value) for value in written.values()} == {int, float}


@pytest.mark.parametrize("side", ["images", "texts"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_broken_embeddings_are_an_error(side, value) -> None:
    images, image_classes, texts, text_classes = drawn()
    broken = images if side == "images" else texts
    broken[2, 1] = value
    with pytest.raises(DataError, match=side):
        evaluate_zero_shot(images, image_classes, texts, text_classes, Dot(), names="abcde")


@pytest.mark.parametrize(("side", "place"), [("image", 1), ("text", 3)])
def test_a_class_without_images_or_texts_is_named(side, place) -> None:
    given = list(drawn())
    keep = given[place] != 3
    given[place - 1], given[place] = given[place - 1][keep], given[place][keep]
    names = ["crow", "jay", "tern", "wren", "gull"]
    with pytest.raises(DataError, match=f"'wren'.*{side}"):
        evaluate_zero_shot(*given, Dot(), names=names)


def test_what_does_not_fit_is_refused() -> None:
    images, image_classes, texts, text_classes = drawn()
    with pytest.raises(DataError, match="0 to 3.*0 to 4"):
        evaluate_zero_shot(images, image_classes, texts, text_classes, Dot(), names="abcd")
    with pytest.raises(DataError, match="39.*40"):
        evaluate_zero_shot(images[1:], image_classes, texts, text_classes, Dot(), names="abcde")
    with pytest.raises(DataError):
        evaluate_zero_shot(images, image_classes, texts, text_classes, Dot(), names=[])
    with raises_argument("top"):
        evaluate_zero_shot(images, image_classes, texts, text_classes, Dot(), names="abcde", top=0)

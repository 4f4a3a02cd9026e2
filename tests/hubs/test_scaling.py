"""Scores corrected for hubs: in NumPy, what they repair, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.evaluation import evaluate_retrieval
from vsemb.evaluation.retrieval import rank_metrics
from vsemb.hubs import correct_hubs


def embeddings(images: int = 30, texts: int = 60, dim: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit vectors, the texts near their images, and the image of each text."""
    generator = np.random.default_rng(0)
    pictures = generator.normal(size=(images, dim)).astype(np.float32)
    own = np.arange(texts) % images
    sentences = pictures[own] + generator.normal(size=(texts, dim)).astype(np.float32)
    return *(side / np.linalg.norm(side, axis=1, keepdims=True) for side in (pictures, sentences)), own


@pytest.mark.parametrize("neighbours", [1, 3, 30])
def test_scores_in_loops(neighbours: int) -> None:
    images, texts, _ = embeddings()
    scores = images.astype(np.float64) @ texts.T.astype(np.float64)
    near_images = [np.mean(sorted(row)[-neighbours:]) for row in scores]
    near_texts = [np.mean(sorted(column)[-neighbours:]) for column in scores.T]
    expected = [[2 * scores[i, j] - near_images[i] - near_texts[j] for j in range(60)] for i in range(30)]
    first, second = correct_hubs(images, texts, neighbours)
    np.testing.assert_allclose(first @ second.T, expected, atol=2e-6)


def test_metrics_of_the_corrected_scores() -> None:
    images, texts, own = embeddings()
    metrics = evaluate_retrieval(images, texts, text_image_ids=own, csls=3, recalls=(2,), bootstrap=5)
    first, second = correct_hubs(images, texts, 3)
    scores = first @ second.T
    # The number of others that are as good, so the best rank is 0.
    of_texts = [int((scores[:, text] >= scores[own[text], text]).sum()) - 1 for text in range(60)]
    of_images = [int((scores[image] >= scores[image, own == image].max()).sum()) - 1 for image in range(30)]
    assert metrics.csls is not None and metrics.csls.csls is None
    assert metrics.csls.text_to_image == rank_metrics(np.array(of_texts), (1, 2, 5, 10))
    assert metrics.csls.image_to_text == rank_metrics(np.array(of_images), (1, 2, 5, 10))
    assert metrics.csls.intervals_95 is not None and metrics.to_json()["csls"]["recall_sum"] == metrics.csls.recall_sum
    # The scores themselves are not changed.
    plain = evaluate_retrieval(images, texts, text_image_ids=own, recalls=(2,), bootstrap=5)
    assert plain.csls is None and plain.text_to_image == metrics.text_to_image


def test_a_hub_stops_being_first() -> None:
    # Text 3 is nearest to every image; each image's own text is second.
    images = np.eye(3, 4, dtype=np.float32) + np.array([0, 0, 0, 1], np.float32)
    texts = np.concatenate([np.eye(3, 4), [[0.1, 0.1, 0.1, 1]]]).astype(np.float32)
    metrics = evaluate_retrieval(images, texts, text_image_ids=[0, 1, 2, 0], similarity="dot", csls=2)
    assert metrics.csls is not None
    assert metrics.image_to_text["R@1"] < 50 < metrics.csls.image_to_text["R@1"] == 100


@pytest.mark.parametrize("csls", [0, 31, 1.5, True])
def test_a_number_out_of_range(csls) -> None:
    images, texts, own = embeddings()
    with raises_argument("csls"):
        evaluate_retrieval(images, texts, text_image_ids=own, csls=csls)


def test_an_order_has_no_inner_products() -> None:
    images, texts, own = embeddings()
    with raises_argument("csls"):
        evaluate_retrieval(np.abs(images), np.abs(texts), text_image_ids=own, similarity="order", csls=3)

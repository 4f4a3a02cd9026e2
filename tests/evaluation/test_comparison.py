"""The paired bootstrap: by hand, against naive resampling, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.evaluation import compare_ranks

# Image 0 has two texts, image 1 one. The second model answers what the first does not: one image and one text.
ROWS = np.array([0, 0, 1])
FIRST = np.array([0, 9]), np.array([0, 5, 0])
SECOND = np.array([0, 0]), np.array([0, 0, 0])


def test_values_by_hand() -> None:
    differences = compare_ranks(first=FIRST, second=SECOND, text_rows=ROWS, bootstrap=400)
    by_hand = {
        "image_to_text R@1": 50,
        "image_to_text R@5": 50,
        "image_to_text R@10": 100,
        "text_to_image R@1": 200 / 3,
        "text_to_image R@5": 200 / 3,
        "text_to_image R@10": 100,
        "recall_sum": 50 + 50 + 100 + 200 / 3 + 200 / 3 + 100,
    }
    assert {name: each.first for name, each in differences.items()} == pytest.approx(by_hand)
    assert [each.second for each in differences.values()] == [100] * 6 + [600]
    # Samples are images 0 and 0, gain 0 of images and 50 of texts; 0 and 1, 50 and 33.3; 1 and 1, 100 and 0.
    assert differences["image_to_text R@1"].interval_95 == (0, 100)
    assert differences["text_to_image R@1"].interval_95 == (0, 50)
    assert differences["image_to_text R@1"].not_better == pytest.approx(1 / 4, abs=0.07)
    assert (
        differences["recall_sum"].interval_95 == pytest.approx((100, 200)) and differences["recall_sum"].not_better == 0
    )
    assert differences["image_to_text R@10"].not_better == 1
    assert json.loads(json.dumps(differences["image_to_text R@10"].to_json()))["interval_95"] == [0, 0]


def test_samples_are_images_with_all_their_texts_for_both_models() -> None:
    generator = np.random.default_rng(3)
    rows = np.sort(np.append(np.arange(7), generator.integers(7, size=9)))
    models = [(generator.integers(12, size=7), generator.integers(12, size=16)) for _ in range(2)]
    differences = compare_ranks(*models, rows, bootstrap=50, seed=5)
    draw, sums = np.random.default_rng(5), []
    for _ in range(50):
        drawn = draw.integers(7, size=7)
        totals = [
            sum(
                100 * np.mean(np.concatenate([ranks[own == image] for image in drawn]) < k)
                for ranks, own in zip(model, (np.arange(7), rows), strict=True)
                for k in (1, 5, 10)
            )
            for model in models
        ]
        sums.append(totals[1] - totals[0])
    assert differences["recall_sum"].interval_95 == pytest.approx(np.percentile(sums, [2.5, 97.5]))
    assert differences["recall_sum"].not_better == np.mean(np.array(sums) <= 0)
    assert compare_ranks(*models, rows, bootstrap=50, seed=5) == differences
    assert compare_ranks(*models, rows, bootstrap=50, seed=6) != differences
    same = compare_ranks(models[0], models[0], rows, bootstrap=5)
    assert {(each.difference, each.interval_95, each.not_better) for each in same.values()} == {(0, (0, 0), 1)}


def test_other_queries_and_no_samples_are_refused() -> None:
    with pytest.raises(DataError, match="2.*2.*3.*2"):
        compare_ranks(FIRST, (SECOND[0], SECOND[1][:2]), ROWS)
    with raises_argument("bootstrap"):
        compare_ranks(FIRST, SECOND, ROWS, bootstrap=0)

"""The structured loss through a dual encoder: by hand, in blocks, in chunks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.losses.slow import structured_rows
from tests.models import test_gradient_caching, test_in_batch
from tests.models.test_dual_encoder import loss_of, make_batch, make_model
from tests.raising import raises_argument
from vsemb.systems.zero_shot.structured_loss import StructuredJointEmbedding


@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.5, 2.0)])
def test_structured_loss_over_the_classes_of_a_batch(weights: tuple[float, float]) -> None:
    image_weight, text_weight = weights
    model = make_model(StructuredJointEmbedding(), similarity="dot", image_weight=image_weight, text_weight=text_weight)
    batch = make_batch([3, 1, 4, 7, 5])
    classes = np.array([20, 21, 20, 22, 23], np.int64)
    batch["class_id"] = classes
    images, texts = model.image_encoder(batch["image"]), model.text_encoder(batch["text"])
    scores = np.asarray(images, np.float64) @ np.asarray(texts, np.float64).T
    own = np.arange(5)
    from_images = structured_rows(scores, classes, classes, own, "hardest").mean()
    from_texts = structured_rows(scores.T, classes, classes, own, "hardest").mean()
    expected = image_weight * from_images + text_weight * from_texts
    np.testing.assert_allclose(loss_of(model, batch), expected, rtol=1e-5)


def test_sampled_negatives_are_refused() -> None:
    batch = make_batch([3, 1, 4])
    negatives = {"negative_text": batch["text"], "negative_text_id": batch["image_id"] + 9}
    with raises_argument("x"):
        loss_of(make_model(StructuredJointEmbedding()), {**batch, **negatives})


@pytest.mark.parametrize("negatives", ["hardest", "all"])
def test_blocks_equal_all_scores_at_once(negatives: str) -> None:
    test_in_batch.check_blocks((lambda: StructuredJointEmbedding(0.7, negatives), "dot", "classes"))


@pytest.mark.parametrize(("negatives", "options"), [("hardest", {"similarity": "dot"}), ("all", {"image_weight": 0.5})])
def test_chunks_give_the_gradients_of_the_whole_batch(negatives: str, options: dict) -> None:
    def loss() -> StructuredJointEmbedding:
        return StructuredJointEmbedding(0.5, negatives)

    test_gradient_caching.check_chunks((loss, "classes", options))

"""Odd but legal inputs give finite numbers or an error that names them; none is silent and none a traceback."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import vsemb
from tests.api.conftest import pictures  # noqa: F401
from tests.models.test_dual_encoder import make_batch, make_model
from vsemb import Run
from vsemb.data.features.compute import write_precomputed
from vsemb.errors import DataError, VsembError
from vsemb.evaluation import retrieval_ranks
from vsemb.evaluation.binary import average_precision
from vsemb.losses import CombinedLoss, InfoNCE, PairwiseRanking, SigmoidLoss
from vsemb.searching.index import SearchIndex
from vsemb.systems.zero_shot.structured_loss import StructuredJointEmbedding
from vsemb.text import Vocabulary
from vsemb.text.tokenizers import Characters, Words

ENDS = np.iinfo(np.int64).min, np.iinfo(np.int64).max
ONE_CAPTION = make_batch(range(4)) | {"text": np.full((4, 3), 5, np.int32)}
BATCHES = {
    "batch of one": make_batch([0]),
    "one image": make_batch([3, 3, 3, 3]),
    "one class": make_batch(range(4)) | {"class_id": np.full(4, ENDS[1])},
    "ids at the ends of int64": make_batch([ENDS[0], ENDS[1], -1, 0]),
    "zero images": make_batch(range(4)) | {"image": np.zeros((4, 6), np.float32)},
    "identical captions": ONE_CAPTION,
    "captions of unknown words": ONE_CAPTION | {"text": np.ones((4, 3), np.int32)},
    "captions without words": ONE_CAPTION | {"text": np.zeros((4, 3), np.int32)},
    "identical pairs": {name: np.repeat(rows[:1], 4, axis=0) for name, rows in ONE_CAPTION.items()},
}
LOSSES = {
    "ranking": PairwiseRanking(0.2),
    "hardest": PairwiseRanking(0.2, negatives="hardest"),
    "infonce": InfoNCE(),
    "sigmoid": SigmoidLoss(),
    "classes": StructuredJointEmbedding(),
    "both": CombinedLoss([PairwiseRanking(0.2), InfoNCE()], [1.0, 1.0]),
}


@pytest.mark.parametrize("similarity", ["cosine", "dot", "order"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("batch", BATCHES)
def test_losses_and_gradients_are_finite(batch: str, loss: str, similarity: str) -> None:
    model = make_model(LOSSES[loss], similarity=similarity)
    tensors = {name: tf.constant(rows) for name, rows in BATCHES[batch].items()}
    with tf.GradientTape() as tape:
        value = model.compute_loss(x=tensors, y_pred=model(tensors))
    assert np.isfinite(float(value))
    for gradient in tape.gradient(value, model.trainable_variables):
        assert np.isfinite(tf.convert_to_tensor(gradient)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["features", "index", "query", "ranks", "pairs"])
def test_values_that_are_not_finite_are_refused(kind: str, value: float, scenes_copy) -> None:
    rows = np.random.default_rng(0).normal(size=(len(scenes_copy.ids), 4)).astype(np.float32)
    good = rows.copy()
    rows[3, 1] = value
    calls: dict[str, Any] = {
        "features": lambda: write_precomputed(scenes_copy, scenes_copy.ids, rows),
        "index": lambda: SearchIndex.from_arrays(rows),
        "query": lambda: SearchIndex.from_arrays(good).search(rows[3:4], k=1),
        "ranks": lambda: retrieval_ranks(rows, good),
        "pairs": lambda: average_precision(rows[:, 1], np.arange(len(rows)) % 2),
    }
    with pytest.raises(VsembError, match="finite|NaN"):
        calls[kind]()


@pytest.mark.parametrize("similarity", ["cosine", "dot", "order"])
def test_ranks_of_odd_embeddings(similarity: str) -> None:
    rows = np.random.default_rng(0).random((5, 3), np.float32)
    one = retrieval_ranks(rows[:1], rows[:1], similarity=similarity)
    assert [each.tolist() for each in one] == [[0], [0]]
    # Equal scores count against the model.
    for images in (np.zeros_like(rows), np.repeat(rows[:1], 5, axis=0)):
        of_images, of_texts = retrieval_ranks(images, images, similarity=similarity)
        assert of_images.tolist() == of_texts.tolist() == [4] * 5
    ids = np.array([ENDS[0], -1, 0, 1, ENDS[1]])
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    expected = retrieval_ranks(unit, unit, similarity=similarity)
    np.testing.assert_array_equal(retrieval_ranks(unit, unit[::-1], ids, ids[::-1], similarity)[0], expected[0])


@pytest.mark.parametrize("zero", [[0], [0, 1, 2]])
def test_an_index_of_zero_vectors(zero: list[int]) -> None:
    rows = np.eye(3, dtype=np.float32)
    rows[zero] = 0
    places, scores = SearchIndex.from_arrays(rows).search(np.ones((1, 3), np.float32), k=3)
    assert sorted(places[0]) == [0, 1, 2] and np.isfinite(scores).all()


@pytest.mark.parametrize("part", [Words(min_count=1), Characters()], ids=["words", "characters"])
def test_tokenizers_of_odd_captions(part) -> None:
    captions = ["a dog", "a dog", "dog " * 10_000, "ωψ ωψ", "", " \t"]
    tokenizer = part.build(part.learn([captions]) if isinstance(part, Words) else Vocabulary([]))
    ids = np.asarray(tokenizer(captions))
    assert ids.dtype == np.int32 and len(ids) == 6 and not ids[4:].any()
    np.testing.assert_array_equal(ids[0], ids[1])


LONG, UNKNOWN = "red " * 10_000, "ωψ ωψ"


@pytest.mark.parametrize("text", [LONG, UNKNOWN, "", "\0", "x" * 100_000])
def test_a_model_of_odd_captions(text: str, tiny_run: Run) -> None:
    model = vsemb.load(tiny_run)
    known = text == LONG
    rows = model.encode_texts([text, "a red circle"], on_bad="nan")
    assert np.isfinite(rows[0]).all() == known and np.isfinite(rows[1]).all()
    if not known:
        with pytest.raises(DataError, match=re.escape(repr(text)[:40])):
            model.encode_texts(["a red circle", text])


@pytest.mark.parametrize(
    ("captions", "told"),
    [
        (["a dog"], "must have the split train"),
        (["a dog", "one cat"], "No word occurs 4 times"),
        ([""] * 4, "no caption"),
        (["\0"] * 4, "letters or digits"),
    ],
)
def test_training_data_of_odd_captions(captions: list[str], told: str, pictures, tmp_path: Path) -> None:  # noqa: F811
    with pytest.raises(VsembError, match=told):
        data = vsemb.Dataset.from_pairs(pictures[: len(captions)], captions)
        vsemb.train("vsepp", data, tmp_path / "run", backbone="SmallConvNet", weights="random", epochs=1)

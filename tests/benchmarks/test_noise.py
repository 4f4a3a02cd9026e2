"""Batches are made of what stands in for a split."""

from __future__ import annotations

import numpy as np

from tests.benchmarks.noise import noise_split
from tests.benchmarks.pipeline import feature_images
from vsemb.data.batches import PairBatches
from vsemb.text.tokenizers import WordTokenizer
from vsemb.text.vocabulary import Vocabulary


def test_batches_of_noise() -> None:
    texts = ["a dog", "a cat"] * 6
    images = feature_images(np.zeros((4, 3), np.float32), 1 << 20)
    split = noise_split(4, texts)
    batches = PairBatches(split, images, WordTokenizer(Vocabulary.from_captions(texts)), batch_size=4)
    (batch, *_) = batches.epoch(0, 0)
    assert batch["text"].shape == (4, 2) and set(batch["image_id"]) <= set(range(4))
    assert split.rows_of(np.array([0, 2, 3, 11])).tolist() == [0, 0, 1, 3]

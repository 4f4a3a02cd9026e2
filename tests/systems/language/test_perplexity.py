"""Perplexity of a language model: pooling over batches."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from vsemb.errors import DataError
from vsemb.systems.captions.perplexity import LikelihoodMeasure
from vsemb.systems.captions.sentences import Sentences, sentence_batches
from vsemb.systems.language.log_bilinear import LogBilinear


def test_all_sentences_are_pooled() -> None:
    keras.utils.set_random_seed(0)
    model = LogBilinear(9, dim=4, context=2, init_scale=1.0)
    model.build()
    generator = np.random.default_rng(0)
    lengths = generator.integers(0, 7, 11)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    sentences = Sentences(generator.integers(1, 9, offsets[-1]).astype(np.int32), offsets)
    one_by_one = [sentences.batch(np.array([row])) for row in range(11)]
    # The sentence without words is padded with a step: its end alone is a target.
    total = sum(float(np.sum(model.log_likelihoods(batch))) for batch in one_by_one)
    measure = LikelihoodMeasure(model)
    for size in (3, 11, 256):
        found = measure(sentence_batches(sentences, batch_size=size))
        assert found.count == sentences.targets == offsets[-1] + 11
        assert found.total == pytest.approx(total, rel=1e-5)
    # Weights that change later are seen.
    model.bias.assign(np.arange(9))
    assert measure(sentence_batches(sentences)).total != pytest.approx(total, rel=1e-3)
    assert measure(one_by_one).total == pytest.approx(measure(sentence_batches(sentences)).total, rel=1e-5)
    model.bias.assign(np.full(9, np.nan))
    with pytest.raises(DataError, match="broken"):
        measure(sentence_batches(sentences))

"""Perplexity of language models: pooling over batches, runs side by side, and what must not be compared."""

from __future__ import annotations

import dataclasses
import json
import math

import keras
import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.systems.captions.sentences import Sentences, sentence_batches
from vsemb.systems.captions.validation import LikelihoodMeasure, PerplexityRow, difference_of, measure_perplexities
from vsemb.systems.language.log_bilinear import LogBilinear


def test_all_sentences_are_pooled() -> None:
    keras.utils.set_random_seed(0)
    model = LogBilinear(9, dim=4, context=2, init_scale=1.0)
    model.build()
    generator = np.random.default_rng(0)
    lengths = generator.integers(0, 7, 11)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    sentences = Sentences(generator.integers(1, 9, offsets[-1]).astype(np.int32), offsets)
    one_by_one = sentence_batches(sentences, batch_size=1)
    # The sentence without words is padded with a step: its end alone is a target.
    total = sum(float(np.sum(model.log_likelihoods(batch))) for batch in one_by_one)
    measure = LikelihoodMeasure(model)
    for size in (3, 11, 256):
        likelihood = measure(sentence_batches(sentences, batch_size=size))
        assert likelihood.count == offsets[-1] + 11
        assert likelihood.total == pytest.approx(total, rel=1e-5)
    # Weights that change later are seen.
    model.output_bias.assign(np.arange(9))
    assert measure(sentence_batches(sentences)).total != pytest.approx(total, rel=1e-3)
    assert measure(one_by_one).total == pytest.approx(measure(sentence_batches(sentences)).total, rel=1e-5)
    model.output_bias.assign(np.full(9, np.nan))
    with pytest.raises(DataError, match="broken"):
        measure(sentence_batches(sentences))


@pytest.fixture(scope="module")
def rows(language_run, caption_run, tagged_scenes) -> list[PerplexityRow]:
    return measure_perplexities([language_run, caption_run], tagged_scenes, "val")


def test_runs_and_baselines(rows, language_run, caption_run, tagged_scenes) -> None:
    assert [row.name for row in rows] == [str(language_run.path), str(caption_run.path), "uniform", "unigram"]
    assert [row.decoder for row in rows] == ["sc-nlm", caption_run.recipe.decoder.cell, "", ""]
    language, captions, uniform, unigram = rows
    # What each was selected by.
    assert language.bits == pytest.approx(-language_run.info["best_log2_likelihood"], rel=1e-4)
    assert captions.bits == pytest.approx(-caption_run.info["best_log2_likelihood"], rel=1e-4)
    assert uniform.perplexity == pytest.approx(len(language_run.vocabulary))
    assert language.perplexity < unigram.perplexity < uniform.perplexity
    for row in rows:
        assert row.perplexity == pytest.approx(2**row.bits) and 0 <= row.unknown < 0.5
        assert row.vocabulary_size == len(language_run.vocabulary)
    split = tagged_scenes.split("val")
    ids, _ = language_run.tokenizer.encode(split.captions)
    assert language.words == len(ids) + len(split.captions)
    assert language.unknown == pytest.approx(np.mean(ids == 1))
    assert json.loads(json.dumps(language.to_json()))["decoder"] == "sc-nlm"
    assert dataclasses.replace(language, perplexity=math.inf).to_json()["perplexity"] is None


def test_what_must_not_be_compared(rows) -> None:
    language, captions, *baselines = rows
    assert difference_of([language, *baselines]) is None
    # The network reads 20 words of a caption, the language model 40.
    assert captions.words < language.words and "text.tokenizer.max_length" in difference_of(rows)
    other = dataclasses.replace(language, vocabulary="other", vocabulary_size=5)
    assert "another vocabulary" in difference_of([language, other])


def test_refusals(language_run, tagged_scenes, scenes) -> None:
    with pytest.raises(DataError, match="run"):
        measure_perplexities([], tagged_scenes)
    with raises_argument("split"):
        measure_perplexities([language_run], tagged_scenes, "vall")
    with pytest.raises(DataError, match="pos-tags"):
        measure_perplexities([language_run], scenes)

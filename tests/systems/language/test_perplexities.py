"""Perplexities of runs side by side, and what must not be compared."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from vsemb.errors import DataError, InvalidArgumentError
from vsemb.systems.captions.perplexities import PerplexityRow, difference_of, measure_perplexities


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
    with pytest.raises(DataError, match="no run"):
        measure_perplexities([], tagged_scenes)
    with pytest.raises(InvalidArgumentError, match="split"):
        measure_perplexities([language_run], tagged_scenes, "vall")
    with pytest.raises(DataError, match="vsemb annotate"):
        measure_perplexities([language_run], scenes)

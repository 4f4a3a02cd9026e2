"""A run whose words are composed of n-grams: trained, measured, searched, exported, in the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb.encoders import NGramEmbedding
from vsemb.evaluation import Embedder
from vsemb.recipes.retrieval import RetrievalJob
from vsemb.report.space import Space
from vsemb.runs.measure import evaluate_run
from vsemb.runs.run import Run
from vsemb.runs.searching import embed_text
from vsemb.runs.serve import export_run
from vsemb.text.ngrams import MOST, NGramTokenizer

# Words of the scenes that occur seldom are composed. The word dropout trains n-grams without the words.
CHANGES = ("text.tokenizer=ngrams", "text.tokenizer.min_count=12", "text.tokenizer.buckets=500")


@pytest.fixture(scope="module")
def ngram_run(scenes: Any, tiny_recipe: Any, trained: Any) -> Run:
    """A run of two epochs with a bag of words; treat it as read-only."""
    bag = ("text.encoder=sequence-and-bag", "text.encoder.sequence.units=16", "text.encoder.sequence.words.dim=16")
    return trained("ngrams", tiny_recipe.with_overrides([*CHANGES, *bag]), scenes)


def test_reopened_and_measured(ngram_run: Run, scenes: Any) -> None:
    run = Run.open(ngram_run.path)
    assert isinstance(run.tokenizer, NGramTokenizer) and isinstance(run.model.text_encoder.words, NGramEmbedding)
    assert isinstance(run.model.text_encoder.bag.words, NGramEmbedding)
    for words in (run.model.text_encoder.words, run.model.text_encoder.bag.words):
        assert words.gram_table.numpy().any()  # Trained.
    metrics = evaluate_run(run, scenes, "val")
    np.testing.assert_allclose(metrics.recall_sum, run.info["best_recall_sum"], atol=1e-4)


def test_training_evaluation_and_report_tell_composed_words_from_unknown_ones(ngram_run: Run, scenes: Any) -> None:
    told = ngram_run.info["training_texts"]
    assert told["composed_tokens"] > 0 and told["words_known"] < told["words_seen"]
    metrics = evaluate_run(ngram_run, scenes, "val")
    unknown = metrics.unknown
    assert unknown is not None and unknown.composed_tokens > 0
    (note,) = metrics.notes
    assert all(phrase in note for phrase in ("known as a whole", "composed", "nothing known of"))
    space = Space(ngram_run, scenes, "val")
    rare = [row for row, share in enumerate(space.coverage.share) if share == 1 and space.unknown_in([row]) == [[]]]
    composed = space.coverage.whole < space.coverage.known
    # Texts with composed words are texts of known words, and are not marked.
    assert composed[rare].any()
    assert space.knows("circles") and not space.knows("xyzzy")


def test_a_word_never_seen_is_searched_without_a_warning(ngram_run: Run) -> None:
    said: list[str] = []
    word = max(ngram_run.vocabulary.words, key=len)
    assert np.isfinite(embed_text(ngram_run, f"{word}{word}", "text", said.append)).all()
    assert not said
    embed_text(ngram_run, f"{word} 犬", "text", said.append)
    assert said == ["Warning: not known to the run: 犬."]
    with raises_argument("text"):
        embed_text(ngram_run, "犬", "text", said.append)


@pytest.mark.slow
def test_served_as_trained(ngram_run: Run, scenes: Any, tmp_path: Path) -> None:
    captions = [*scenes.split("val").captions[:20], "REDDISH circlets?", "犬", ""]
    ids, offsets = ngram_run.encode(captions)
    expected = Embedder(ngram_run.model).texts(ids, offsets)
    path = export_run(ngram_run, tmp_path / "model")
    found = tf.saved_model.load(str(path)).signatures["encode_text"](text=tf.constant(captions))
    valid = found["valid"].numpy()
    assert valid[:21].all() and not valid[21:].any()
    np.testing.assert_allclose(found["embedding"].numpy()[valid], expected[valid], atol=1e-5)


def test_vectors_of_captions_reach_n_grams(scenes: Any, tiny_recipe: Any) -> None:
    recipe = tiny_recipe.with_overrides([*CHANGES, "text.encoder.words.vectors=captions"])
    job = RetrievalJob(recipe, scenes)
    words = job.model(recipe, "float32").text_encoder.words
    grams = job.tokenizer.grams_of_words()
    assert words.gram_table.numpy()[np.unique(grams[grams > 0])].any(axis=1).all()
    ids, _ = job.tokenizer.encode(list(scenes.split("train").captions[:4]))
    assert ids.shape[1:] == (1 + MOST,) and np.isfinite(words(ids).numpy()).all()


def test_encoders_without_n_grams_refuse_them(tiny_recipe: Any) -> None:
    with raises_argument("text.encoder"):
        tiny_recipe.with_overrides([*CHANGES, "text.encoder=binary-bag-of-words"])

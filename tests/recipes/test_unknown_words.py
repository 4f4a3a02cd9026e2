"""Words of the training texts that are not in the vocabulary, as training reports them for every task."""

from __future__ import annotations

import pytest

from vsemb.text.spaces import SUBWORDS


def reported(recipe, data, out):
    job = recipe.prepare(data, out, {})
    return job.info, job.unknown_words(job.batches())


def test_training_says_which_words_are_lost(tiny_recipe, scenes, tmp_path):
    info, lines = reported(tiny_recipe.with_overrides(["text.tokenizer.min_count=40"]), scenes, tmp_path)
    counts = info["training_texts"]
    tokens = [word for caption in scenes.split("train").captions for word in caption.lower().split()]
    kept = {word for word in tokens if tokens.count(word) >= 40}
    assert (counts["words_known"], counts["words_seen"]) == (len(kept), len({*tokens}))
    assert counts["unknown_tokens"] == sum(word not in kept for word in tokens)
    assert counts["tokens"] == len(tokens) and counts["texts"] == 240
    text = " ".join(lines)
    assert str(len(kept)) in text and str(len({*tokens})) in text
    assert "text.tokenizer.min_count=1" in text and SUBWORDS in text


@pytest.mark.parametrize("change", ["text.tokenizer.min_count=1", SUBWORDS])
def test_nothing_is_said_where_all_words_are_known(tiny_recipe, scenes, tmp_path, change):
    info, lines = reported(tiny_recipe.with_overrides([change]), scenes, tmp_path)
    assert lines == [] and info["training_texts"]["unknown_tokens"] == 0


def test_a_task_of_words_alone_is_not_told_to_use_subwords(caption_recipe, scenes, tmp_path):
    _, lines = reported(caption_recipe.with_overrides(["text.tokenizer.min_count=40"]), scenes, tmp_path)
    assert "text.tokenizer.min_count=1" in " ".join(lines) and SUBWORDS not in " ".join(lines)


def test_sentence_pairs_are_counted(snli_path, tmp_path):
    from vsemb import recipes

    recipe = recipes.get("entailment").with_overrides(["text.tokenizer.min_count=30"])
    info, lines = reported(recipe, recipe.open_data(snli_path), tmp_path)
    assert info["training_texts"]["texts"] == 2 * info["pairs"]["train"] and len(lines) == 2


def test_trees_are_counted(tree_recipe, parsed_scenes, tmp_path):
    recipe = tree_recipe.with_overrides(["text.tokenizer.min_count=40"])
    info, lines = reported(recipe, parsed_scenes, tmp_path)
    counts = info["training_texts"]
    assert counts["words_seen"] > counts["words_known"] > 0 and 0 < counts["unknown_share"] < 1
    assert "text.tokenizer.min_count=1" in lines[-1] and SUBWORDS not in lines[-1]

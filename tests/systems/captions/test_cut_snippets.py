"""Cutting captions into snippets: against one caption at a time in NumPy, and what no caption may break."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.systems.captions import snippets as module
from vsemb.systems.captions.snippets import (
    find_snippets,
    snippets_fingerprint,
    stored_snippets,
)
from vsemb.systems.regions.image_tower import regions_of
from vsemb.text.normalize import split_words


@pytest.fixture(scope="module")
def unaries(region_run, region_scenes) -> list[np.ndarray]:
    """For each caption of val the scores of its words with the regions of its image, (words, regions), by itself."""
    run, part, store = region_run, region_scenes.split("val"), regions_of(region_run, region_scenes)

    @tf.function(reduce_retracing=True, autograph=False)
    def scores(features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return run.model.similarity.word_region_scores(run.model.encode_images(features), run.model.encode_texts(ids))

    return [
        scores(tf.constant(store.rows(part.ids[[row]])), run.tokenizer([caption])).numpy()[0]
        for row, caption in zip(part.caption_rows, part.captions, strict=True)
    ]


def slow_best(unaries: np.ndarray, affinity: float) -> float:
    """The energy of the best chain, each step over all pairs of regions."""
    sums = unaries[0].astype(np.float64)
    for word in unaries[1:]:
        sums = (sums[:, None] + affinity * np.eye(len(sums))).max(axis=0) + word
    return float(sums.max())


def words_of(text: str) -> list[str]:
    return [word.decode() for word in split_words([text]).to_list()[0]]


@pytest.mark.slow
def test_captions_are_cut_as_one_at_a_time(region_run, region_scenes, unaries, monkeypatch):
    """Snippets in a row make the caption, and their regions its best chain; regions that look alike tie."""
    # Blocks that end within an image's captions, and batches within a block.
    monkeypatch.setattr(module, "_BLOCK", 13)
    monkeypatch.setattr(module, "_BATCH", 4)
    part = region_scenes.split("val")
    cut = find_snippets(region_run, region_scenes, part)
    affinity = cut.affinity
    assert affinity > 0
    at = 0
    for caption, text in enumerate(part.captions):
        words, row = words_of(text), int(part.caption_rows[caption])
        boxes = regions_of(region_run, region_scenes).boxes(part.ids[[row]])[0]
        path: list[int] = []
        while len(path) < len(words):
            snippet = cut.texts[at].split()
            assert snippet == words[len(path) : len(path) + len(snippet)]
            assert (cut.image_rows[at], cut.image_ids[at]) == (row, part.ids[row])
            # No padding, and another region than the snippet before.
            assert boxes[cut.regions[at]].any() and path[-1:] != [cut.regions[at]]
            path += [int(cut.regions[at])] * len(snippet)
            at += 1
        own = unaries[caption][:, np.any(boxes != 0, axis=1)]
        stays = sum(one == other for one, other in itertools.pairwise(path))
        energy = float(own[np.arange(len(path)), path].sum()) + affinity * stays
        # Sums of 20 float32 numbers.
        np.testing.assert_allclose(energy, slow_best(own, affinity), rtol=1e-5)
    assert at == len(cut) and cut.affinity == affinity
    assert find_snippets(region_run, region_scenes, part, affinity=affinity).texts == cut.texts


@pytest.mark.slow
def test_affinity_joins_words(region_run, region_scenes, capfd):
    part = region_scenes.split("test")
    words = [words_of(text) for text in part.captions]
    alone, chosen, whole = (
        find_snippets(region_run, region_scenes, part, affinity=affinity) for affinity in (0.0, None, 1e30)
    )
    assert len(alone) > len(chosen) > len(whole)
    # One region a caption, with all of its words; no word is lost at any affinity.
    assert [text.split() for text in whole.texts] == words
    assert whole.image_rows.tolist() == part.caption_rows.tolist()
    for snippets in (alone, chosen):
        assert " ".join(snippets.texts) == " ".join(" ".join(each) for each in words)
    # Chosen on the validation split, whatever is cut.
    assert chosen.affinity == find_snippets(region_run, region_scenes, region_scenes.split("val")).affinity
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("snippets     ")]
    assert len(said) == 4 and f"{len(chosen)} of {chosen.mean_words:.1f} words" in said[1]


def test_the_affinity_chosen_is_the_spread_of_the_scores(region_run, region_scenes, unaries):
    part = region_scenes.split("val")
    squares, count = 0.0, 0
    for caption in range(len(part.captions)):
        real = np.any(regions_of(region_run, region_scenes).boxes(part.ids[[part.caption_rows[caption]]])[0], 1)
        scores = unaries[caption][:, real].astype(np.float64)
        squares += ((scores - scores.mean(axis=1, keepdims=True)) ** 2).sum()
        count += scores.size
    assert find_snippets(region_run, region_scenes, part).affinity == float(f"{np.sqrt(squares / count):.2g}")


def test_words_that_are_not_known_and_long_captions(region_run, region_scenes):
    """Unknown words stay words, 's stays with its word, and what is not read is left out."""
    part = region_scenes.split("val")
    captions = [["A man's dog-house, zyzzyva"] for _ in range(len(part))]
    captions[0] = [" ".join(["red"] * 60)]
    captions[1] = ["..."]
    other = part.with_captions(captions)
    snippets = find_snippets(region_run, region_scenes, other, affinity=1e30)
    assert snippets.texts[0] == " ".join(["red"] * region_run.tokenizer.max_length)
    # A caption without a word has no snippet.
    assert snippets.image_rows.tolist() == [0, *range(2, len(part))]
    assert set(snippets.texts[1:]) == {"a man's dog house zyzzyva"}
    assert words_of(snippets.texts[1]) == ["a", "man", "'s", "dog", "house", "zyzzyva"]
    for snippets in (find_snippets(region_run, region_scenes, other, affinity=value) for value in (0.0, 0.1)):
        assert all(words_of(text) == text.replace("'s", " 's").split() for text in snippets.texts)
        # Cut between man and 's, the end is left out.
        assert all(text and not text.startswith("'") for text in snippets.texts)


def test_stored_snippets_are_cut_once(region_run, region_scenes, tmp_path, monkeypatch):
    folder = tmp_path / "run" / "snippets"
    first = stored_snippets(folder, region_run, region_scenes, region_scenes.split("val"), affinity=0.0)
    # Nothing is written before there is a run to write it into.
    assert not folder.parent.exists()
    first.save(folder)
    with monkeypatch.context() as patch:
        patch.setattr(module, "find_snippets", None)
        again = stored_snippets(folder, region_run, region_scenes, region_scenes.split("val"), affinity=0.0)
    assert again.texts == first.texts and again.fingerprint == first.fingerprint
    for name in ("image_rows", "image_ids", "regions"):
        assert getattr(again, name).tolist() == getattr(first, name).tolist()
    # What was cut with something else does not count.
    other = stored_snippets(folder, region_run, region_scenes, region_scenes.split("val"), affinity=1e30)
    assert len(other) < len(first)
    part = region_scenes.split("val")
    few = part.with_captions([own[:1] for own in part.caption_lists()])
    prints = {snippets_fingerprint(region_run, region_scenes, *each) for each in ((part, 0.0), (few, 0.0))}
    assert len(prints) == 2 and first.fingerprint in prints


def test_mistakes(region_run, region_scenes, tiny_run, scenes):
    for affinity in (-1.0, float("nan"), float("inf")):
        with raises_argument("affinity"):
            find_snippets(region_run, region_scenes, region_scenes.split("val"), affinity=affinity)
    with pytest.raises(DataError, match="region"):
        find_snippets(tiny_run, region_scenes, region_scenes.split("val"), affinity=0.0)
    with pytest.raises(DataError, match="vsemb regions"):
        find_snippets(region_run, scenes, scenes.split("val"), affinity=0.0)
    recipe = region_run.recipe
    letters = dataclasses.replace(region_run, recipe=recipe.with_overrides(["text.tokenizer=characters"]))
    with raises_argument("alignment"):
        find_snippets(letters, region_scenes, region_scenes.split("val"), affinity=0.0)


def test_broken_scores_are_refused(region_run, region_scenes):
    broken = dataclasses.replace(region_run)  # With a model of its own.
    broken.model.set_weights([np.full_like(value, np.nan) for value in broken.model.get_weights()])
    for affinity in (0.5, None):
        with pytest.raises(DataError, match="NaN"):
            find_snippets(broken, region_scenes, region_scenes.split("val"), affinity=affinity)

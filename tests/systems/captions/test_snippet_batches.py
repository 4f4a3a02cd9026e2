"""Batches of snippets."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.systems.captions.sentences import SentenceBatches
from vsemb.systems.captions.snippets import SnippetImages, Snippets, snippet_sentences
from vsemb.systems.regions.region_store import RegionStore
from vsemb.text import Vocabulary, WordTokenizer

# Each snippet's text says its number, by the words of its binary digits.
WORDS = ("zero", "one")
COUNT = 50


@pytest.fixture(scope="module")
def store(region_scenes) -> RegionStore:
    return RegionStore.find(region_scenes)


@pytest.fixture(scope="module")
def snippets(region_scenes, store) -> Snippets:
    ids = region_scenes.split("train").ids
    random = np.random.default_rng(3)
    rows, regions = random.integers(len(ids), size=COUNT), random.integers(store.count, size=COUNT)
    texts = [" ".join(WORDS[int(digit)] for digit in f"{number:b}") for number in range(COUNT)]
    return Snippets(rows, ids[rows], regions, texts, 0.5, store.fingerprint, "c0ffee")


@pytest.fixture(scope="module")
def tokenizer() -> WordTokenizer:
    return WordTokenizer(Vocabulary(WORDS), max_length=8)


def snippet_batches(snippets, store, tokenizer, size: int, seed: int = 0, memory: int = 1 << 30) -> SentenceBatches:
    sentences = snippet_sentences(snippets, SnippetImages(snippets, store, memory=memory), tokenizer)
    return SentenceBatches(sentences, batch_size=size, seed=seed, unit="snippets")


def numbers(texts: np.ndarray) -> list[int]:
    return [int("".join(str(word - 2) for word in text if word), 2) for text in texts.tolist()]


def check(batch: dict, snippets: Snippets, store: RegionStore) -> list[int]:
    """Each row's features are those of the snippet that its words name."""
    ids = numbers(batch["text"])
    rows = store.rows(snippets.image_ids[ids])[np.arange(len(ids)), snippets.regions[ids]]
    np.testing.assert_array_equal(batch["image"], rows)
    assert batch["image"].dtype == np.float32 and batch["text"].dtype == np.int32
    return ids


@pytest.mark.parametrize("memory", [1 << 30, 0], ids=["in memory", "from disk"])
def test_an_epoch_has_every_snippet_once(snippets, store, tokenizer, memory):
    batches = snippet_batches(snippets, store, tokenizer, 8, seed=1, memory=memory)
    assert batches.batch_size == 8 and batches.steps_per_epoch == COUNT // 8
    dataset = batches.dataset()
    assert int(dataset.cardinality()) == COUNT // 8
    first, second = (
        [number for batch in dataset.as_numpy_iterator() for number in check(batch, snippets, store)] for _ in range(2)
    )
    for epoch in (first, second):
        assert len(set(epoch)) == len(epoch) == COUNT // 8 * 8
    # Each time another order, and others are left out.
    assert first != second and set(first) != set(second)


def test_going_on_in_the_middle(snippets, store, tokenizer):
    def batches() -> SentenceBatches:
        return snippet_batches(snippets, store, tokenizer, 8, seed=1)

    one = batches().dataset()
    epochs = [list(one.as_numpy_iterator()) for _ in range(2)]
    rest = batches().dataset(1, 4)
    assert int(rest.cardinality()) == COUNT // 8 - 4
    for got, wanted in zip(rest.as_numpy_iterator(), epochs[1][4:], strict=True):
        for name in ("image", "text"):
            np.testing.assert_array_equal(got[name], wanted[name])
    other = snippet_batches(snippets, store, tokenizer, 8, seed=2)
    assert not np.array_equal(other.plan(0), batches().plan(0))


def test_batches_are_of_nearly_one_length(snippets, store, tokenizer):
    lengths = np.array([len(text.split()) for text in snippets.texts])
    plan = snippet_batches(snippets, store, tokenizer, 5).plan(0)
    spread = lengths[plan].max(axis=1) - lengths[plan].min(axis=1)
    assert spread.mean() < 1
    for batch, rows in zip(
        snippet_batches(snippets, store, tokenizer, 5).dataset().as_numpy_iterator(), plan, strict=True
    ):
        assert batch["text"].shape == (5, lengths[rows].max())


def test_mistakes(snippets, store, tokenizer):
    with raises_argument("batch_size"):
        snippet_batches(snippets, store, tokenizer, 0)
    assert snippet_batches(snippets, store, tokenizer, 51).batch_size == 50
    others = dataclasses.replace(snippets, store="0123")
    with pytest.raises(DataError, match=r"image\.fingerprint=0123"):
        snippet_batches(others, store, tokenizer, 8)
    none = Snippets(*[np.zeros(0, np.int64)] * 3, [], 0.5, store.fingerprint, "c0ffee")
    with pytest.raises(DataError, match="snippets; got 0"):
        snippet_batches(none, store, tokenizer, 1)

"""Batches of sentences: what is in them, in which order, and going on in the middle."""

from __future__ import annotations

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.systems.captions.sentences import SentenceBatches, Sentences, sentence_batches


def make_sentences(count: int = 23, content: bool = True, tags: bool = True) -> Sentences:
    generator = np.random.default_rng(0)
    lengths = generator.integers(0, 9, count)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = generator.integers(1, 50, offsets[-1]).astype(np.int32)
    vectors = np.arange(count, dtype=np.float32)[:, None] * [1, -1]
    return Sentences(ids, offsets, vectors.astype(np.float32) if content else None, ids % 7 + 1 if tags else None)


def test_a_batch_by_hand() -> None:
    ids, offsets = np.array([4, 5, 6, 7], np.int32), np.array([0, 3, 3, 4])
    sentences = Sentences(ids, offsets, np.eye(3, dtype=np.float32), np.array([1, 2, 3, 4], np.int32))
    batch = sentences.batch(np.array([2, 0, 1]))
    assert batch["text"].tolist() == [[7, 0, 0], [4, 5, 6], [0, 0, 0]]
    assert batch["tags"].tolist() == [[4, 0, 0], [1, 2, 3], [0, 0, 0]]
    assert batch["content"].tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    assert (len(sentences), len(sentences.ids)) == (3, 4)
    assert sentences.word_counts(9).tolist() == [3, 0, 0, 0, 1, 1, 1, 1, 0]


@pytest.mark.parametrize(("content", "tags"), [(True, True), (True, False), (False, False)])
def test_an_epoch_has_each_sentence_once(content: bool, tags: bool) -> None:
    sentences = make_sentences(24, content, tags)
    batches = SentenceBatches(sentences, batch_size=4, seed=1)
    assert batches.steps_per_epoch == 6
    assert sorted(batches.plan(0).ravel().tolist()) == list(range(24))
    read = list(batches.dataset())
    assert len(read) == 6
    for rows, batch in zip(batches.plan(0), read, strict=True):
        expected = sentences.batch(rows)
        assert set(batch) == set(expected) == {"text", *["content"] * content, *["tags"] * tags}
        for name, value in expected.items():
            np.testing.assert_array_equal(batch[name], value)
    assert not np.array_equal(batches.plan(0), batches.plan(1))
    assert not np.array_equal(batches.plan(0), SentenceBatches(sentences, batch_size=4, seed=2).plan(0))


def test_the_rest_of_an_epoch() -> None:
    batches = SentenceBatches(make_sentences(), batch_size=4, seed=3)
    whole = [batch["text"].numpy() for batch in batches.dataset(2)]
    rest = [batch["text"].numpy() for batch in batches.dataset(2, 3)]
    assert len(rest) == len(whole) - 3 == len(batches.dataset(2, 3))
    for expected, batch in zip(whole[3:], rest, strict=True):
        np.testing.assert_array_equal(batch, expected)
    # One dataset gives one epoch after the other.
    going = batches.dataset(1)
    for epoch in (1, 2):
        texts = [batch["text"].numpy() for batch in going]
        for rows, text in zip(batches.plan(epoch), texts, strict=True):
            np.testing.assert_array_equal(text, batches.sentences.batch(rows)["text"])


def test_all_are_measured() -> None:
    sentences = make_sentences()
    batches = sentence_batches(sentences, batch_size=5)
    for _ in range(2):
        items = list(batches)
        assert [len(batch["text"]) for batch in items] == [5, 5, 5, 5, 3]
        rows = np.concatenate([batch["content"][:, 0] for batch in items]).astype(int)
        assert sorted(rows.tolist()) == list(range(23))
        lengths = np.concatenate([np.count_nonzero(batch["text"], axis=1) for batch in items])
        np.testing.assert_array_equal(lengths, sentences.lengths[rows])


def test_refusals() -> None:
    sentences = make_sentences(5)
    with raises_argument("batch_size"):
        SentenceBatches(sentences, batch_size=0)
    assert SentenceBatches(sentences, batch_size=6).batch_size == 5
    with raises_argument("content"):
        Sentences(sentences.ids, sentences.offsets, np.zeros((4, 2), np.float32))
    with raises_argument("tags"):
        Sentences(sentences.ids, sentences.offsets, None, sentences.tags[1:])

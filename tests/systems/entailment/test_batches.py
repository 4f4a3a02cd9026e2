"""Batches of sentence pairs: what an epoch holds, and going on in its middle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.systems.entailment.entailment_files import rows, write_jsonl, write_snli
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.systems.entailment.batches import SentencePairBatches
from vsemb.systems.entailment.data import EntailmentData, EntailmentSplit, Sentences
from vsemb.text.tokenizers import WordTokenizer
from vsemb.text.vocabulary import Vocabulary


def make_split(count: int, seed: int = 0) -> EntailmentSplit:
    """Pairs whose first words are their numbers, so that each is known again, of 1 to 12 words."""
    generator = np.random.default_rng(seed)
    sides = []
    for offset in (2, 10_000):
        lengths = generator.integers(1, 13, count)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        ids = np.full(offsets[-1], 9_999, np.int32)
        ids[offsets[:-1]] = offset + np.arange(count)
        sides.append(Sentences(ids, offsets))
    return EntailmentSplit("train", *sides, generator.integers(0, 3, count).astype(np.int8))


def batches_of(dataset) -> list:
    return [({name: x.numpy() for name, x in inputs.items()}, y.numpy()) for inputs, y in dataset]


def same(first: list, second: list) -> bool:
    return len(first) == len(second) and all(
        np.array_equal(a["premise"], b["premise"]) and np.array_equal(y, z)
        for (a, y), (b, z) in zip(first, second, strict=True)
    )


def test_an_epoch_has_each_pair_once_with_its_partner_and_label() -> None:
    split = make_split(203)
    batches = SentencePairBatches(split, batch_size=10, seed=3)
    assert batches.steps_per_epoch == 20
    found = batches_of(batches.dataset())
    assert len(found) == 20 == len(batches.dataset())
    premises = np.concatenate([inputs["premise"][:, 0] - 2 for inputs, _ in found])
    hypotheses = np.concatenate([inputs["hypothesis"][:, 0] - 10_000 for inputs, _ in found])
    labels = np.concatenate([y for _, y in found])
    assert len(set(premises.tolist())) == 200
    np.testing.assert_array_equal(premises, hypotheses)
    np.testing.assert_array_equal(labels, (split.classes == 0)[premises])
    for inputs, y in found:
        assert y.shape == (10,) and y.dtype == np.int32
        for ids, side in ((inputs["premise"], split.premises), (inputs["hypothesis"], split.hypotheses)):
            # Padded to the longest of its side and no further.
            lengths = side.lengths[inputs["premise"][:, 0] - 2]
            np.testing.assert_array_equal((ids != 0).sum(1), lengths)
            assert ids.shape == (10, lengths.max()) and ids.dtype == np.int32


def test_epochs_follow_from_their_numbers() -> None:
    batches = SentencePairBatches(make_split(100), batch_size=10, seed=3)
    dataset = batches.dataset(4)
    fourth, fifth = batches_of(dataset), batches_of(dataset)
    assert not same(fourth, fifth)
    assert same(batches_of(batches.dataset(5)), fifth)
    assert same(batches_of(batches.dataset(4, step=7)), fourth[7:])
    assert len(batches.dataset(4, step=7)) == 3
    other = SentencePairBatches(make_split(100), batch_size=10, seed=4)
    assert not same(batches_of(other.dataset(4)), fourth)


def test_what_is_left_over_changes() -> None:
    batches = SentencePairBatches(make_split(19), batch_size=10)
    seen = [set(batches.plan(epoch).ravel().tolist()) for epoch in range(30)]
    assert all(len(rows) == 10 for rows in seen)
    assert set.union(*seen) == set(range(19))


def test_lengths_are_bucketed() -> None:
    split = make_split(4000)
    found = batches_of(SentencePairBatches(split, batch_size=40).dataset())
    words = split.premises.lengths.sum() + split.hypotheses.lengths.sum()
    padded = sum(x.size for inputs, _ in found for x in inputs.values())
    # Batches at random would pad both sides to 12 of 6.5 words on average: 1.85. In two windows of 2,000
    # with 12 lengths, premises are of one length in three of four batches, hypotheses within 3 words.
    assert padded < 1.25 * words


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="batch_size"):
        SentencePairBatches(make_split(10), batch_size=0)
    with pytest.raises(DataError, match="at most 10, the number of pairs of the split 'train'; got 11"):
        SentencePairBatches(make_split(10), batch_size=11)


def test_a_sentence_without_words_is_a_row_of_padding(tmp_path: Path) -> None:
    folder = write_snli(tmp_path / "snli")
    write_jsonl(folder / "snli_1.0_train.jsonl", [("A dog.", "...", "neutral"), *rows(1)])
    data = EntailmentData.open(folder)
    tokenizer = WordTokenizer(Vocabulary.from_captions(data.texts("train")))
    batches = SentencePairBatches(data.encode(tokenizer)["train"], batch_size=2)
    ((inputs, _),) = batches_of(batches.dataset())
    assert sorted((inputs["hypothesis"] != 0).sum(1).tolist()) == [0, 3]

"""From strings to ids: padding, unknown words, limits, the same in graph."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from vsemb.errors import InvalidArgumentError
from vsemb.text import Vocabulary, WordTokenizer

VOCABULARY = Vocabulary(["a", "dog", "'s", "犬"])
TEXTS = ["A dog's 犬", "zebra", "", "dog dog dog dog"]
IDS = [[2, 3, 4, 5], [1, 0, 0, 0], [0, 0, 0, 0], [3, 3, 3, 3]]


def test_ids() -> None:
    result = WordTokenizer(VOCABULARY)(TEXTS)
    assert result.dtype == tf.int32
    assert result.numpy().tolist() == IDS


@pytest.mark.parametrize("texts", [["", ""], ["..."], [b"\xff"]])
def test_at_least_one_step(texts) -> None:
    assert WordTokenizer(VOCABULARY)(texts).numpy().tolist() == [[0]] * len(texts)


def test_no_texts() -> None:
    assert WordTokenizer(VOCABULARY)(tf.constant([], tf.string)).shape == (0, 1)
    ids, offsets = WordTokenizer(VOCABULARY).encode([])
    assert len(ids) == 0 and offsets.tolist() == [0]


def test_max_length_cuts_on_the_right() -> None:
    tokenizer = WordTokenizer(VOCABULARY, max_length=2)
    assert tokenizer(TEXTS).numpy().tolist() == [[2, 3], [1, 0], [0, 0], [3, 3]]
    ids, offsets = tokenizer.encode(TEXTS)
    assert ids.tolist() == [2, 3, 1, 3, 3]
    assert offsets.tolist() == [0, 2, 3, 3, 5]
    with pytest.raises(InvalidArgumentError, match="max_length=0"):
        WordTokenizer(VOCABULARY, max_length=0)


def test_encode_equals_a_call() -> None:
    ids, offsets = WordTokenizer(VOCABULARY).encode(TEXTS)
    assert ids.dtype == np.int32 and offsets.dtype == np.int64
    rows = [ids[a:b].tolist() for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    assert rows == [[i for i in row if i] for row in IDS]


def test_encode_across_its_chunks() -> None:
    texts = ["a dog", "dog", ""] * 6000  # 18,000 texts, chunks of 8192
    ids, offsets = WordTokenizer(VOCABULARY).encode(texts)
    assert ids.tolist() == [2, 3, 3] * 6000
    assert np.diff(offsets).tolist() == [2, 1, 0] * 6000


def test_the_same_in_graph_and_after_export(tmp_path) -> None:
    tokenizer = WordTokenizer(VOCABULARY)
    module = tf.Module()
    module.tokenizer = tokenizer
    module.serve = tf.function(tokenizer.__call__, input_signature=[tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(module, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    assert loaded.serve(tf.constant(TEXTS)).numpy().tolist() == IDS

"""Learning pieces: what comes out, the same whatever the order, and what is refused."""

from __future__ import annotations

import functools

import pytest
import tensorflow as tf

from vsemb.errors import DataError, InvalidArgumentError
from vsemb.text import (
    BPETokenizer,
    UnigramTokenizer,
    Vocabulary,
    WordPieceTokenizer,
    learn_sentencepieces,
    learn_wordpieces,
)

VERBS = ("walk", "talk", "jump", "climb", "paint", "skat", "swimm", "runn")
CAPTIONS = [
    f"A {dog} is {verb}ing on the man's {place}s."
    for verb in VERBS
    for dog in ("dog", "cat", "child", "snowboarder")
    for place in ("beach", "street", "table", "café")
]
LEARNERS = {
    "wordpiece": (learn_wordpieces, WordPieceTokenizer),
    "unigram": (functools.partial(learn_sentencepieces, "unigram"), UnigramTokenizer),
    "bpe": (functools.partial(learn_sentencepieces, "bpe"), BPETokenizer),
}


@pytest.fixture(params=list(LEARNERS))
def learned(request):
    return LEARNERS[request.param]


def test_pieces_cover_the_captions_and_words_not_seen(learned) -> None:
    learn, kind = learned
    vocabulary = learn(CAPTIONS, vocabulary_size=120)
    assert 30 < len(vocabulary.words) <= 120
    tokenizer = kind(vocabulary)
    ids, offsets = tokenizer.encode(CAPTIONS)
    assert ids.min() > 1 and ids.max() < len(vocabulary)
    # Frequent words are whole, the English 's among them; the unigram model begins with what two words share.
    pieces = [piece.decode().lstrip("▁#") for piece in tokenizer.pieces(CAPTIONS[:1]).flat_values.numpy()]
    if kind is not UnigramTokenizer:
        assert {"a", "is", "on", "the", "man", "'s"} <= set(pieces)
    # A word that no caption has, of parts that they have.
    new = tokenizer.ragged(tf.constant(["dogwalking"])).to_list()[0]
    assert 1 < len(new) < 12 and 1 not in new
    assert tokenizer.ragged(tf.constant(["犬"])).to_list()[0][-1] == 1


def test_the_same_captions_give_the_same_pieces(learned) -> None:
    learn, _ = learned
    vocabulary = learn(CAPTIONS, vocabulary_size=90)
    again = learn((caption.upper() + "!" for caption in reversed(CAPTIONS)), vocabulary_size=90)
    assert again.fingerprint == vocabulary.fingerprint


def test_size(learned) -> None:
    learn, _ = learned
    sizes = [len(learn(CAPTIONS, vocabulary_size=size).words) for size in (50, 80)]
    assert 30 < sizes[0] <= 50 and sizes[0] <= sizes[1] <= 80
    # As many as there are where more are asked for.
    assert len(learn(["a dog"] * 3).words) < 30
    with pytest.raises(InvalidArgumentError, match=r"vocabulary_size=8.*Every character is a subword"):
        learn(CAPTIONS, vocabulary_size=8)
    with pytest.raises(InvalidArgumentError, match="vocabulary_size=0"):
        learn(CAPTIONS, vocabulary_size=0)


def test_rare_words_teach_nothing(learned) -> None:
    learn, _ = learned
    vocabulary = learn([*CAPTIONS, "xylophones"], vocabulary_size=200, min_count=2)
    assert not any("x" in piece or "y" in piece for piece in vocabulary.words)
    with pytest.raises(DataError, match="lower min_count=1000"):
        learn(CAPTIONS, min_count=1000)


def test_endless_words(learned) -> None:
    learn, _ = learned
    assert max(map(len, learn([*CAPTIONS, *["x" * 3000] * 5], vocabulary_size=100).words)) <= 100


def test_pieces_come_back_from_the_file(learned, tmp_path) -> None:
    learn, kind = learned
    vocabulary = learn(CAPTIONS, vocabulary_size=90)
    vocabulary.save(tmp_path / "vocabulary.txt")
    loaded = Vocabulary.load(tmp_path / "vocabulary.txt")
    assert loaded.words == vocabulary.words and loaded.fingerprint == vocabulary.fingerprint
    assert (loaded.scores is None) == (kind is not UnigramTokenizer)
    if loaded.scores is not None:
        assert loaded.scores.tobytes() == vocabulary.scores.tobytes()


def test_unknown_model() -> None:
    with pytest.raises(InvalidArgumentError, match="model='word'"):
        learn_sentencepieces("word", CAPTIONS)

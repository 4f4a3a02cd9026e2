"""Words in pieces: against the libraries whose segmentation they are, by hand, and in a SavedModel."""

from __future__ import annotations

import functools
import json
import struct
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.text import Tokenizer, Vocabulary, WordTokenizer
from vsemb.text.subwords import (
    BPE,
    MAX_CHARACTERS,
    BPETokenizer,
    SentencePiece,
    Subwords,
    UnigramTokenizer,
    WordPiece,
    WordPieceTokenizer,
)

#: A vocabulary whose characters are a to c and é, with many ways to split a word.
PIECES = ("ab", "abc", "bc", "ca", "aa", "aab", "cab", "bca", "é", "éa", "bé", "a", "b", "c")


def random_words(count: int = 400) -> list[str]:
    """Words over a little more than the vocabulary's characters, so that some are not known."""
    generator = np.random.default_rng(0)
    characters = np.array(list("aaabbbcccéxy"))
    return ["".join(generator.choice(characters, generator.integers(1, 13))) for _ in range(count)]


def pieces_of(tokenizer: Tokenizer, text: str) -> list[str]:
    return [piece.decode() for piece in tokenizer.pieces(tf.constant([text])).flat_values.numpy()]


def wordpieces() -> Vocabulary:
    # Not all begin a word and continue one.
    return Vocabulary([*PIECES[:-1], *(f"##{piece}" for piece in PIECES if piece != "éa")])


def unigrams() -> Vocabulary:
    pieces = [*PIECES, *(f"▁{piece}" for piece in PIECES), "▁"]
    scores = np.random.default_rng(1).uniform(-8, -1, len(pieces))
    return Vocabulary(pieces, scores)


def merges() -> Vocabulary:
    pieces = [*PIECES, *(f"▁{piece}" for piece in PIECES), "▁"]
    return Vocabulary(np.random.default_rng(2).permutation(pieces).tolist())


def message(*fields: tuple[int, int | float | str | bytes]) -> bytes:
    """A protocol buffer of fields, each a number and its value."""

    def varint(value: int) -> bytes:
        value &= (1 << 64) - 1
        parts = []
        while value > 127:
            parts.append(value & 127 | 128)
            value >>= 7
        return bytes([*parts, value])

    written = b""
    for number, value in fields:
        if isinstance(value, int):
            written += varint(number << 3) + varint(value)
        elif isinstance(value, float):
            written += varint(number << 3 | 5) + struct.pack("<f", value)
        else:
            data = value.encode() if isinstance(value, str) else value
            written += varint(number << 3 | 2) + varint(len(data)) + data
    return written


def sentencepiece(vocabulary: Vocabulary):
    """The library's own processor over a vocabulary, by sentencepiece_model.proto."""
    import sentencepiece

    scores = -np.arange(len(vocabulary.words)) if vocabulary.scores is None else vocabulary.scores
    normal, unknown, control = 1, 2, 3
    pieces = [("<pad>", 0.0, control), ("<unk>", 0.0, unknown)]
    pieces += [(piece, float(score), normal) for piece, score in zip(vocabulary.words, scores, strict=True)]
    trainer = message((3, 2 if vocabulary.scores is None else 1), (40, 1), (41, -1), (42, -1), (43, 0))
    model = message(
        *((1, message((1, piece), (2, score), (3, kind))) for piece, score, kind in pieces),
        (2, trainer),
        (3, message((1, "identity"))),
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model)


TOKENIZERS = {
    "wordpiece": (WordPieceTokenizer, wordpieces),
    "unigram": (UnigramTokenizer, unigrams),
    "bpe": (BPETokenizer, merges),
}


@pytest.fixture(params=list(TOKENIZERS))
def tokenizer(request) -> Tokenizer:
    kind, vocabulary = TOKENIZERS[request.param]
    return kind(vocabulary())


def test_wordpieces_are_those_of_tensorflow_text() -> None:
    from tensorflow_text import WordpieceTokenizer

    tokenizer, words = WordPieceTokenizer(wordpieces()), random_words()
    tokens = list(tokenizer.vocabulary.tokens)
    table = tf.lookup.StaticVocabularyTable(
        tf.lookup.KeyValueTensorInitializer(tokens, tf.range(len(tokens), dtype=tf.int64)), 1
    )
    theirs = WordpieceTokenizer(table, unknown_token="<unk>", token_out_type=tf.int64)
    expected = theirs.tokenize(words).to_list()
    pieces = tokenizer.ragged(tf.constant(words)).to_list()
    assert pieces == expected
    unknown = sum(row == [1] for row in expected)
    assert 50 < unknown < 350 and max(map(len, expected)) > 4  # The case is no empty one.


@pytest.mark.parametrize("name", ["unigram", "bpe"])
def test_sentencepieces_are_those_of_the_library(name: str) -> None:
    kind, vocabulary = TOKENIZERS[name]
    tokenizer, theirs, words = kind(vocabulary()), sentencepiece(vocabulary()), random_words()
    expected = [theirs.encode(word) for word in words]
    assert tokenizer.ragged(tf.constant(words)).to_list() == expected
    assert sum(1 in row for row in expected) > 50 and max(map(len, expected)) > 4
    # Whole texts at once: pieces never cross the end of a word, and unknown ones are not joined across it.
    text = " ".join(words[:60])
    assert kind(vocabulary(), max_length=1000).ragged(tf.constant([text])).to_list() == [theirs.encode(text)]
    assert pieces_of(kind(vocabulary(), max_length=1000), text) == theirs.encode(text, out_type=str)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        # The longest first, and none left over: "cab" and "##b", not "ca" and "##bb", which is no piece.
        ("wordpiece", "cabb", ["cab", "##b"]),
        ("wordpiece", "cabx", ["cabx"]),
        ("wordpiece", "c", ["c"]),
        # "c" begins no word there, and the whole of it is unknown.
        ("unigram", "xya", ["▁", "xy", "a"]),
        ("bpe", "axxa", ["▁a", "xx", "a"]),
    ],
)
def test_by_hand(name: str, text: str, expected: list[str]) -> None:
    kind, _ = TOKENIZERS[name]
    vocabularies = {
        "wordpiece": Vocabulary(["ca", "cab", "c", "##b"]),
        "unigram": Vocabulary(["▁", "a"], [-1.0, -1.0]),
        "bpe": Vocabulary(["▁a", "a", "▁"]),
    }
    assert pieces_of(kind(vocabularies[name]), text) == expected


def test_texts_are_cleaned_as_words_are(tokenizer) -> None:
    texts = ["Abc! CAB", "abc cab", "  abc,cab\n", b"abc\xffcab", "ABC\0cab"]
    ids = tokenizer(tf.constant(texts)).numpy()
    assert (ids == ids[0]).all() and (ids > 1).all()
    assert tokenizer(tf.constant(["", "?!", "  "])).numpy().tolist() == [[0]] * 3
    assert tokenizer(tf.constant([], tf.string)).shape == (0, 1)
    ids, offsets = tokenizer.encode(["abc", "", "cab abc"])
    assert offsets[1] == offsets[2] and ids.dtype == np.int32 and len(ids) == offsets[-1]


@pytest.mark.slow
def test_neighbours_change_nothing(tokenizer) -> None:
    words = random_words(40)
    together = tokenizer.ragged(tf.constant(words)).to_list()
    assert together == [tokenizer.ragged(tf.constant([word])).to_list()[0] for word in words]
    joined = tokenizer.ragged(tf.constant([" ".join(words[:10])])).to_list()[0]
    assert joined == sum(together[:10], [])[: tokenizer.max_length]


def test_cut_in_pieces() -> None:
    tokenizer = WordPieceTokenizer(wordpieces(), max_length=3)
    assert pieces_of(tokenizer, "cabb abc") == ["cab", "##b", "abc"]
    assert pieces_of(tokenizer, "abc cabb") == ["abc", "cab", "##b"]
    assert pieces_of(tokenizer, "cab cab cabb") == ["cab", "cab", "cab"]
    with raises_argument("max_length"):
        WordPieceTokenizer(wordpieces(), max_length=0)


def test_long_words_are_unknown_and_little_work(tokenizer) -> None:
    longest = "a" * MAX_CHARACTERS
    assert len(pieces_of(tokenizer, longest)) > 10
    assert pieces_of(tokenizer, f"ab {longest}b ab") == [
        *pieces_of(tokenizer, "ab"),
        f"{longest}b",
        *pieces_of(tokenizer, "ab"),
    ]
    assert tokenizer.ragged(tf.constant([f"{longest}b"])).to_list() == [[1]]
    # 1,000 texts of the worst kind, of different words each: seconds, not minutes, on any machine.
    texts = [" ".join(f"{n}{'b' * (90 + n % 7)}" for n in range(k, k + 40)) for k in range(0, 4000, 40)]
    start = time.perf_counter()
    tokenizer(tf.constant(texts))
    assert time.perf_counter() - start < 60


def test_vocabularies_that_do_not_fit() -> None:
    with raises_argument("vocabulary"):
        UnigramTokenizer(Vocabulary(["▁a"]))
    # No pieces at all: every word is unknown.
    for kind, scores in ((WordPieceTokenizer, None), (BPETokenizer, None), (UnigramTokenizer, [])):
        assert kind(Vocabulary([], scores))(tf.constant(["ab c"])).numpy().tolist() == [[1, 1]]


def test_pieces_of_whole_words_are_the_tokenizer_of_words() -> None:
    words = ["a", "dog", "dogs", "'s"]
    texts = tf.constant(["A dog's dogs, a zebra", ""])
    expected = WordTokenizer(Vocabulary(words))(texts).numpy()
    np.testing.assert_array_equal(WordPieceTokenizer(Vocabulary(words))(texts), expected)


_CALLER = """
import json, sys
import tensorflow as tf
loaded = tf.saved_model.load(sys.argv[1])
texts = tf.constant(json.loads(sys.argv[2]))
ids = {name: getattr(loaded, name)(texts).numpy().tolist() for name in json.loads(sys.argv[3])}
print(json.dumps({"ids": ids, "modules": sorted(sys.modules)}))
"""


@pytest.mark.slow
def test_a_saved_model_needs_tensorflow_alone(tmp_path) -> None:
    module, texts = tf.Module(), ["ABC cab!", "", "bcaé xy"]
    expected = {}
    for name, (kind, vocabulary) in TOKENIZERS.items():
        tokenizer = kind(vocabulary())
        function = tf.function(tokenizer.__call__, autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
        setattr(module, name, function)
        setattr(module, f"{name}_table", tokenizer.table)
        expected[name] = tokenizer(tf.constant(texts)).numpy().tolist()
        # In graph, too, no texts are no trouble.
        assert function(tf.constant([], tf.string)).shape[0] == 0
    tf.saved_model.save(module, str(tmp_path / "saved"))
    command = [sys.executable, "-c", _CALLER, str(tmp_path / "saved"), json.dumps(texts)]
    command.append(json.dumps(list(expected)))
    outputs = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert outputs["ids"] == expected
    assert not {"tensorflow_text", "sentencepiece", "keras_hub", "vsemb"} & set(outputs["modules"])


VERBS = ("walk", "talk", "jump", "climb", "paint", "skat", "swimm", "runn")
CAPTIONS = [
    f"A {dog} is {verb}ing on the man's {place}s."
    for verb in VERBS
    for dog in ("dog", "cat", "child", "snowboarder")
    for place in ("beach", "street", "table", "café")
]


def learn_pieces(part: type[Subwords], captions, **options) -> Vocabulary:
    return part(**options).learn(captions)


LEARNERS = {
    part.kind: (functools.partial(learn_pieces, part), part.tokenizer) for part in (WordPiece, SentencePiece, BPE)
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
    with raises_argument("vocabulary_size"):
        learn(CAPTIONS, vocabulary_size=8)
    with raises_argument("vocabulary_size"):
        learn(CAPTIONS, vocabulary_size=0)


def test_rare_words_teach_nothing(learned) -> None:
    learn, _ = learned
    vocabulary = learn([*CAPTIONS, "xylophones"], vocabulary_size=200, min_count=2)
    assert not any("x" in piece or "y" in piece for piece in vocabulary.words)
    with pytest.raises(DataError, match="min_count=1000"):
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

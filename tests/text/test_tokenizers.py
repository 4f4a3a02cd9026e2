"""From strings to ids: padding, unknown words, limits, the same in graph."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from tests.text.test_normalize import random_texts
from vsemb.errors import VsembError
from vsemb.text import ALPHABET, CharacterTokenizer, Tokenizer, Vocabulary, WordTokenizer, tokenizers

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
    with raises_argument("max_length"):
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
    module.serve = tf.function(tokenizer.__call__, autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(module, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    assert loaded.serve(tf.constant(TEXTS)).numpy().tolist() == IDS


def odd_texts(count: int) -> list[bytes]:
    """Strings of code points of all planes, white space and control characters among them, and raw bytes."""
    random = np.random.default_rng(7)
    planes = [(0, 0x80), (0x80, 0x370), (0x370, 0xD800), (0xE000, 0x10000), (0x10000, 0x110000)]
    # Marks, joiners, directions, spaces, line ends, a byte order mark, non-characters, capitals that grow.
    odd = "\u0301\u200d\u200f\u202e\u2028\u00a0\u3000\x00\x0b\x1c\x85\ufeff\ufffd\ufffe\uffff\U0010ffff\u0130ẞǰ"
    texts = []
    for _ in range(count):
        low, high = planes[random.integers(len(planes))]
        text = "".join(map(chr, random.integers(low, high, random.integers(0, 30))))
        text += "".join(random.choice([*odd, " ", "A", "dog"], random.integers(0, 6)))
        data = text.encode("utf-8", "replace")
        if random.random() < 0.3:  # A character cut in two, and bytes that are none.
            data = data[1:] + random.bytes(3)
        texts.append(data)
    return [*texts, b"", b"\xff" * 5000, "é".encode() * 5000, b" " * 5000, b"\x00" * 10]


def check_any_bytes(tokenizer: Tokenizer) -> None:
    """Checks that a tokenizer takes any strings, each by itself, in graph and out of it."""
    texts = odd_texts(400)
    ids = tokenizer(texts).numpy()
    assert ids.dtype == np.int32 and ids.shape[0] == len(texts) and 1 <= ids.shape[1] <= tokenizer.max_length
    assert ids.min() >= 0 and ids.max() < len(tokenizer.vocabulary)
    # Padding stands on the right alone.
    assert not ((ids[:, 1:] != 0) & (ids[:, :-1] == 0)).any()
    assert (ids[:, 0] == 0).any() and (ids == 1).any()
    in_graph = tf.function(tokenizer.__call__, autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
    for again in (tokenizer(texts), in_graph(tf.constant(texts))):
        np.testing.assert_array_equal(again, ids)
    flat, offsets = tokenizer.encode(texts)
    for row in range(len(texts)):
        np.testing.assert_array_equal(flat[offsets[row] : offsets[row + 1]], ids[row][ids[row] != 0])
    for row in range(0, len(texts), 8):
        alone = tokenizer(texts[row : row + 1]).numpy()[0]  # Its neighbours change nothing.
        np.testing.assert_array_equal(alone[alone != 0], ids[row][ids[row] != 0])


def test_any_bytes_are_tokenized() -> None:
    check_any_bytes(WordTokenizer(VOCABULARY, max_length=5))
    check_any_bytes(CharacterTokenizer(max_length=9))


def test_pieces_are_what_the_ids_stand_for() -> None:
    assert WordTokenizer(VOCABULARY, 2).pieces(tf.constant(["A dog, a cat", ""])).to_list() == [
        [b"a", b"dog"],
        [],
    ]


def characters(text: str | bytes, max_length: int = 201) -> str:
    """The text as the model sees it, unknown characters as a diamond, which is one itself."""
    (ids,) = CharacterTokenizer(max_length=max_length)([text]).numpy().tolist()
    return "".join(["", "◆", *ALPHABET][number] for number in ids)


def test_alphabet() -> None:
    # The 95 printable characters of ASCII, from the space to the tilde, without 26 capitals.
    assert sorted(ALPHABET) == [chr(i) for i in range(32, 127) if not chr(i).isupper()]
    assert len(ALPHABET) == 69
    vocabulary = Vocabulary(ALPHABET)
    assert vocabulary.words == tuple(ALPHABET) and vocabulary.tokens.index("a") == 2


def test_every_character_has_its_id() -> None:
    # The space stands last, where it would be trimmed: put in front of an x.
    (ids,) = CharacterTokenizer()([ALPHABET + "x"]).numpy().tolist()
    assert ids == [*range(2, 71), 2 + ALPHABET.index("x")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("This BIRD has a 3-inch beak!", "this bird has a 3-inch beak!"),
        ("  two\t\n words \r\n", "two words"),
        ("a\u00a0b\u3000c\u2028d\x85e\x0bf\x1cg\x00h", "a b c d e f g h"),
        ('it\'s (1) "quoted"', 'it\'s (1) "quoted"'),
        ("", ""),
        (" \n\t\u00a0\x00", ""),
        # Unknown: other letters, one with a mark as one or as two characters, an emoji of three.
        ("Große", "gro◆e"),
        ("caf\u00e9 cafe\u0301", "caf◆ caf◆"),
        ("犬", "◆"),
        ("שלום", "◆◆◆◆"),
        ("a👩\u200d🚀", "a◆◆◆"),
        ("\ufeffa", "◆a"),
        # Bytes that are no text are a gap, as in words.
        (b"dog\xff\xfecat", "dog cat"),
        (b"\xff\xfe", ""),
        (b"caf\xc3", "caf"),
    ],
)
def test_cleaning(text: str | bytes, expected: str) -> None:
    assert characters(text) == expected


def test_cut_behind_cleaning() -> None:
    assert characters("x" * 300) == "x" * 201
    assert characters("  A \t  dog", max_length=4) == "a do"
    # Counted in characters and not in bytes: é has two.
    assert characters("éé" + "x" * 10, max_length=4) == "◆◆xx"
    # Only 4096 bytes are looked at; white space before them does not count.
    assert characters("." + " " * 4094 + "ab") == ". a"
    assert characters(" " * 4095 + "ab") == "ab"


def test_other_vocabularies() -> None:
    tokenizer = CharacterTokenizer(Vocabulary(["é", "b"]), max_length=3)
    assert tokenizer(["Ébab"]).numpy().tolist() == [[2, 3, 1]]
    with raises_argument("vocabulary"):
        CharacterTokenizer(Vocabulary(["a", "dog"]))
    with raises_argument("max_length"):
        CharacterTokenizer(max_length=0)


def test_no_texts_of_characters() -> None:
    assert CharacterTokenizer()(tf.constant([], tf.string)).shape == (0, 1)


@pytest.mark.parametrize("tokenizer", [WordTokenizer(VOCABULARY, 5), CharacterTokenizer(max_length=15)])
def test_ids_without_tensorflow_are_those_of_the_graph(tokenizer: Tokenizer, monkeypatch) -> None:
    texts = [*TEXTS, *random_texts()]
    expected = tokenizer.encode(texts)
    monkeypatch.setattr(tokenizers, "tf", None)
    encoded = tokenizer.encode(texts)
    for one, other in zip(encoded, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    assert tokenizer.encode([])[1].tolist() == [0]


def test_other_tokenizers_without_tensorflow_name_the_fix(monkeypatch) -> None:
    tokenizer = Tokenizer(VOCABULARY)
    monkeypatch.setattr(tokenizers, "tf", None)
    with pytest.raises(VsembError, match="text.tokenizer=words"):
        tokenizer.encode(["a dog"])

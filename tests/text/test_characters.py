"""Text as characters: cleaned, cut, unknown ones on one id."""

from __future__ import annotations

import pytest
import tensorflow as tf

from vsemb.errors import InvalidArgumentError
from vsemb.text import ALPHABET, CharacterTokenizer, Vocabulary, alphabet_vocabulary


def characters(text: str | bytes, max_length: int = 201) -> str:
    """The text as the model sees it, unknown characters as a diamond, which is one itself."""
    (ids,) = CharacterTokenizer(max_length=max_length)([text]).numpy().tolist()
    return "".join(["", "◆", *ALPHABET][number] for number in ids)


def test_alphabet() -> None:
    # The 95 printable characters of ASCII, from the space to the tilde, without 26 capitals.
    assert sorted(ALPHABET) == [chr(i) for i in range(32, 127) if not chr(i).isupper()]
    assert len(ALPHABET) == 69
    vocabulary = alphabet_vocabulary()
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
        ("caf\u00e9 cafe\u0301", "caf◆ cafe◆"),
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
    with pytest.raises(InvalidArgumentError, match="single characters"):
        CharacterTokenizer(Vocabulary(["a", "dog"]))
    with pytest.raises(InvalidArgumentError, match="max_length=0"):
        CharacterTokenizer(max_length=0)


def test_no_texts() -> None:
    assert CharacterTokenizer()(tf.constant([], tf.string)).shape == (0, 1)

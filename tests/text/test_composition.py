"""Canonical composition in graph, against Python's `unicodedata`."""

from __future__ import annotations

import random
import unicodedata

import pytest
import tensorflow as tf

from vsemb.text.composition import composed

#: Letters and marks that compose in one, two or three steps, or are excluded, or block each other; Hangul letters.
TRICKY = (
    "aeoUAe "
    "\u0300\u0301\u0302\u0307\u0308\u030a\u031b\u0323\u0327\u0328\u0345\u034f\u0338\u093c\u0915\u0928\u0958\u09c7\u09be"
    "\u09d7\u0bc6\u0bbe\u0bd7\u0cc6\u0cc2\u0cd5\u0cca\u0dd9\u0dca\u0dcf\u1100\u1161\u11a8\uac00\uac01\u11a7\u212b"
    "\u2126\u1e9b\u0344\u0f71\u0f72\u0f74\u3099\u304b\u05b0\u05bc\u05e9\u05c1\ufb2c\u064e\u0651\u0627\u0653\u1ebf"
    "\U0001d15e\U00011099\U000110ba\u200d\ufe0f\ufeff\uffff"
)
CHANGING = [
    chr(code)
    for code in range(0xC0, 0x30000)
    if unicodedata.decomposition(chr(code)) or unicodedata.combining(chr(code))
]


def check(texts: list[str]) -> None:
    wanted = [unicodedata.normalize("NFC", text) for text in texts]
    results = [text.decode() for text in composed(tf.constant(texts)).numpy().tolist()]
    wrong = [tuple(map(ascii, row)) for row in zip(texts, results, wanted, strict=True) if row[1] != row[2]]
    assert not wrong, wrong[:5]


@pytest.mark.parametrize("form", ["{}", "e{}\u0301x", "{}\u0323\u0301"])
def test_every_character_that_changes(form: str) -> None:
    texts = [form.format(character) for character in CHANGING]
    assert len(texts) > 6000
    check(texts)
    check([unicodedata.normalize("NFD", text) for text in texts])


def test_hangul() -> None:
    syllables = [chr(code) for code in range(0xAC00, 0xD7A4, 7)]
    check(syllables)
    check([unicodedata.normalize("NFD", text) for text in syllables])
    # A syllable with its last letter takes no other, and a vowel needs its consonant.
    check(["\uac00\u11a8\u11a8", "\uac01\u11a8", "\u1161\u11a8", "\u1100\u1161\u0301\u11a8", "\u1100\u1100\u1161"])


def test_sequences_of_tricky_characters() -> None:
    draw = random.Random(0)
    check(["".join(draw.choices(TRICKY, k=draw.randint(0, 12))) for _ in range(5000)])
    check(["".join(draw.choices(CHANGING, k=draw.randint(0, 12))) for _ in range(2000)])


def test_long_sequences_of_marks_are_few_steps() -> None:
    marks = ["\u0301" * 1000, "\u0301\u0323" * 500, "\u0323" * 20 + "\u0302" * 20 + "\u0301" * 20]
    check([letter + mark for letter in ("", "e", "\u1ebf") for mark in marks])
    check(["\u1100" + "\u1161" * 500 + "\u11a8" * 500, "\u09c7" + "\u09be" * 500, "\u0cc6" + "\u0cc2\u0cd5" * 300])


def test_rows_are_independent() -> None:
    check(["e", "\u0301", "", "\u0323e", "\u1100", "\u1161", "ASCII", "\u0301\u0301"])


def test_composed_texts_are_returned_as_they_are() -> None:
    texts = ["", "a dog", "un café à côté", "एक कुत्ता दौड़ रहा है", "ชายสองคนวิ่ง", "犬が走る", "개가"]
    assert composed(tf.constant(texts)).numpy().tolist() == [text.encode() for text in texts]
    assert composed(tf.constant([], tf.string)).shape == (0,)

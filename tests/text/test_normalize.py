"""Splitting raw strings into words."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
import tensorflow as tf

from vsemb.text import normalize
from vsemb.text.normalize import MAX_BYTES, readable, split_in_python, split_words, words_of


def words(text: str | bytes) -> list[str]:
    (row,) = split_words(tf.constant([text])).to_list()
    return [word.decode() for word in row]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A man, riding a HORSE.", ["a", "man", "riding", "a", "horse"]),
        ("", []),
        (" \t\n ", []),
        ("...!?", []),
        # The English 's is a word of its own, other apostrophes go without a gap.
        ("the dog's ball", ["the", "dog", "'s", "ball"]),
        ("THE DOG'S", ["the", "dog", "'s"]),
        ("the dog’s ball", ["the", "dog", "'s", "ball"]),
        ("don't can't", ["dont", "cant"]),
        ("rock'n'roll", ["rocknroll"]),
        ("y'all'd've", ["yalldve"]),
        ("o'neil's", ["oneil", "'s"]),
        ("'quoted' words'", ["quoted", "words"]),
        ("the dogs' bowls", ["the", "dogs", "bowls"]),
        ("t-shirt black/white 4x4", ["t", "shirt", "black", "white", "4x4"]),
        # Unicode: letters of any script, their marks, their lower case.
        ("Ein GROẞER Hund", ["ein", "großer", "hund"]),
        ("ΣΚΥΛΟΣ Собака", ["σκυλος", "собака"]),
        ("犬が走る", ["犬が走る"]),
        ("हिन्दी", ["हिन्दी"]),
        ("naïve cafe\u0301", ["naïve", "café"]),
        ("a\u00a0dog\u2028runs\u3000fast", ["a", "dog", "runs", "fast"]),
        ("dog🐕run", ["dog", "run"]),
        ("a\x00dog", ["a", "dog"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"dog\xffcat", ["dog", "cat"]),
        (b"\xff\xfe", []),
        # An overlong encoding and a surrogate half are invalid too.
        (b"dog \xc0\xaf \xed\xa0\x80 cat", ["dog", "cat"]),
        (b"caf\xc3", ["caf"]),
    ],
)
def test_invalid_utf8_separates(text: bytes, expected: list[str]) -> None:
    assert words(text) == expected


def test_plain_texts_are_split_as_all_others_are() -> None:
    """Most texts take a shorter way; in one batch with others, and of any ASCII, with the same words."""
    generator = np.random.default_rng(0)
    plain = [generator.choice([*range(1, 39), *range(40, 128)], 30).astype(np.uint8).tobytes() for _ in range(500)]
    others = [b"the dog's", "naïve cafe\u0301".encode(), b"a\x00dog", b"\xff\xfe", b""]
    texts = [*plain, *others, *plain[:5]]
    expected = tf.strings.split(normalize._spaced(tf.constant(texts))).to_list()
    assert split_words(tf.constant(texts)).to_list() == expected
    assert sum(map(len, expected)) > 1000
    assert split_words(tf.constant([], tf.string)).to_list() == []


def test_long_texts_are_cut() -> None:
    assert MAX_BYTES == 4096
    # 1024 words of 4 bytes fit; the one behind them does not.
    assert words("dog " * 1024 + "cat") == ["dog"] * 1024
    # The cut goes through the two bytes of the last letter, which is then no letter.
    assert words("a" * 4095 + "é") == ["a" * 4095]
    assert len(words("dog " * 1_000_000)) == 1024


def test_white_space_at_the_start_leaves_room_for_the_text() -> None:
    for blank in (" ", "\t", "\x00", "\u00a0", "\u2028", "\u3000", "\x85", "\r\n \x1c"):
        # Three bytes at most each.
        assert words(blank * 5000 + "a dog") == ["a", "dog"]
        assert words(blank * 2000 + "dog " * 1024 + "cat") == ["dog"] * 1024
    # What comes behind a word counts, and so does what is no white space.
    assert words("a" + " " * 4095 + "dog") == ["a"]
    assert words("." + " " * 4095 + "dog") == []
    assert words(b"\xc2" + b" " * 4095 + b"dog") == []


def test_white_space_without_end_costs_nothing() -> None:
    split_words(tf.constant(["a"]))
    started = time.monotonic()
    assert words(" " * 65535 + "dog") == ["d"]
    assert words(" " * 10_000_000 + "dog") == []
    assert time.monotonic() - started < 1


def test_rows_are_independent() -> None:
    rows = split_words(tf.constant([b"a dog", b"\xff", b"", b"cats"])).to_list()
    assert rows == [[b"a", b"dog"], [], [], [b"cats"]]


def test_no_row_at_all() -> None:
    assert split_words(tf.constant([], tf.string)).to_list() == []


@pytest.mark.parametrize("rows", [slice(None), slice(0, 4), slice(4, None), slice(0, 0)])
def test_only_what_is_not_ascii_is_transcoded_and_nothing_is_lost(rows) -> None:
    texts = [b"a dog\n\x7f", b"", b"x" * 9, b"a\tb"]
    texts += [
        "naïve ‘q’ 犬".encode(),
        b"\xff\xfeabc",
        b"a\xc3",
        b"\xed\xa0\x80",
        b"a\xc3\xa9\xff",
        b"\xf5\x80",
    ]
    given = tf.constant(texts[rows], tf.string)
    slow = tf.strings.unicode_transcode(given, "UTF-8", "UTF-8", errors="replace")
    assert readable(given).numpy().tolist() == slow.numpy().tolist()


def test_many_texts_are_split_a_few_at_a_time(monkeypatch) -> None:
    monkeypatch.setattr(normalize, "_BATCH", 3)
    assert list(words_of(f"Word {n}!" for n in range(8))) == [["word", str(n)] for n in range(8)]
    assert list(words_of([])) == []


#: Apostrophes, marks, digits, numbers, white space, capitals, invalid characters.
CHARACTERS = (
    "ab's'\u2019 .!\0\t\u2003\u00e9\u00c0\u0130\u03a3'n't \u00b2\u216b\u4e2d\u0301\ue000_-1\u0663\U0001f4a1\ufffd"
)


def random_texts() -> list[str]:
    draw = random.Random(0)
    texts = ["".join(draw.choices(CHARACTERS, k=draw.randint(0, 30))) for _ in range(3000)]
    return [*texts, "a" * 5000, "\u00e9" * 5000, " " * 5000 + "dog's " * 2000, "A Man's dog, doesn't run."]


def test_words_in_python_are_those_of_the_graph() -> None:
    texts = random_texts()
    expected = [[word.decode() for word in words] for words in split_words(tf.constant(texts)).to_list()]
    assert [split_in_python(text) for text in texts] == expected
    assert sum(map(len, expected)) > 9000


def test_without_tensorflow_words_are_split_in_python(monkeypatch) -> None:
    monkeypatch.setattr(normalize, "tf", None)
    assert list(words_of(["The man's dog!", ""])) == [["the", "man", "'s", "dog"], []]

"""A class's name as one token."""

from __future__ import annotations

import tensorflow as tf

from tests.text.test_tokenizers import check_any_bytes
from vsemb.systems.zero_shot.class_names import ClassTokenizer
from vsemb.text import Vocabulary
from vsemb.text.normalize import MAX_BYTES

NAMES = ["001.Black footed Albatross", "Möwe", "a\u00a0b"]


def test_whole_names() -> None:
    tokenizer = ClassTokenizer(Vocabulary(NAMES))
    texts = [*NAMES, " \t Möwe\u3000\n", "möwe", "Black footed Albatross", "", " \n", b"\xff", "M\x00"]
    # As they are, trimmed, in another case, a part, no name twice, no text, another name.
    expected = [2, 3, 4, 3, 1, 1, 0, 0, 1, 1]
    assert tokenizer(texts).numpy().tolist() == [[number] for number in expected]
    assert tokenizer.max_length == 1
    ids, offsets = tokenizer.encode(["Möwe", "", "Falke"])
    assert ids.tolist() == [3, 1] and offsets.tolist() == [0, 1, 1, 2]


def test_no_texts() -> None:
    tokenizer = ClassTokenizer(Vocabulary(NAMES))
    assert tokenizer(tf.constant([], tf.string)).shape == (0, 1)
    assert tokenizer(["", ""]).numpy().tolist() == [[0], [0]]


def test_a_name_is_cut_like_any_text() -> None:
    tokenizer = ClassTokenizer(Vocabulary(["Crow", "x" * MAX_BYTES]))
    long = "x" * 10_000_000
    # What is behind the first 4 KB does not count, nor does white space before the name.
    assert tokenizer([long, "Crow", " " * 5000 + "Crow", "Crow" + " " * 5000 + "x"]).numpy().tolist() == [
        *([3], [2], [2], [2])
    ]
    assert tokenizer([b"Crow\xff", b"\x00"]).numpy().tolist() == [[1], [0]]


def test_any_bytes_are_tokenized() -> None:
    check_any_bytes(ClassTokenizer(Vocabulary(["Blue Jay", "Möwe"])))

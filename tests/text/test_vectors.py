"""Word vectors from GloVe and word2vec text files, and what can be wrong with them."""

from __future__ import annotations

import numpy as np
import pytest

from vsemb.errors import DataError, VsembError
from vsemb.text import Vocabulary, read_word_vectors

VOCABULARY = Vocabulary(["a", "dog", "cat", "собака"])


def read(tmp_path, text: str | bytes, vocabulary: Vocabulary = VOCABULARY):
    path = tmp_path / "vectors.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_word_vectors(path, vocabulary)


@pytest.mark.parametrize(
    "text",
    [
        "dog 1 2 3\ncat 4 5 6\nсобака 7 8 9\nwolf 0 0 0\n",
        "4 3\ndog 1 2 3\ncat 4 5 6\nсобака 7 8 9\nwolf 0 0 0\n",  # word2vec: count and size first
        "dog 1 2 3 \ncat 4 5 6 \n\nсобака 7 8 9 \n",  # word2vec ends lines with a blank
        "dog 1 2 3\r\ncat 4 5 6\r\nсобака 7 8 9\r\n",
        "dog 1 2 3\ncat 4 5 6\n. . . 1 2 3\nсобака 7 8 9",  # GloVe has words with blanks
        "Dog 1.0 2e0 3\nCAT 4 5 6\nсобака 7 8 9\n",  # cased files serve lower-case vocabularies
    ],
)
def test_formats(tmp_path, text: str) -> None:
    vectors, found = read(tmp_path, text)
    assert vectors.dtype == np.float32 and vectors.shape == (6, 3)
    assert found == 3
    # Ids: 0 padding, 1 unknown, then a, dog, cat, собака.
    assert vectors[3:].tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert not vectors[0].any()


def test_missing_words_are_drawn_like_the_others(tmp_path) -> None:
    vocabulary = Vocabulary([f"w{i}" for i in range(4000)])
    text = "w0 1 10\nw1 3 10\n"  # mean (2, 10), deviation (1, 0)
    vectors, found = read(tmp_path, text, vocabulary)
    assert found == 2
    drawn = vectors[4:]
    # 4000 draws of deviation 1: the mean has deviation 0.016.
    np.testing.assert_allclose(drawn.mean(0), [2, 10], atol=0.08)
    np.testing.assert_allclose(drawn.std(0), [1, 0], atol=0.08)
    again, _ = read(tmp_path, text, vocabulary)
    np.testing.assert_array_equal(again, vectors)


def test_the_exact_word_goes_before_another_case(tmp_path) -> None:
    # Cased files are sorted by frequency, and the company comes before the fruit.
    vectors, found = read(tmp_path, "Dog 9 9\ndog 1 2\nDOG 8 8\ncat 3 4\n")
    assert vectors[3].tolist() == [1, 2]
    assert found == 2


def test_reserved_tokens_are_not_counted(tmp_path) -> None:
    vectors, found = read(tmp_path, "<unk> 5 6\n<pad> 7 8\ndog 1 2\n")
    assert found == 1
    assert vectors[0].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("dog 1 2\ncat 1\n", 2),
        ("a 1 2\n\ndog 1 x\n", 3),
        ("2 2\ndog 1 2\ncat nan 2\n", 3),
        ("dog 1 2\ncat 1 inf\n", 2),
        ("dog 1e999 2\n", 1),
        ("dog\n", 1),
    ],
)
def test_malformed_lines_are_named(tmp_path, text: str, line: int) -> None:
    with pytest.raises(DataError, match=f"vectors.txt, line {line}"):
        read(tmp_path, text)


@pytest.mark.parametrize("text", ["", "wolf 1 2\n", "3 2\n", b"\xff\xfe 1 2\n"])
def test_none_found(tmp_path, text) -> None:
    with pytest.raises(VsembError, match="vectors.txt"):
        read(tmp_path, text)


def test_no_such_file(tmp_path) -> None:
    with pytest.raises(DataError, match="missing.txt"):
        read_word_vectors(tmp_path / "missing.txt", VOCABULARY)
    with pytest.raises(DataError):
        read_word_vectors(tmp_path, VOCABULARY)


def test_capitalised_words_in_an_uncased_file(tmp_path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("london 1 2\nApple 3 4\napple 5 6\n")
    vectors, found = read_word_vectors(path, Vocabulary(["London", "apple"]))
    assert found == 2 and vectors[2:].tolist() == [[1, 2], [5, 6]]

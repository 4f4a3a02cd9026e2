"""Vocabularies: counting, order, files."""

from __future__ import annotations

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.text import Vocabulary
from vsemb.text.spaces import SUBWORDS
from vsemb.text.subwords import BPE, SentencePiece, WordPiece
from vsemb.text.tokenizers import Characters, TokenizerPart, Words

CAPTIONS = ["A dog and a cat.", "the DOG's cat", "Собака", "a zebra"]


def test_most_frequent_first_then_by_alphabet() -> None:
    # a: 3; cat, dog: 2; 's, and, the, zebra, собака: 1.
    vocabulary = Vocabulary.from_captions(CAPTIONS)
    assert vocabulary.words == ("a", "cat", "dog", "'s", "and", "the", "zebra", "собака")
    assert len(vocabulary) == 10
    assert vocabulary.tokens[:3] == ("<pad>", "<unk>", "a")
    assert "dog" in vocabulary and "wolf" not in vocabulary


@pytest.mark.parametrize("captions", [["🐶", "❤️ 🐱", "🇫🇷"], ["!!!", "... ?"], [""]])
@pytest.mark.parametrize("part", [Words(), WordPiece(), SentencePiece(), BPE(), Characters()])
def test_captions_without_letters_have_no_fix_that_fails(part: TokenizerPart, captions: list[str]) -> None:
    if part.kind == "characters" and "!!!" in captions:
        assert part.learn(captions).words  # ASCII has punctuation.
        return
    with pytest.raises(DataError) as raised:
        part.learn(captions)
    assert "min_count" not in str(raised.value) and SUBWORDS not in str(raised.value)


def test_letters_that_no_character_stands_for_name_the_tokenizer_that_reads_them() -> None:
    captions = ["собака 🐶", "кошка"]
    with pytest.raises(DataError, match=SUBWORDS):
        Characters().learn(iter(captions))
    assert SentencePiece().learn(captions).words and Characters().learn([*captions, "a cat"]).words


def test_limits() -> None:
    assert Vocabulary.from_captions(CAPTIONS, min_count=2).words == ("a", "cat", "dog")
    assert Vocabulary.from_captions(CAPTIONS, vocabulary_size=2).words == ("a", "cat")
    with pytest.raises(DataError, match="min_count=4"):
        Vocabulary.from_captions(CAPTIONS, min_count=4)
    with pytest.raises(DataError):
        Vocabulary.from_captions(["", "..."])
    for bad in (0, -1):
        # -1 would silently leave out the rarest word.
        with raises_argument("vocabulary_size"):
            Vocabulary.from_captions(CAPTIONS, vocabulary_size=bad)


def test_a_generator_of_captions_and_many_of_them() -> None:
    # More than the chunk of 8192.
    vocabulary = Vocabulary.from_captions(text for text in ["dog"] * 9000 + ["cat"] * 8999)
    assert vocabulary.words == ("dog", "cat")


@pytest.mark.parametrize(
    "words",
    [
        *(["dog", "dog"], [""], ["<pad>"], ["<unk>"], [" a"], ["a "], ["  "], ["\t"], ["\u00a0"], [" ", " "]),
        # Whatever ends a line somewhere: a file of one word a line could not be read back.
        *(["a\n"], ["a\nb"], ["a\rb"], ["a\u2028b"], ["a\x85b"], ["\n"]),
    ],
)
def test_bad_words(words: list[str]) -> None:
    with raises_argument("words"):
        Vocabulary(words)


def test_fingerprint_is_that_of_the_order() -> None:
    assert Vocabulary(["a", "b"]).fingerprint == Vocabulary(["a", "b"]).fingerprint
    assert Vocabulary(["a", "b"]).fingerprint != Vocabulary(["b", "a"]).fingerprint


def test_save_and_load(tmp_path) -> None:
    vocabulary = Vocabulary.from_captions(CAPTIONS)
    vocabulary.save(tmp_path / "v.txt")
    # The line number is the id.
    lines = (tmp_path / "v.txt").read_text(encoding="utf-8").split("\n")
    assert lines[0] == "<pad>" and lines[4] == "dog" and lines[-1] == ""
    assert Vocabulary.load(tmp_path / "v.txt").words == vocabulary.words


def test_spaces_within_words_come_back_from_the_file(tmp_path) -> None:
    words = ("a", "Black footed  Albatross", " ", "a\tb", "a\u00a0b")
    Vocabulary(words).save(tmp_path / "v.txt")
    assert Vocabulary.load(tmp_path / "v.txt").words == words
    # A space behind the last line break is an entry too.
    Vocabulary(["a", " "]).save(tmp_path / "v.txt")
    assert Vocabulary.load(tmp_path / "v.txt").words == ("a", " ")


def test_scores_stand_in_the_file_and_count(tmp_path) -> None:
    scores = np.array([-0.1, -1e-30, -12.345679], np.float32)
    vocabulary = Vocabulary(["a", "b", "c"], scores)
    vocabulary.save(tmp_path / "v.txt")
    lines = (tmp_path / "v.txt").read_text(encoding="utf-8").split("\n")
    assert lines == ["<pad>\t0", "<unk>\t0", "a\t-0.1", "b\t-1e-30", "c\t-12.345679", ""]
    loaded = Vocabulary.load(tmp_path / "v.txt")
    assert loaded.words == vocabulary.words and loaded.scores.tobytes() == scores.tobytes()
    prints = [Vocabulary(["a", "b", "c"], s).fingerprint for s in (scores, scores[::-1], None)]
    assert loaded.fingerprint == prints[0] and len(set(prints)) == 3


@pytest.mark.parametrize("scores", [[1.0], [1.0, np.nan], [[1.0, 2.0]]])
def test_bad_scores(scores) -> None:
    with raises_argument("scores"):
        Vocabulary(["a", "b"], scores)
    with raises_argument("words"):
        Vocabulary(["a b"], [1.0])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<pad>\t0\n<unk>\t0\na\n",
        b"<pad>\t0\n<unk>\t0\na\tx\n",
        b"<pad>\t0\n<unk>\t0\n",
        b"dog\ncat\n",
        b"<pad>\n<unk>\n\xff\n",
        b"<pad>\n<unk>\ndog\ndog\n",
        b"<pad>\n<unk>\ndog\n\ncat\n",
    ],
)
def test_broken_files(tmp_path, content: bytes) -> None:
    path = tmp_path / "vocabulary.txt"
    path.write_bytes(content)
    # The file is at fault, so the message names it.
    with pytest.raises(DataError, match="vocabulary.txt"):
        Vocabulary.load(path)


def test_missing_file(tmp_path) -> None:
    with pytest.raises(DataError, match="none.txt"):
        Vocabulary.load(tmp_path / "none.txt")

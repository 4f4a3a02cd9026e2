"""Parts of speech: files of tags, NLTK's tagger, and tokens that become words."""

from __future__ import annotations

import builtins
import gzip
import sys

import pytest

from vsemb.errors import DataError, MissingExtraError
from vsemb.systems.language.taggers import Tagger, align_tags, open_tagger, read_tags
from vsemb.text.normalize import words_of


def tokens_of(text: str) -> list[tuple[str, str]]:
    return [tuple(token.rsplit("/", 1)) for token in text.split()]


@pytest.mark.parametrize(
    ("text", "tagged", "wanted"),
    [
        ("A dog runs .", "A/DT dog/NN runs/VBZ ./.", "DT NN VBZ"),
        ("The man's dog", "The/DT man/NN 's/POS dog/NN", "DT NN POS NN"),
        # Our `dont` begins in `do`.
        ("They don't.", "They/PRP do/VBP n't/RB ./.", "PRP VBP"),
        # Two words in one token, and one word in two.
        ("a red-haired girl", "a/DT red-haired/JJ girl/NN", "DT JJ JJ NN"),
        ("He cannot swim", "He/PRP can/MD not/RB swim/VB", "PRP MD VB"),
        ('"Hi" (there)', "``/`` Hi/UH ''/'' -LRB-/-LRB- there/EX -RRB-/-RRB-", "UH EX"),
        ("GRÖSSE größe Straße 犬 1/2", "GRÖSSE/X größe/Y Straße/Z 犬/W 1/2/CD", "X Y Z W CD CD"),
        ("... !", ".../: !/.", ""),
        ("", "", ""),
    ],
)
def test_words_take_the_tag_of_the_token_they_begin_in(text, tagged, wanted):
    [words] = words_of([text])
    assert align_tags(tokens_of(tagged), words) == wanted.split()
    assert len(words) == len(wanted.split())


@pytest.mark.parametrize(
    ("text", "tagged"),
    [
        ("a dog", "a/DT cat/NN"),
        ("a dog runs", "a/DT dog/NN"),
        ("a dog", "a/DT dog/NN runs/VBZ"),
        ("a dog", ""),
        ("", "dog/NN"),
    ],
)
def test_other_texts_do_not_come_out(text, tagged):
    assert align_tags(tokens_of(tagged), next(words_of([text]))) is None


@pytest.mark.parametrize("packed", [False, True])
def test_files_are_read_whatever_their_name(tmp_path, packed):
    content = "0\ta/DT 1/2/CD dog/NN\n\nkey 7.jpg#1\tköter/NN\n2\t\n".encode()
    file = tmp_path / "tags"
    file.write_bytes(gzip.compress(content) if packed else content)
    first, second, third = read_tags(file)
    assert first == ("0", [("a", "DT"), ("1/2", "CD"), ("dog", "NN")], 1)
    assert second == ("key 7.jpg#1", [("köter", "NN")], 3)
    assert third == ("2", [], 4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"0\ta/DT\n1 a/DT\n", "line 2: '1 a/DT' has no tab"),
        (b"0\ta/DT dog\n", "line 1: 'dog' is no word with its tag"),
        (b"0\ta/\n", "'a/' is no word"),
        (b"0\t/DT\n", "'/DT' is no word"),
        (b"0\ta/\xff\n", "cannot be read: .*decode"),
        (gzip.compress(b"0\ta/DT\n" * 99)[:-9], "cannot be read: Compressed file ended"),
        (b"\x1f\x8bnonsense", "cannot be read"),
    ],
    # The bytes hold the time, and processes must agree on names.
    ids=range(7),
)
def test_broken_files(tmp_path, content, message):
    file = tmp_path / "tags.txt"
    file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(read_tags(file))


def test_missing_files(tmp_path):
    with pytest.raises(DataError, match="nowhere cannot be read: No such file"):
        list(read_tags(tmp_path / "nowhere"))


def test_without_nltk(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "nltk"]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def refuse(name, *rest):
        if name.split(".")[0] == "nltk":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtraError, match=r"`nltk`.*vsemb\[captions\]"):
        open_tagger()


def test_without_its_model(monkeypatch):
    nltk = pytest.importorskip("nltk")
    monkeypatch.setattr(nltk.data, "path", [])
    with pytest.raises(DataError, match="nltk.downloader averaged_perceptron_tagger_eng.*NLTK_DATA"):
        open_tagger()


def test_nltk_tags_penn_tags():
    pytest.importorskip("nltk")
    try:
        tagger = open_tagger()
    except DataError as error:
        pytest.skip(str(error))
    assert "averaged_perceptron_tagger_eng" in tagger.name
    text = "Two dogs can't run after the man's red ball ."
    assert align_tags(tagger(text), next(words_of([text]))) == [
        "CD",
        "NNS",
        "MD",
        "VB",
        "IN",
        "DT",
        "NN",
        "POS",
        "JJ",
        "NN",
    ]
    assert tagger("") == []


def test_the_tagger_sees_no_more_than_words_are_made_of():
    seen = []

    class Tokenizer:
        def tokenize(self, text):
            seen.append(text)
            return text.split()

    class Tags:
        def tag(self, tokens):
            return [(token, "X") for token in tokens]

    tagger = Tagger(Tokenizer(), Tags(), "mine")
    text = " \x00a\x00dog " + "x" * 9000
    [words] = words_of([text])
    assert align_tags(tagger(text), words) == ["X"] * 3
    assert len(seen[0]) == 4096

"""Stop words from a file and from NLTK, with and without its corpus."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vsemb.errors import DataError, MissingExtraError
from vsemb.systems.language.stopwords import read_stopwords


def test_a_file_is_split_as_captions_are(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("The\n\n  on \ndon't\nthe\nit's\nél\n", encoding="utf-8")
    assert read_stopwords(str(path)) == ("'s", "dont", "it", "on", "the", "él")


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"missing\.txt cannot be read.*nltk"):
        read_stopwords(str(tmp_path / "missing.txt"))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="cannot be read"):
        read_stopwords(str(tmp_path / "bytes"))
    (tmp_path / "empty").write_text("\n...\n")
    with pytest.raises(DataError, match="no stop word"):
        read_stopwords(str(tmp_path / "empty"))


def test_nltk() -> None:
    nltk = pytest.importorskip("nltk", reason="the extra captions is not installed")
    try:
        nltk.data.find("corpora/stopwords.zip")
    except LookupError:
        pytest.skip("NLTK's corpus stopwords is not there")
    words = read_stopwords("nltk")
    assert {"the", "a", "is", "dont", "'s"} <= set(words)
    assert len(words) > 100


def test_without_the_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    nltk = pytest.importorskip("nltk", reason="the extra captions is not installed")
    from nltk.corpus.reader import WordListCorpusReader
    from nltk.corpus.util import LazyCorpusLoader

    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setattr(nltk.corpus, "stopwords", LazyCorpusLoader("stopwords", WordListCorpusReader))
    with pytest.raises(DataError, match=r"downloader stopwords.*NLTK_DATA.*stopwords=FILE") as caught:
        read_stopwords("nltk")
    assert "\n" not in str(caught.value)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nltk.corpus", None)
    with pytest.raises(MissingExtraError, match=r"vsemb\[captions\]"):
        read_stopwords("nltk")

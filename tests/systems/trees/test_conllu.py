"""Files in the CoNLL-U format: what others write is read, what is broken is named."""

from __future__ import annotations

import gzip
import os
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.systems.trees.random_trees import random_tree
from vsemb.errors import DataError
from vsemb.systems.trees.trees import Sentence, Tree, read_conllu, write_conllu


def row(place: object, word: str, head: object, relation: str = "dep", xpos: str = "_", upos: str = "_") -> str:
    return f"{place}\t{word}\t_\t{upos}\t{xpos}\t_\t{head}\t{relation}\t_\t_"


DOG = "# sent_id = s1\n# text = A dog\n" + row(1, "A", 2, "det") + "\n" + row(2, "dog", 0, "root") + "\n\n"
CAT = "# sent_id = s2\n" + row(1, "Cats", 0) + "\n\n"


def read(folder: Path, content: str | bytes) -> list[Sentence]:
    path = folder / "parses.conllu"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_conllu(path))


def test_a_file_of_universal_dependencies(tmp_path) -> None:
    # Of the documentation of the format: a multiword token, an empty node, a comment of a document.
    content = "\n".join(
        [
            "# newdoc id = d1",
            "# sent_id = weblog-1",
            "# text = vámonos al mar",
            "# text_en = let us go to the sea",
            "1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_",
            row(1, "vamos", 0, "root", upos="VERB"),
            row(2, "nos", 1, "obj", upos="PRON"),
            "2.1\tvamos\t_\t_\t_\t_\t_\t_\t0:root\t_",
            "3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_",
            row(3, "a", 5, "case"),
            row(4, "el", 5, "det:art", upos="DET"),
            row(5, "mar", 1, "obl", upos="NOUN"),
            "",
            "",
        ]
    )
    (sentence,) = read(tmp_path, content)
    tree = Tree(
        ("vamos", "nos", "a", "el", "mar"),
        (0, 1, 5, 5, 1),
        ("VERB", "PRON", "_", "DET", "NOUN"),
        ("root", "obj", "case", "det:art", "obl"),
    )
    assert sentence == Sentence("weblog-1", "vámonos al mar", tree)
    assert sentence.line == 5


def test_tags_are_those_of_the_treebank_where_there_are_any(tmp_path) -> None:
    both = row(1, "Go", 0, xpos="VB", upos="VERB") + "\n" + row(2, "on", 1, xpos="_", upos="ADP") + "\n"
    (sentence,) = read(tmp_path, both)
    assert sentence.tree.tags == ("VB", "_")
    (sentence,) = read(tmp_path, row(1, "Go", 0, "_"))
    assert sentence.tree == Tree(("Go",), (0,))
    # As CoreNLP writes: no comments, no lemma.
    assert (sentence.id, sentence.text, sentence.line) == (None, None, 1)


@pytest.mark.parametrize(
    "content",
    [
        DOG + CAT,
        (DOG + CAT).rstrip("\n"),
        "\ufeff" + DOG + CAT,
        (DOG + CAT).replace("\n", "\r\n"),
        "\n\n" + DOG + "\n  \n\n" + CAT + "\n\n",
        "# newdoc\n# a licence\n\n" + DOG + "# newpar id = 3\n" + CAT + "# the end\n",
        (DOG + CAT).replace("# sent_id = ", "#sent_id=").replace("# text = ", "#text ="),
        gzip.compress((DOG + CAT).encode()),
        gzip.compress(DOG.encode()) + gzip.compress(CAT.encode()),
    ],
    ids=["plain", "no end", "bom", "crlf", "blanks", "comments", "tight", "gzip", "gzip parts"],
)
def test_the_same_sentences(content, tmp_path) -> None:
    tree = Tree(("A", "dog"), (2, 0), relations=("det", "root"))
    cats = Tree(("Cats",), (0,), relations=("dep",))
    assert read(tmp_path, content) == [Sentence("s1", "A dog", tree), Sentence("s2", None, cats)]


@pytest.mark.parametrize("content", ["", "\n\n", "# only a comment\n", "\ufeff", gzip.compress(b"")], ids=range(5))
def test_no_sentences(content, tmp_path) -> None:
    assert read(tmp_path, content) == []


def test_words_with_spaces_and_marks(tmp_path) -> None:
    words = ("New York", " ", "#", "_", "10\u00a0000", "\u2028", "1-2")
    content = "\n".join(row(place, word, place - 1) for place, word in enumerate(words, 1))
    (sentence,) = read(tmp_path, content)
    assert sentence.tree.words == words


A, B = row(1, "A", 2), row(2, "dog", 0)


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ([A, row(3, "dog", 0)], 4),
        ([A, A], 4),
        ([A, row("02", "dog", 0)], 4),
        ([A, row("", "dog", 0)], 4),
        ([A, "# text = next", B], 4),
        ([A, B + "\t_"], 4),
        ([A, "2\tdog\t0"], 4),
        (["1 A _ _ _ _ 0 root _ _"], 3),
        (["{}"], 3),
        (["1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_"], 3),
        ([A, row(2, "dog", "_")], 3),
        ([A, row(2, "dog", "x")], 3),
        ([A, row(2, "dog", "-1")], 3),
        ([A, row(2, "dog", "٠")], 3),
        ([A, row(2, "dog", "9" * 5000)], 3),
        ([A, row(2, "dog", 3)], 3),
        ([A, row(2, "dog", 1)], 3),
        ([row(1, "A", 0), B], 3),
        ([A, B, row(3, "runs", 3)], 3),
        ([A, row(2, "", 0)], 3),
    ],
    ids=range(20),
)
def test_errors_name_file_line_and_sentence(lines, line: int, tmp_path) -> None:
    content = "\n".join(["# sent_id = s7", "# text = A dog", *lines, "", ""])
    with pytest.raises(DataError, match=rf"parses\.conllu, line {line}, sentence 's7'"):
        read(tmp_path, content)
    # Those before it are read all the same, and line numbers go on.
    sentences = read_conllu(tmp_path / "parses.conllu")
    (tmp_path / "parses.conllu").write_text(CAT + content)
    assert next(sentences).id == "s2"
    with pytest.raises(DataError, match=rf"line {line + 3}, sentence 's7'"):
        next(sentences)
    with pytest.raises(DataError, match=rf"line {line - 2}\b"):
        read(tmp_path, "\n".join(lines))


def test_bytes_that_are_no_text(tmp_path) -> None:
    with pytest.raises(DataError, match=r"parses\.conllu, line 6\b"):
        read(tmp_path, DOG.encode() + row(1, "Möwe", 0).encode("latin-1"))
    with pytest.raises(DataError, match=r"line 1\b"):
        read(tmp_path, DOG.encode("utf-16"))
    with pytest.raises(DataError, match=r"line 2\b"):
        read(tmp_path, b"\n" + bytes(3 << 20))
    with pytest.raises(DataError, match=r"'A\\x00'"):
        read(tmp_path, row(1, "A\0", 0))


def test_broken_compression_and_missing_files(tmp_path) -> None:
    noise = random.Random(1).randbytes(3000).hex()
    whole = gzip.compress((DOG + f"# noise = {noise}\n" + CAT).encode())
    for broken in (
        whole[:-9],
        whole[:-1],
        whole[:200],
        whole[:5],
        whole[:300] + b"\xff" * 9 + whole[309:],
        whole + b"x",
    ):
        with pytest.raises(DataError, match=r"parses\.conllu"):
            read(tmp_path, broken)
    for path in (tmp_path / "none.conllu", tmp_path):
        with pytest.raises(DataError):
            next(read_conllu(path))


def many(count: int) -> list[Sentence]:
    generator = np.random.default_rng(11)
    sentences = []
    for number in range(count):
        tree = random_tree(generator, int(generator.integers(1, 25)))
        if number % 2:
            names = generator.choice(["NN", "VB", "_", "det:art"], (2, len(tree))).tolist()
            tags, relations = (() if set(column) == {"_"} else tuple(column) for column in names)
            tree = replace(tree, tags=tags, relations=relations)
        text = [None, "A dog .", "", " 犬  # = \u2028"][number % 4]
        sentences.append(Sentence(None if number % 3 == 2 else f"caption {number}", text, tree))
    return sentences


@pytest.mark.parametrize("name", ["parses.conllu", "parses.conllu.gz"])
def test_what_is_written_is_read(name: str, tmp_path) -> None:
    sentences = many(200)
    path = tmp_path / name
    write_conllu(iter(sentences), path)
    assert list(read_conllu(path)) == sentences
    content = path.read_bytes()
    assert (content[:2] == b"\x1f\x8b") == name.endswith(".gz")
    os.utime(path, (0, 0))
    write_conllu(read_conllu(path), tmp_path / f"again-{name}")  # No name and no time within.
    assert (tmp_path / f"again-{name}").read_bytes() == content
    write_conllu([], path)
    assert list(read_conllu(path)) == []


def test_how_it_is_written(tmp_path) -> None:
    tree = Tree(("A", "dog"), (2, 0), ("DT", "NN"), ("det", "root"))
    write_conllu([Sentence("7", "A\r\ndog\n", tree), Sentence(None, None, Tree(("犬",), (0,)))], tmp_path / "a")
    assert (tmp_path / "a").read_text() == (
        "# sent_id = 7\n# text = A dog \n"
        "1\tA\t_\t_\tDT\t_\t2\tdet\t_\t_\n2\tdog\t_\t_\tNN\t_\t0\troot\t_\t_\n\n"
        "1\t犬\t_\t_\t_\t_\t0\t_\t_\t_\n\n"
    )


@pytest.mark.parametrize(
    "sentence",
    [
        Sentence("7", None, Tree(("a", "b"), (0, 0))),
        Sentence("7\n", None, Tree(("a",), (0,))),
        Sentence("7\r8", None, Tree(("a",), (0,))),
        Sentence("", None, Tree(("a",), (0,))),
        Sentence("7", "\ud800", Tree(("a",), (0,))),
    ],
    ids=["tree", "line end", "line break", "empty", "surrogate"],
)
def test_what_cannot_be_written_leaves_the_file_as_it_was(sentence: Sentence, tmp_path) -> None:
    for name in ("parses.conllu", "parses.conllu.gz"):
        write_conllu(many(3), tmp_path / name)
        with pytest.raises(DataError, match="^Sentence 4 "):
            write_conllu([*many(3), sentence], tmp_path / name)
        assert list(read_conllu(tmp_path / name)) == many(3)
    assert sorted(os.listdir(tmp_path)) == ["parses.conllu", "parses.conllu.gz"]

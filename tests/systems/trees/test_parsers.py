"""Parsers: what becomes of a text, which pipelines are opened, and what is said of those that are not."""

from __future__ import annotations

import concurrent.futures
import json
import shutil
import sys
import warnings
from pathlib import Path

import pytest

from tests.raising import raises_argument
from tests.systems.trees.spacy_pipeline import SENTENCES
from vsemb.errors import DataError, InvalidArgumentError, MissingExtraError
from vsemb.systems.trees.parsers import Parser, ParserInfo, open_parser, tree_of

spacy = pytest.importorskip("spacy")

TEXTS = [
    *(text for text, _, _, _ in SENTENCES),
    "Two dogs run. A man in a hat runs!",
    "Don't they chase a ball?",
    "dogs",
    "Ein Straßenhund läuft – über 東京 🐕 …",
]


@pytest.fixture(scope="module")
def parser(spacy_pipeline: Path) -> Parser:
    return open_parser(spacy_pipeline)


@pytest.fixture
def copy(spacy_pipeline: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(spacy_pipeline, tmp_path / "pipeline"))


def document(words: str, heads: list[int], relations: str):
    """A parsed document whose heads are counted from 0, a root's being itself; `_` is white space."""
    from spacy.tokens import Doc

    tokens = ["  " if word == "_" else word for word in words.split()]
    return Doc(spacy.blank("en").vocab, words=tokens, heads=heads, deps=relations.split())


def test_trees_are_those_that_spacy_makes(parser, spacy_pipeline):
    pipeline = spacy.load(spacy_pipeline)
    assert "entity_ruler" in pipeline.pipe_names
    for text, tree in zip(TEXTS, parser(TEXTS), strict=True):
        doc = pipeline(text)
        roots = [token.i for token in doc if token.head.i == token.i]
        tree.check(text)
        assert tree.words == tuple(token.text for token in doc)
        assert tree.tags == tuple(token.tag_ for token in doc)
        for token, head, relation in zip(doc, tree.heads, tree.relations, strict=True):
            if token.i not in roots:
                assert (head, relation) == (token.head.i + 1, token.dep_)
            elif token.i == roots[0]:
                assert (head, relation) == (0, "root")
            else:
                assert (head, relation) == (roots[0] + 1, "parataxis")


@pytest.mark.parametrize(("text", "heads", "relations", "tags"), SENTENCES, ids=range(len(SENTENCES)))
def test_it_parses_what_it_was_trained_on(parser, text, heads, relations, tags):
    [tree] = parser([text])
    expected = [0 if head == place else head + 1 for place, head in enumerate(heads)]
    assert tree.words == tuple(text.split())
    assert tree.heads == tuple(expected)
    assert tree.relations == tuple(relations.replace("ROOT", "root").split())
    assert tree.tags == tuple(tags.split())


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_a_tree_is_the_same_alone_and_among_others(parser, batch_size):
    alone = [parser([text])[0] for text in TEXTS]
    assert list(parser.stream(TEXTS, batch_size)) == alone
    assert parser(TEXTS[::-1]) == alone[::-1]


def test_threads_take_turns(parser):
    expected = parser(TEXTS)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(trees == expected for trees in pool.map(lambda _: parser(TEXTS), range(8)))


def test_white_space_is_single_blanks(parser):
    expected = parser(["A black dog runs"])
    for text in ("  A  black\tdog\r\nruns ", "A\u00a0black\u2003dog\u2028runs\n", "A\x00black dog \x1f runs"):
        assert parser([text]) == expected


def test_half_a_character_is_replaced(parser):
    [tree] = parser(["A \ud83d dog"])
    assert "\ufffd" in "".join(tree.words)
    assert parser(["\ud83d\udc15"])[0].words == ("\U0001f415",)


def test_later_sentences_hang_on_the_first_root():
    tree = tree_of(document("Dogs run . Two bark Loudly", [1, 1, 1, 4, 4, 5], "nsubj ROOT punct num ROOT ROOT"))
    assert tree.heads == (2, 0, 2, 5, 2, 2)
    assert tree.relations == ("nsubj", "root", "punct", "num", "parataxis", "parataxis")
    assert tree.tags == ()


def test_white_space_tokens_are_left_out():
    # The root is white space: what hangs on it directly are roots, of which the first stays one.
    tree = tree_of(document("A dog _ runs _ fast", [1, 3, 3, 4, 4, 2], "det nsubj dep dep ROOT advmod"))
    assert tree.words == ("A", "dog", "runs", "fast")
    assert tree.heads == (2, 3, 0, 3)
    assert tree.relations == ("det", "nsubj", "root", "advmod")
    tree.check("by hand")


def test_nothing_gives_nothing(parser):
    assert parser([]) == []


@pytest.mark.parametrize("text", ["", " \n\t", "\x00"], ids=["empty", "blank", "NUL"])
def test_a_text_without_a_word_is_named(parser, text):
    with raises_argument("texts[2]"):
        parser(["A dog", "runs", text])
    assert parser.refusal(text)


def test_a_text_that_is_too_long_is_named(spacy_pipeline):
    parser = open_parser(spacy_pipeline)
    assert parser.max_length == 1_000_000
    assert parser.refusal("dog " * 300_000)
    assert not parser.refusal("dog" + " " * 2_000_000)
    with pytest.raises(InvalidArgumentError, match=r"texts\[0\]") as caught:
        parser(["dog " * 300_000])
    assert len(str(caught.value)) < 300


def test_a_pipeline_that_fails_is_one_line(spacy_pipeline, monkeypatch):
    parser = open_parser(spacy_pipeline)

    def fail(texts):
        raise ValueError("[E999] no\nluck")

    monkeypatch.setattr(parser._pipeline, "pipe", fail)
    with pytest.raises(DataError, match=r"xx_tiny 0\.0\.0 .*\[E999\] no luck"):
        parser(["A dog"])


def test_what_trees_do_not_need_is_not_loaded(parser):
    assert parser._pipeline.component_names == ["tok2vec", "tagger", "parser"]


def test_a_component_of_others_keeps_all(copy, parser):
    from spacy.language import Language

    @Language.component("vsemb_test_of_others")
    def leave(doc):
        return doc

    pipeline = spacy.load(copy)
    pipeline.add_pipe("vsemb_test_of_others", last=True)
    pipeline.to_disk(copy)
    opened = open_parser(copy)
    assert "entity_ruler" in opened._pipeline.component_names
    assert opened(TEXTS) == parser(TEXTS)


def test_a_folder_is_known_by_its_files(spacy_pipeline, copy):
    first, second = open_parser(spacy_pipeline), open_parser(str(copy))
    assert first.info == second.info
    assert first.info.library == f"spaCy {spacy.__version__}"
    assert (first.info.name, first.info.version, first.info.language) == ("xx_tiny", "0.0.0", "xx")
    assert second.folder == copy.resolve()
    (copy / "meta.json").write_text((copy / "meta.json").read_text() + " ")
    assert open_parser(copy).info.fingerprint != first.info.fingerprint
    (copy / "__pycache__").mkdir()
    changed = open_parser(copy).info
    (copy / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert open_parser(copy).info == changed


def test_an_installed_pipeline_is_known_by_its_name(copy, tmp_path, monkeypatch):
    package = tmp_path / "site" / "xx_tiny_installed"
    shutil.copytree(copy, package / "xx_tiny_installed-0.0.0")
    meta = json.loads((copy / "meta.json").read_text()) | {"name": "tiny_installed"}
    for folder in (package, package / "xx_tiny_installed-0.0.0"):
        (folder / "meta.json").write_text(json.dumps(meta))
    (package / "__init__.py").write_text(
        "from spacy.util import load_model_from_init_py\n"
        "def load(**overrides):\n    return load_model_from_init_py(__file__, **overrides)\n"
    )
    monkeypatch.syspath_prepend(package.parent)
    opened = open_parser("xx_tiny_installed")
    assert opened.folder is None
    assert (opened.info.name, opened.info.fingerprint) == ("xx_tiny_installed", None)
    assert opened._pipeline.component_names == ["tok2vec", "tagger", "parser"]
    assert opened(TEXTS) == open_parser(copy)(TEXTS)


def test_a_pipeline_without_tagger_gives_no_tags(copy):
    pipeline = spacy.load(copy, exclude=["tagger"])
    pipeline.to_disk(copy / "untagged")
    [tree] = open_parser(copy / "untagged")(["Two dogs chase a ball ."])
    assert tree.tags == ()
    assert tree.heads == (2, 3, 0, 5, 3, 3)


def test_another_spacy_is_told_in_one_line(copy):
    meta = json.loads((copy / "meta.json").read_text())
    (copy / "meta.json").write_text(json.dumps(meta | {"spacy_version": ">=3.1.0,<3.2.0"}))
    lines: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_parser(copy, report=lines.append)
        open_parser(copy)
    assert len(lines) == 1
    assert "W095" in lines[0] and str(copy) in lines[0]


@pytest.mark.parametrize(
    "given",
    [
        "en_core_web_unheard_of",
        "numpy",
        "no/such/folder",
        "{copy}/meta.json",
        "{copy}/parser",
        "{copy}/..",
    ],
)
def test_what_is_no_pipeline(copy, tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    with raises_argument("name_or_path"):
        open_parser(given.format(copy=copy))


def test_a_pipeline_without_a_parser(copy):
    pipeline = spacy.load(copy)
    pipeline.disable_pipe("parser")
    pipeline.to_disk(copy / "disabled")
    pipeline.remove_pipe("parser")
    pipeline.to_disk(copy / "removed")
    for name in ("disabled", "removed"):
        with raises_argument("name_or_path"):
            open_parser(copy / name)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("parser/model", b"\x00" * 50),
        ("parser/moves", b""),
        ("vocab/strings.json", b"{"),
        ("meta.json", b"[]"),
        ("config.cfg", b"[nlp"),
        ("config.cfg", b"[nlp]\nlang = 7\n"),
        ("config.cfg", b'[nlp]\nlang="xx"\npipeline=["parser"]\n[components.parser]\nfactory="unheard_of"\n'),
    ],
    ids=["model", "moves", "strings", "meta", "unreadable config", "wrong config", "unknown factory"],
)
def test_a_broken_pipeline_is_one_line(copy, file, content):
    (copy / file).write_bytes(content)
    with pytest.raises((DataError, InvalidArgumentError)) as caught:
        open_parser(copy)
    assert str(copy) in str(caught.value) and "\n" not in str(caught.value)


def test_without_spacy_its_extra_is_named(spacy_pipeline, monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingExtraError, match=r"vsemb\[parse\]"):
        open_parser(spacy_pipeline)


@pytest.mark.parametrize("content", [None, [], {}, {"library": "spaCy"}, {"name": 1}], ids=str)
def test_what_names_no_parser(content):
    with pytest.raises(DataError, match="library"):
        ParserInfo.from_json(content)


def test_more_than_a_parser_may_be_said():
    info = ParserInfo("spaCy 3.8.0", "en_tiny", "0.0.0", "en", "ab" * 32)
    assert ParserInfo.from_json(info.to_json() | {"trees_from": ["a.conllu"]}) == info
    assert "abababab" in str(info)

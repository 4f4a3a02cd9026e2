"""A model of dependency trees behind the server: the client's trees, and texts that it parses first."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.raising import raises_argument
from tests.serving.asking import ask
from tests.systems.trees.tree_model import DIM, TEXTS, chain, parse, tree_corpus, tree_parts
from vsemb.errors import DataError
from vsemb.exporting import ServedModel
from vsemb.serving import Client
from vsemb.serving.server import Server
from vsemb.systems.trees.client import TextParser, to_labelled_texts, trees_in_parts
from vsemb.systems.trees.signature import TreeInput
from vsemb.systems.trees.trees import Tree
from vsemb.text.normalize import MAX_BYTES

PREDICT = "/v1/models/trees:predict"


def chains(texts: list[str]) -> list[tuple[list[str], list[int]]]:
    return [chain(text) for text in texts]


@pytest.fixture(scope="module")
def parts():
    return tree_parts()


@pytest.fixture(scope="module")
def wanted(parts) -> np.ndarray:
    model, trees = parts
    served = ServedModel(model, TreeInput(trees.tokenizer, parse))
    return served.encode_text(TEXTS)["embedding"].numpy()


@pytest.fixture(scope="module")
def server(tree_export):
    with Server({"trees": tree_export}, port=0, rest_port=0, poll=0) as server:
        yield server


def url_of(server, protocol: str) -> str:
    return f"{protocol}://127.0.0.1:{server.rest_port if protocol == 'http' else server.port}"


@pytest.fixture(params=["http", "grpc"])
def url(request, server) -> str:
    return url_of(server, request.param)


@pytest.mark.slow
def test_trees_are_embedded(url, wanted):
    with Client(url, "trees", timeout=60) as client:
        first = Tree(*map(tuple, chain(TEXTS[0])))
        embedded = client.encode_tree([first, chain(TEXTS[1]), ([], []), (["a", "b"], [2, 1]), chain(TEXTS[2])])
        assert embedded.valid.tolist() == [True, True, False, False, True]
        assert embedded.embedding.dtype == np.float32 and not embedded.embedding[2:4].any()
        np.testing.assert_allclose(embedded.embedding[[0, 1, 4]], wanted, atol=1e-6)
        assert client.encode_tree([]).embedding.shape == (0, DIM)
        assert not client.encode_tree([([], [])]).valid.any()


@pytest.mark.slow
def test_texts_are_parsed_before_the_call(url, wanted):
    calls = []

    def record(texts):
        calls.append(texts)
        return chains(texts)

    with Client(url, "trees", timeout=60, parser=record) as client:
        embedded = client.encode_text([TEXTS[0], "", TEXTS[1].encode(), *parse(TEXTS[2:]), " \n"])
        assert embedded.valid.tolist() == [True, False, True, True, False]
        np.testing.assert_allclose(embedded.embedding[embedded.valid], wanted, atol=1e-6)
        assert calls == [[TEXTS[0], TEXTS[1]]]
        assert client.encode_text(["", " "]).valid.tolist() == [False, False] and len(calls) == 1
        assert client.encode_text([]).embedding.shape == (0, DIM)


def parse_to_trees(texts: list[str]) -> list[Tree]:
    return [Tree(*map(tuple, tree)) for tree in chains(texts)]


@pytest.mark.slow
@pytest.mark.parametrize("parser", [parse, parse_to_trees], ids=["texts", "trees"])
def test_what_a_parser_may_give(parser, server, wanted):
    with Client(url_of(server, "http"), "trees", timeout=60, parser=parser) as client:
        np.testing.assert_allclose(client.encode_text(TEXTS).embedding, wanted, atol=1e-6)


@pytest.mark.slow
def test_searching(url, wanted):
    corpus = tree_corpus()
    best = np.argsort(-wanted @ corpus.embeddings.T, axis=1)[:, :2]
    with Client(url, "trees", timeout=60, parser=parse) as client:
        for hits in (client.search_text(TEXTS, k=2), client.search_tree(chains(TEXTS), k=2)):
            assert hits.ids.tolist() == corpus.ids[best].tolist() and hits.valid.all()
        hits = client.search_tree([([], []), chain(TEXTS[0])], k=4)
        assert [len(keys) for keys in hits.keys] == [0, 4]


@pytest.mark.slow
def test_without_a_parser_the_fix_is_named(url):
    with Client(url, "trees", timeout=60) as client:
        for call in (client.encode_text, client.search_text):
            with raises_argument("parser"):
                call([TEXTS[0]])
        # Nothing to parse, no parser.
        assert client.encode_text(["", *parse(TEXTS[:1])]).valid.tolist() == [False, True]


@pytest.mark.slow
def test_a_parser_is_opened_once_and_when_it_is_needed(server, monkeypatch, wanted):
    from vsemb.systems.trees import parsers

    opened = []

    def open_parser(name):
        opened.append(name)
        return parse_to_trees

    monkeypatch.setattr(parsers, "open_parser", open_parser)
    with Client(url_of(server, "http"), "trees", timeout=60, parser=Path("pipeline")) as client:
        client.encode_tree(chains(TEXTS))
        assert opened == []
        with ThreadPoolExecutor(4) as pool:
            for found in pool.map(client.encode_text, [TEXTS] * 4):
                np.testing.assert_allclose(found.embedding, wanted, atol=1e-6)
        assert opened == [Path("pipeline")]


@pytest.mark.slow
def test_parts_are_put_together_in_order(server, wanted):
    with Client(url_of(server, "http"), "trees", timeout=60, batch_size=2) as client:
        embedded = client.encode_tree(chains(TEXTS) * 3)
    np.testing.assert_allclose(embedded.embedding, np.tile(wanted, (3, 1)), atol=1e-6)


@pytest.mark.slow
def test_many_clients_with_trees_of_many_lengths(server, wanted):
    def embed(number: int) -> np.ndarray:
        return client.encode_tree([chain(TEXTS[number % 3])]).embedding[0]

    with Client(url_of(server, "http"), "trees", timeout=60) as client, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(embed, range(48)))
    np.testing.assert_allclose(found, np.tile(wanted, (16, 1)), atol=1e-6)


@pytest.mark.slow
def test_rows_over_rest(server, wanted):
    tree = {"tokens": ["The", "dog", "runs"], "heads": [2, 3, 0]}
    led = {"tokens": ["", "a", "red", "ball"], "heads": [0, 2, 3, 0]}
    for row, instance in enumerate((tree, led)):
        status, content = ask(server.rest_port, "POST", PREDICT, {"instances": [instance]})
        assert status == 200 and content["predictions"][0]["valid"] is True
        np.testing.assert_allclose(content["predictions"][0]["embedding"], wanted[row], atol=1e-6)
    body = {"signature_name": "search_tree", "instances": [{**tree, "k": 2}]}
    status, content = ask(server.rest_port, "POST", PREDICT, body)
    assert status == 200 and len(content["predictions"][0]["ids"]) == 2
    status, content = ask(server.rest_port, "POST", PREDICT, {"instances": [{"tokens": [], "heads": []}]})
    assert status == 200 and content["predictions"][0]["valid"] is False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            {"instances": [{"tokens": ["a", "b"], "heads": [2, 0]}, {"tokens": ["a"], "heads": [0]}]},
            r"element: 1 key: .* Expecting tensor size: 2 but got: 1",
        ),
        ({"instances": [{"tokens": ["a", "b"], "heads": [0]}]}, "tokens and heads differ in shape"),
        ({"instances": [{"tokens": ["a"], "heads": ["0"]}]}, "heads.*not of expected type: int32"),
        ({"instances": [{"tokens": ["a"]}]}, "keys must be equal to: heads,tokens"),
        ({"instances": [{"tokens": "a", "heads": 0}]}, "has shape"),
        ({"instances": ["a dog"]}, "list of objects as multiple input tensors required"),
        ({"inputs": {"tokens": [["a", "b"], ["a"]], "heads": [[2, 0], [0]]}}, "unexpected size"),
        ({"signature_name": "encode_text", "instances": ["a dog"]}, "encode_text.* not found"),
    ],
    ids=["ragged", "lengths", "type", "missing", "no rows", "text", "columns", "signature"],
)
def test_what_is_no_request(body, says, server):
    status, content = ask(server.rest_port, "POST", PREDICT, body)
    assert status == 400 and re.search(says, content["error"]), content


@pytest.mark.parametrize(
    "trees",
    [
        ([], []),
        "a dog",
        Tree(("dog",), (0,)),
        [(["a"], [0]), (["a", "dog"], [0])],
        [("dog", [0])],
        [([3], [0])],
        [(["a"], [0.5])],
        [(["a"], [2**31])],
        [(["a"], [2**63])],
        [(["a"], [-(2**63)])],
        [(["a", "b"], [[2], [0, 0]])],
        [(None, [0])],
        None,
        [(["a"], ["0"])],
        ["a\t0"],
        [3],
    ],
    ids=[
        *("a pair", "a text", "a tree", "lengths", "a word", "numbers", "fractions", "too large"),
        *("far too large", "far too small", "ragged", "no words", "nothing", "digits"),
        *("a parsed text", "a number"),
    ],
)
def test_what_is_no_list_of_trees(trees):
    with raises_argument("trees"):
        next(trees_in_parts(trees, 64))


def test_a_long_tree_does_not_widen_the_others():
    trees = [(["dogs"], [0])] * 130
    trees[70:70] = [(["dogs"] * 20_000, [0] * 20_000)]
    parts = list(trees_in_parts(trees, 64))
    assert [tokens.shape for tokens, _ in parts] == [(64, 2), (6, 2), (5, 20_001), (56, 2)]
    assert [heads.shape for _, heads in parts] == [tokens.shape for tokens, _ in parts]
    # Captions stay together, however many may.
    captions = [(["dogs"] * size, [0] * size) for size in range(1, 65)] * 40
    assert [len(tokens) for tokens, _ in trees_in_parts(captions, 1024)] == [1024, 1024, 512]
    assert [tokens.shape for tokens, _ in trees_in_parts([], 64)] == [(0, 1)]


@pytest.mark.slow
def test_a_long_tree_among_others_is_answered_in_its_place(url, wanted):
    long = (["dog"] * 30_000, [*range(30_000)])
    with Client(url, "trees", timeout=60) as client:
        trees = [*chains(TEXTS), long, *chains(TEXTS)]
        embedded = client.encode_tree(trees)
        assert embedded.valid.all()
        np.testing.assert_allclose(embedded.embedding[[0, 1, 2, 4, 5, 6]], np.tile(wanted, (2, 1)), atol=1e-6)
        ranked = client.search_tree(trees, k=2)
        alone = client.search_tree(trees[:3], k=2)
    assert ranked.ids.shape == (7, 2) and ranked.keys[4:] == alone.keys and len(ranked.keys) == 7


def test_as_much_of_a_text_is_parsed_as_models_of_texts_read():
    given = []
    TextParser(lambda texts: given.extend(texts) or chains(texts))([b" \n" * 5000 + b"a" * 9000, b"a \0 b"])
    assert given == ["a" * MAX_BYTES, "a   b"]


def test_odd_words_are_sent_as_they_are():
    ((tokens, heads),) = trees_in_parts([([b"\xed\xa0\x80", b"\xff"], np.array([2, 0]))], 64)
    assert tokens.tolist() == [[b"", b"\xed\xa0\x80", b"\xff"]] and heads.tolist() == [[0, 2, 0]]
    with raises_argument("trees[1][0]"):
        next(trees_in_parts([(["a"], [0]), (["\ud800"], [0])], 64))
    assert heads.dtype == np.int32 and next(trees_in_parts([], 64))[0].shape == (0, 1)


def test_trees_with_relations_are_sent_as_parsed_texts():
    tree = Tree(("a", "dog"), (2, 0), relations=("det", "root"))
    assert to_labelled_texts([tree, ([b"\xff"], [0]), ([], [])]) == [tree.labelled_text.encode(), b"\xff\t0", b""]
    for wrong in (
        replace(tree, relations=("det",)),
        replace(tree, words=("a\tb", "dog")),
        replace(tree, words=("a", "\n")),
    ):
        with raises_argument("trees"):
            to_labelled_texts([wrong])


def test_parsers_that_are_none():
    with raises_argument("parser"):
        Client("http://host", "trees", parser=3)
    with raises_argument("parser"):
        TextParser(lambda texts: [([], [])])([b"a", b"b"])
    with pytest.raises(DataError):
        TextParser(None)([b"a\tb"])


@pytest.mark.slow
def test_trees_over_rest_need_no_tensorflow(server):
    code = """
        import json, sys
        from vsemb.serving.client import Client

        def parse(texts):
            return [(text.split(), [0] + [1] * (len(text.split()) - 1)) for text in texts]

        with Client(sys.argv[1], "trees", timeout=60, parser=parse) as client:
            valid = client.encode_text(["a dog", ""]).valid.tolist()
        heavy = [name for name in ("tensorflow", "keras", "grpc", "spacy") if name in sys.modules]
        print(json.dumps([valid, heavy]))
    """
    command = [sys.executable, "-c", textwrap.dedent(code), url_of(server, "http")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[True, False], []]

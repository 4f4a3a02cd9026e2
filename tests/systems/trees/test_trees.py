"""Trees: what is one, and the text that holds one."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from tests.systems.trees.random_trees import random_tree
from vsemb.errors import DataError
from vsemb.systems.trees.trees import Tree, is_parsed

TREE = Tree(("A", "dog", "runs"), (2, 3, 0), ("DT", "NN", "VBZ"), ("det", "nsubj", "root"))
# The arc from dog to a crosses the one from runs to fast: non-projective.
CROSSING = Tree(("a", "fast", "dog", "runs"), (3, 4, 0, 3))


@pytest.mark.parametrize("tree", [TREE, CROSSING, Tree(("犬",), (0,)), Tree(("New York", "#"), (2, 0))], ids=str)
def test_trees(tree: Tree) -> None:
    tree.check("sentence 1")
    assert is_parsed(tree.text)
    assert Tree.from_text(tree.text) == replace(tree, tags=(), relations=())


def test_the_text_with_relations() -> None:
    assert TREE.labelled_text == "A\t2\tdet\ndog\t3\tnsubj\nruns\t0\troot"
    assert CROSSING.labelled_text == CROSSING.text
    assert is_parsed(TREE.labelled_text) and not is_parsed("a\t0\t") and not is_parsed("a\t0\tb\tc")
    assert Tree.from_text(TREE.labelled_text) == replace(TREE, tags=())
    for text in ("a\t2\tdet\nb\t0", "a\t0\tb\tc"):
        with pytest.raises(DataError):
            Tree.from_text(text)


def test_the_text_of_a_tree() -> None:
    assert TREE.text == "A\t2\ndog\t3\nruns\t0"
    assert len(TREE) == 3


@pytest.mark.parametrize("text", ["A dog runs", "A dog\truns", "A\t2\ndog", "\t0", "a\t2\n", "a\tb\t0", "a\t-1"])
def test_a_tab_in_a_raw_text_is_white_space(text: str) -> None:
    assert not is_parsed(text)


@pytest.mark.parametrize(
    ("words", "heads"),
    [
        ((), ()),
        (("a", "b"), (0,)),
        (("a",), (0, 1)),
        (("a", "b"), (2, 3)),
        (("a", "b"), (-1, 0)),
        (("a", "b"), (0, 1.0)),
        (("a", "b"), (False, 1)),
        (("a", "b"), (0, None)),
        (("a", "b", "c"), (2, 3, 1)),
        (("a", "b", "c"), (0, 1, 0)),
        (("a", "b", "c"), (0, 2, 1)),
        (("a", "b", "c", "d"), (0, 3, 4, 2)),
        (("a", "b", "c", "d"), (3, 0, 4, 3)),
        (("a", ""), (0, 1)),
        (("a", "b\tc"), (0, 1)),
        (("a", "b\nc"), (0, 1)),
        (("a\r", "b"), (0, 1)),
        (("a\0", "b"), (0, 1)),
        (("a", "\ud800"), (0, 1)),
        (("a", 5), (0, 1)),
    ],
    ids=range(20),
)
def test_what_is_no_tree(words, heads) -> None:
    with pytest.raises(DataError, match="^Sentence 7: "):
        Tree(words, heads).check("Sentence 7")


@pytest.mark.parametrize(
    "columns",
    [
        {"tags": ("DT",)},
        {"relations": ("det",) * 4},
        {"tags": ("DT", "", "VB")},
        {"relations": ("det", "a\tb", "root")},
    ],
    ids=["few", "many", "empty", "tab"],
)
def test_tags_and_relations_are_checked(columns) -> None:
    with pytest.raises(DataError, match="^S: "):
        replace(TREE, **columns).check("S")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A dog",
        "a\t0\n",
        "\na\t0",
        "a\t",
        "a\t0\t",
        "a\tb\t0",
        "\t0",
        "a\t-1",
        "a\t+0",
        "a\t 0",
        "a\t0\r\nb\t1",
    ]
    + [
        "a\t٠",
        "a\t0000000000",
        "a\t1e0",
        "a\t0\nb\t0",
        "a\t2\nb\t1",
        "a\t0\nb\t3",
        f"a\t{'9' * 5000}",
        "a\0\t0",
    ],
    ids=range(20),
)
def test_texts_that_hold_no_tree(text: str) -> None:
    with pytest.raises(DataError):
        Tree.from_text(text)


def test_random_trees_and_what_breaks_them() -> None:
    generator = np.random.default_rng(3)
    for _ in range(300):
        tree = random_tree(generator, int(generator.integers(1, 20)))
        tree.check("S")
        assert Tree.from_text(tree.text) == tree
        heads = np.array(tree.heads)
        root = tree.heads.index(0)
        with pytest.raises(DataError):  # The root hangs on itself.
            replace(tree, heads=tuple((heads + (np.arange(len(tree)) == root) * (1 + root)).tolist())).check("S")
        if len(tree) > 1:
            place = int(generator.choice(np.flatnonzero(heads)))
            heads[place] = 0
            with pytest.raises(DataError):
                replace(tree, heads=tuple(heads.tolist())).check("S")


@pytest.mark.parametrize("shape", ["chain", "backwards", "star"])
def test_long_sentences(shape: str) -> None:
    size = 100_000
    heads = {
        "chain": tuple(range(size)),
        "backwards": (*range(2, size + 1), 0),
        "star": (0, *[1] * (size - 1)),
    }[shape]
    tree = Tree(("w",) * size, heads)
    began = time.process_time()
    tree.check("S")
    assert Tree.from_text(tree.text) == tree
    with pytest.raises(DataError):
        Tree(("w",) * (size + 2), (*heads, size + 2, size + 1)).check("S")
    # It takes 0.2 s; a way from every word up to the root would be 5e9 steps.
    assert time.process_time() - began < 20

"""WordNet's hierarchy: format, edges, closures; a miniature one, and the real one where it is."""

from __future__ import annotations

import os

import numpy as np
import pytest

from pipelines.hypernymy.wordnet import (
    PairSet,
    corrupt,
    labelled_pairs,
    read_wordnet,
    split_pairs,
    transitive_closure,
)
from tests.data.wordnet_files import LICENCE, TINY, concept_line, write_wordnet
from tests.oracles import oracle
from tests.raising import raises_argument
from vsemb.errors import DataError

REAL = os.environ.get("VSEMB_WORDNET")


def slow_paths(edges: list[list[int]]) -> list[tuple[int, int]]:
    """Walks from every concept to the top, one row for every path."""
    above: dict[int, list[int]] = {}
    for low, high in edges:
        above.setdefault(low, []).append(high)

    def walk(concept: int) -> list[int]:
        return [node for high in above.get(concept, []) for node in (high, *walk(high))]

    return sorted((low, high) for low in above for high in walk(low))


def test_concepts_and_edges(tmp_path):
    wordnet = read_wordnet(write_wordnet(tmp_path))
    assert wordnet.names[:2] == ["entity.n.00000100", "animal.n.00000200"]
    assert wordnet.words() == list(TINY)
    assert wordnet.edges.dtype == np.int32
    # Lassie is an instance; the verb that every concept points to is no concept.
    assert wordnet.edges.tolist() == [[1, 0], [2, 1], [3, 1], [4, 2], [4, 3], [5, 4]]


def test_a_hypernym_named_twice_is_one_edge(tmp_path):
    top = concept_line("00000001", ["top"], [])
    low = concept_line("00000002", ["low"], [("@", "00000001", "n"), ("@i", "00000001", "n")])
    (tmp_path / "data.noun").write_text(top + low)
    assert read_wordnet(tmp_path).edges.tolist() == [[1, 0]]


def test_names_keep_dots_and_sixteen_words(tmp_path):
    # w_cnt is hexadecimal: 10 means sixteen words.
    words = ["St._Bernard", *(f"word{number}" for number in range(15))]
    (tmp_path / "data.noun").write_text(LICENCE + concept_line("00000001", words, []))
    wordnet = read_wordnet(tmp_path)
    assert wordnet.names == ["St._Bernard.n.00000001"]
    assert wordnet.words() == ["St._Bernard"]


def test_closure_of_the_diamond():
    case = oracle("transitive_closure_diamond")
    names = sorted({name for edge in case.inputs["edges"] for name in edge})
    edges = np.array([[names.index(name) for name in edge] for edge in case.inputs["edges"]])
    unique = transitive_closure(edges)
    assert [[names[low], names[high]] for low, high in unique] == case.expected["unique_pairs"]
    assert len(unique) == case.expected["n_unique"]
    assert len(transitive_closure(edges, paths=True)) == case.expected["n_rows_if_not_deduplicated"]


@pytest.mark.parametrize("seed", range(10))
def test_closure_against_a_walk(seed):
    generator = np.random.default_rng(seed)
    # Edges to smaller numbers only, then renamed: no circle, and no order to lean on.
    edges = np.array([(low, generator.integers(low)) for low in range(1, 12) for _ in range(2)])
    edges = np.unique(generator.permutation(12)[edges], axis=0)
    paths = slow_paths(edges.tolist())
    assert list(map(tuple, transitive_closure(edges, paths=True).tolist())) == paths
    assert list(map(tuple, transitive_closure(edges).tolist())) == sorted(set(paths))
    assert transitive_closure(edges).dtype == np.int32


def test_closure_of_nothing():
    assert transitive_closure(np.empty((0, 2), np.int32)).shape == (0, 2)


@pytest.mark.parametrize("paths", [False, True])
@pytest.mark.parametrize("edges", [[[0, 0]], [[0, 1], [1, 2], [2, 1]], [[3, 0], [0, 1], [1, 0], [2, 3]]])
def test_circles_are_found(edges, paths):
    with pytest.raises(DataError, match="cycle"):
        transitive_closure(np.array(edges), paths=paths)


def test_circle_in_a_file_is_named(tmp_path):
    write_wordnet(tmp_path, {"top": [], "hen": ["egg"], "egg": ["hen"], "chick": ["hen"]})
    with pytest.raises(DataError, match=r"data\.noun.*(hen|egg|chick)"):
        read_wordnet(tmp_path)


GOOD = concept_line("00000001", ["top"], [])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "must contain concepts; got 0"),
        (LICENCE, "must contain concepts; got 0"),
        (GOOD + "00000002 03 n 01 low\n", "line 2 .* ends too early"),
        (GOOD + "00000002 03 n 01 low 0 002 @ 00000001 n 0000 | gloss\n", "2 pointers announced, 4"),
        (GOOD + "00000002 03 n zz low 0 000 | gloss\n", "line 2 .* 'zz'"),
        (GOOD + "00000002 03 n 00 000 | gloss\n", "line 2 "),
        (GOOD + "2 03 n 01 low 0 000 | gloss\n", "line 2 .*'2'"),
        (GOOD + "00000002 03 v 01 run 0 000 | gloss\n", "line 2 .*'v'"),
        (GOOD + GOOD, "line 2: .*00000001"),
        (GOOD + concept_line("00000002", ["low"], [("@", "00000009", "n")]), "line 2: .*00000009"),
    ],
)
def test_broken_files(tmp_path, lines, message):
    (tmp_path / "data.noun").write_text(lines)
    with pytest.raises(DataError, match=message) as caught:
        read_wordnet(tmp_path)
    assert str(tmp_path / "data.noun") in str(caught.value)
    if lines.startswith(GOOD):  # Without the line, the concept of the first.
        said = []
        wordnet = read_wordnet(tmp_path, said.append)
        assert wordnet.names[0] == "top.n.00000001" and len(wordnet.edges) == 0
        assert len(said) == 1 and said[0].startswith("left out: ") and "line 2" in said[0]


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "data.noun").write_bytes(GOOD.encode() + b"00000002 03 n 01 \xff 0 000 | gloss\n")
    with pytest.raises(DataError, match="line 2"):
        read_wordnet(tmp_path)
    (tmp_path / "data.noun").write_bytes(GOOD.encode() + b"short\n\xff\n")
    with pytest.raises(DataError, match="line 2 .*; .*line 3 "):
        read_wordnet(tmp_path)
    with pytest.raises(DataError, match="nowhere"):
        read_wordnet(tmp_path / "nowhere")


@pytest.mark.real_data
@pytest.mark.skipif(not REAL, reason="VSEMB_WORDNET does not name a folder")
def test_wordnet_3_0():
    wordnet = read_wordnet(str(REAL))
    assert len(wordnet.names) == len(set(wordnet.names)) == 82_115
    assert len(wordnet.edges) == 84_427
    assert len(transitive_closure(wordnet.edges)) == 743_241
    assert len(transitive_closure(wordnet.edges, paths=True)) == 837_888
    assert "dog.n.02084071" in wordnet.names


def all_pairs(concepts: int) -> np.ndarray:
    return np.stack(np.meshgrid(range(concepts), range(concepts), indexing="ij"), axis=-1).reshape(-1, 2)


@pytest.mark.parametrize("seed", range(5))
def test_membership_of_every_pair(seed):
    generator = np.random.default_rng(seed)
    pairs = generator.integers(9, size=(20, 2)).astype(np.int32)
    known = PairSet(pairs, concepts=9)
    every = generator.permutation(all_pairs(9))
    slow = {(int(low), int(high)) for low, high in pairs}
    assert known.contains(every).tolist() == [tuple(pair) in slow for pair in every.tolist()]
    assert len(known) == len(slow)


def test_numbers_beyond_32_bits():
    # 82114 * 82115 + 82113 does not fit into int32.
    pair = np.array([[82114, 82113]], np.int32)
    known = PairSet(pair, concepts=82115)
    assert known.contains(np.concatenate([pair, pair - 1])).tolist() == [True, False]


def test_empty_set_and_strangers():
    assert PairSet(np.empty((0, 2), np.int32), 3).contains(all_pairs(3)).sum() == 0
    for wrong in (-1, 3):
        with pytest.raises(DataError, match=str(wrong)):
            PairSet(np.array([[0, wrong]]), 3)


def test_split_is_a_partition_by_seed():
    pairs = np.arange(40, dtype=np.int32).reshape(20, 2)
    split = split_pairs(pairs, held_out=3, seed=1)
    assert (len(split.train), len(split.dev), len(split.test)) == (14, 3, 3)
    together = np.concatenate([split.train, split.dev, split.test])
    assert sorted(together.tolist()) == pairs.tolist()
    assert split_pairs(pairs, held_out=3, seed=1).test.tolist() == split.test.tolist()
    assert split_pairs(pairs, held_out=3, seed=2).test.tolist() != split.test.tolist()
    for held_out in (0, 10):
        with raises_argument("held_out"):
            split_pairs(pairs, held_out=held_out)


def test_any_corruption_replaces_one_end_by_anything():
    pairs = np.tile([[3, 7]], (4000, 1))
    false = corrupt(pairs, 10, np.random.default_rng(0))
    assert false.dtype == np.int32
    kept = false == pairs
    assert kept.any(axis=1).all()
    # One end in two, less the tenth of draws that replace it by itself: 0.55 of 4000, 5 deviations = 157.
    assert abs(kept[:, 0].sum() - 2200) < 160
    # Every concept comes in place of each end.
    assert set(false[~kept[:, 0], 0]) == set(range(10)) - {3}
    assert set(false[~kept[:, 1], 1]) == set(range(10)) - {7}
    # True pairs and pairs with itself are not kept away.
    assert (false == [3, 7]).all(axis=1).any()
    assert (false[:, 0] == false[:, 1]).any()


def test_filtered_corruption_is_false():
    # Everything is below 0, so nothing false comes of replacing the first of (x, 0).
    pairs = np.array([[low, 0] for low in range(1, 8)] * 300)
    known = PairSet(pairs, 8)
    false = corrupt(pairs, 8, np.random.default_rng(0), known)
    assert not known.contains(false).any()
    assert (false[:, 0] != false[:, 1]).all()
    assert ((false == pairs).sum(axis=1) == 1).all()
    assert set(false[:, 1]) == set(range(1, 8))


def test_corruption_by_seed():
    pairs = np.tile([[3, 7]], (50, 1))
    drawn = [corrupt(pairs, 10, np.random.default_rng(seed)).tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_no_false_pair_to_be_had():
    # Of the four pairs of two concepts (0, 0) and (1, 1) are no candidates and (0, 1) is true.
    pairs = np.array([[0, 1]])
    with pytest.raises(DataError, match=r"\(0, 1\)"):
        corrupt(pairs, 2, np.random.default_rng(0), PairSet(pairs, 2))


def test_labels():
    pairs = np.array([[0, 1], [0, 2]])
    both, labels = labelled_pairs(pairs, 3, seed=0, known=PairSet(pairs, 3))
    assert both[:2].tolist() == pairs.tolist()
    assert labels.tolist() == [1, 1, 0, 0]
    assert not PairSet(pairs, 3).contains(both[2:]).any()

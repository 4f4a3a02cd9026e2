"""How answers are written down and compared."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from vsemb.exporting.reference_outputs import Tie, compare, from_json, golden_k, to_json

RANKED = {"ids": Tie("ranked", "scores"), "keys": Tie("ranked", "scores")}
CHOSEN = {"regions": Tie("chosen", "scores")}
PERMUTED = {"texts": Tie("permuted", "log_probs")}


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.float32([[0.1, -1e-30], [np.pi, 0]]), "float32"),
        (np.array([2**53 + 1, -1]), "int64"),
        (np.array([3, 0], np.int32), "int32"),
        (np.array([True, False]), "bool"),
        (np.array([b"a dog", b"\xff\xfe", "é".encode(), b"", b"a\x00b"], object), "string"),
        (np.array([[b"a", b"\xff"], [b"", b"b"]], object), "string"),
        (np.zeros((2, 0), np.float32), "float32"),
        (np.zeros((2, 0), object), "string"),
    ],
)
def test_values_come_back_bit_for_bit(values, dtype):
    found = from_json(json.loads(json.dumps(to_json(values))), dtype)
    assert found.dtype == values.dtype and found.shape == values.shape
    assert found.tolist() == values.tolist()


def test_bytes_of_fixed_length_are_written_as_others():
    assert to_json(np.array([b"a dog", b"\xff"])) == ["a dog", {"b64": "/w=="}]


@pytest.mark.parametrize("shape", [(None, 3, 2), (None, None, 2)], ids=["fixed", "open"])
def test_vectors_of_zeros_in_sets_are_empty_lists(shape):
    values = np.float32([[[1, 0.1], [0, 0], [0, 2]], [[0, 0], [0, 0], [0, 0]]])
    written = to_json(values)
    assert written == [[[1, 0.1], [], [0, 2]], [[], [], []]]
    found = from_json(json.loads(json.dumps(written)), "float32", shape)
    assert found.dtype == np.float32 and np.array_equal(found, values)
    # As numbers they are read too.
    assert np.array_equal(from_json(values.tolist(), "float32", shape), values)


@pytest.mark.parametrize("values", [None, "a", 3, {"b64": ""}])
def test_what_is_no_list_is_refused(values):
    with pytest.raises(ValueError, match="not a list"):
        from_json(values, "float32")


def answer(**changed):
    found = {
        "embedding": np.float32([[3, 4], [0, 0]]),
        "valid": np.array([True, False]),
    }
    return {**found, **changed}


@pytest.mark.parametrize(
    ("got", "problem"),
    [
        (answer(), None),
        # 0.02 of 4 is 0.005.
        (answer(embedding=np.float32([[3.02, 4], [0, 0]])), None),
        (answer(embedding=np.float32([[3.08, 4], [0, 0]])), "differs by 2.0e-02 > 1e-02"),
        (answer(embedding=np.float32([[np.nan, 4], [0, 0]])), "embeddings? that are not finite"),
        (answer(embedding=np.zeros((2, 3), np.float32)), r"embedding of shape \(2, 3\) instead of \(2, 2\)"),
        (answer(embedding=np.zeros((2, 2))), "embedding as float64 instead of float32"),
        (answer(valid=np.array([True, True])), r"other rows valid: \[True, True\] instead of \[True, False\]"),
        ({"embedding": np.zeros((2, 2), np.float32)}, "gives embedding instead of embedding, valid"),
    ],
)
def test_compare(got, problem):
    difference, found = compare(answer(), got, 1e-2)
    if problem is None:
        assert found is None and difference <= 1e-2
    else:
        assert re.search(problem, found)


def test_differences_are_relative_to_the_scale_where_that_is_more():
    wanted, got = {"scores": np.float32([[0.0]])}, {"scores": np.float32([[1.0]])}
    assert compare(wanted, got, 0.01, {"scores": 1000.0}) == (pytest.approx(1e-3), None)
    assert compare(wanted, got, 0.01)[1] is not None


def found(ids, scores):
    ids = np.array(ids)
    return {
        "ids": ids,
        "scores": np.float32(scores),
        "keys": np.array([[str(value).encode() if value >= 0 else b"" for value in row] for row in ids], object),
        "valid": np.ones(len(ids), bool),
    }


def test_results_of_a_search_may_change_places_where_scores_are_equal():
    wanted = found([[1, 2, 3, 4]], [[0.9, 0.5, 0.5, 0.1]])
    assert compare(wanted, found([[1, 3, 2, 4]], [[0.9, 0.5, 0.5, 0.1]]), 1e-3, ties=RANKED)[1] is None
    assert compare(wanted, found([[2, 1, 3, 4]], [[0.9, 0.5, 0.5, 0.1]]), 1e-3, ties=RANKED)[1] == "gives other ids"
    assert compare(wanted, found([[1, 2, 9, 4]], [[0.9, 0.6, 0.5, 0.1]]), 1e-3, ties=RANKED)[1] is not None


def test_the_last_result_may_be_another_of_the_same_score():
    wanted = found([[1, 2, 3], [4, -1, -1]], [[0.9, 0.5, 0.1], [0.7, 0, 0]])
    other = found([[1, 2, 9], [8, -1, -1]], [[0.9, 0.5, 0.1], [0.7, 0, 0]])
    assert compare(wanted, other, 1e-3, ties=RANKED)[1] is None
    assert compare(wanted, found([[1, 9, 3], [4, -1, -1]], [[0.9, 0.5, 0.1], [0.7, 0, 0]]), 1e-3, ties=RANKED)[1] == (
        "gives other ids"
    )
    assert compare(wanted, found([[1, 2, 9], [4, -1, -1]], [[0.9, 0.5, 0.4], [0.7, 0, 0]]), 1e-3, ties=RANKED)[1] == (
        "differs by 3.0e-01 > 1e-03"
    )


def test_places_beyond_a_rows_own_k_stay_empty():
    wanted = found([[1, -1, -1]], [[0.9, 0, 0]])
    assert compare(wanted, found([[1, -1, 2]], [[0.9, 0, 0]]), 1e-3, ties=RANKED)[1] == "gives other ids"


def test_a_row_alone_has_fewer_columns():
    together = found([[1, 2, 3]], [[0.9, 0.5, 0.1]])
    together["ids"][0, 2], together["scores"][0, 2], together["keys"][0, 2] = -1, 0, b""
    assert compare(together, found([[1, 2]], [[0.9, 0.5]]), 1e-3, ties=RANKED)[1] is None
    together["ids"][0, 2] = 7
    assert compare(together, found([[1, 2]], [[0.9, 0.5]]), 1e-3, ties=RANKED)[1] == "gives another number of results"


def test_golden_k_has_a_row_that_asks_for_nothing():
    assert golden_k(6).tolist() == [3, 1, 2, 0, 3, 1] and golden_k(6).dtype == np.int32


def aligned(**changed):
    found = {
        "boxes": np.float32([[[0, 0, 1, 1], [0.5, 0, 0.5, 1]]]),
        "words": np.array([[b"a", b"dog", b""]], object),
        "regions": np.array([[0, 1, -1]]),
        "scores": np.float32([[30, 20, 0]]),
        "valid": np.array([True]),
    }
    return {**found, **changed}


@pytest.mark.parametrize(
    ("got", "problem"),
    [
        (aligned(), None),
        # Rounding of scores up to 0.3, a hundredth of the largest, may tell two regions apart or not.
        (aligned(scores=np.float32([[30, 20.2, 0]]), regions=np.array([[0, 0, -1]])), None),
        (aligned(scores=np.float32([[30, 21, 0]]), regions=np.array([[0, 0, -1]])), "gives other regions"),
        (aligned(regions=np.array([[0, -1, -1]])), "gives other regions"),
        (aligned(words=np.array([[b"a", b"cat", b""]], object)), "gives other words"),
        # Boxes are no larger than 1, whatever the scores are.
        (aligned(boxes=np.float32([[[0, 0, 1, 1], [0.52, 0, 0.5, 1]]])), "differs by 2.0e-02 > 1e-02"),
    ],
    ids=["equal", "tied", "other region", "no region", "other word", "other box"],
)
def test_alignments_compare_by_words_regions_and_boxes(got, problem):
    assert compare(aligned(), got, 0.01, {"scores": 30}, CHOSEN)[1] == problem


def test_rows_compare_exactly_but_for_ties():
    def answer(texts, log_probs):
        return {"texts": np.array(texts, object), "log_probs": np.float32(log_probs)}

    wanted = answer([[b"a", b"b", b"c"]], [[-10, -12, -12]])
    for texts, problem in (
        ([[b"a", b"c", b"b"]], None),
        ([[b"b", b"a", b"c"]], "gives other texts"),
        ([[b"a", b"b", b"d"]], "gives other texts"),
    ):
        assert compare(wanted, answer(texts, wanted["log_probs"]), 1e-4, ties=PERMUTED)[1] == problem
    assert compare(wanted, answer([[b"a", b"c", b"b"]], wanted["log_probs"]), 1e-4)[1] == "gives other texts"

"""Retrieval metrics: oracles, brute force with ties, blocks, folds, pairs, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from keras import ops

from tests.oracles import oracle
from tests.raising import raises_argument
from vsemb import similarities
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.evaluation import RetrievalMetrics, evaluate_retrieval, retrieval_ranks
from vsemb.evaluation import retrieval as module
from vsemb.evaluation.retrieval import rank_metrics

DOT, COSINE = similarities.get("dot"), similarities.get("cosine")
SIDES = ("image_to_text", "text_to_image")
KEYS = {"R@1": "R@1", "R@5": "R@5", "R@10": "R@10", "median_rank": "medr_floor_plus_1", "mean_rank": "meanr"}


def given(scores, captions_per_image: int, first_id: int = 0) -> dict[str, np.ndarray]:
    """Embeddings whose inner products are exactly `scores`: the rows of the table and unit vectors."""
    scores = np.array(scores, np.float32)
    ids = np.arange(first_id, first_id + len(scores))
    return {
        "images": scores,
        "texts": np.eye(scores.shape[1], dtype=np.float32),
        "image_ids": ids,
        "text_image_ids": np.repeat(ids, captions_per_image),
    }


def untied(scores) -> np.ndarray:
    """The oracle's 4 x 8 table without its one tie that matters.

    Text 2 scores 0.2 with images 0, 1 (its own) and 3. The oracle puts image 3 behind, by its index;
    the project's contract counts ties against the model. 0.19 says what the oracle means.
    """
    scores = np.array(scores)
    if scores.shape == (4, 8) and scores[3, 2] == scores[1, 2]:
        scores[3, 2] = 0.19
    return scores


def check(metrics: dict[str, float], expected: dict[str, float]) -> None:
    # Percentages of float64 means; the oracle file has ten decimals.
    for ours, theirs in KEYS.items():
        if theirs in expected:
            np.testing.assert_allclose(metrics[ours], expected[theirs], rtol=1e-9, err_msg=ours)


@pytest.mark.parametrize("name", ["retrieval_4x8", "retrieval_3x15"])
def test_oracle_ranks_and_metrics(name: str) -> None:
    entry = oracle(name)
    inputs = given(untied(entry.inputs["scores"]), entry.inputs["captions_per_image"])
    ranks = retrieval_ranks(**inputs, similarity=DOT)
    metrics = evaluate_retrieval(**inputs, similarity=DOT)
    for side, of_side in zip(SIDES, ranks, strict=True):
        assert of_side.tolist() == entry.expected[side]["ranks0"]
        check(getattr(metrics, side), entry.expected[side])
    assert (metrics.images, metrics.texts) == np.shape(entry.inputs["scores"])


def test_median_of_an_even_number() -> None:
    entry = oracle("median_even")
    check(rank_metrics(np.array(entry.inputs["ranks0"])), entry.expected)


def test_folds_are_averaged() -> None:
    entry = oracle("fold_average")
    folds = [untied(scores) for scores in entry.inputs["fold_scores"]]
    # Between the folds stand scores that beat all others: they must not be looked at.
    scores = np.block([[folds[0], np.full((4, 8), 9.0)], [np.full((4, 8), 9.0), folds[1]]])
    metrics = evaluate_retrieval(**given(scores, 2), similarity=DOT, folds=2)
    for side in SIDES:
        check(getattr(metrics.folds, side), entry.expected[side])
    whole = evaluate_retrieval(**given(scores, 2), similarity=DOT)
    assert replace(metrics, folds=None) == whole and whole.recall_sum < metrics.folds.recall_sum
    assert (metrics.images, metrics.folds.images, metrics.folds.texts) == (8, 4, 8)


def slow_ranks(scores: np.ndarray, positive: np.ndarray) -> list[int]:
    """The place of the best positive when all others of its score are put before it."""
    ranks = []
    for row, own in zip(scores, positive, strict=True):
        order = sorted(range(len(row)), key=lambda i: (-row[i], own[i]))
        others_before = 0
        for candidate in order:
            if own[candidate]:
                break
            others_before += 1
        ranks.append(others_before)
    return ranks


def random_split(seed: int, images: int = 13, dim: int = 5):
    """Embeddings with few values, so that ties are common, and 1 to 4 captions an image, shuffled."""
    generator = np.random.default_rng(seed)
    ids = generator.permutation(1000)[:images] + 2**24
    text_ids = generator.permutation(np.repeat(ids, generator.integers(1, 5, images)))
    return {
        "images": generator.integers(-1, 2, (images, dim)).astype(np.float32),
        "texts": generator.integers(-1, 2, (len(text_ids), dim)).astype(np.float32),
        "image_ids": ids,
        "text_image_ids": text_ids,
    }


@pytest.mark.parametrize("seed", range(4))
def test_equals_brute_force_with_ties(seed: int) -> None:
    inputs = random_split(seed)
    scores = inputs["images"] @ inputs["texts"].T
    own = inputs["image_ids"][:, None] == inputs["text_image_ids"][None]
    of_images, of_texts = retrieval_ranks(**inputs, similarity=DOT)
    assert of_images.tolist() == slow_ranks(scores, own)
    assert of_texts.tolist() == slow_ranks(scores.T, own.T)


def test_ties_count_against_the_model() -> None:
    # The oracle's pessimistic ranks also count an image's own second caption, equal here in both
    # rows, which the project's contract does not: "candidates that are not its own positives".
    entry = oracle("retrieval_ties")
    own_equals = np.array([1, 1])
    of_images, _ = retrieval_ranks(**given(entry.inputs["scores"], 2), similarity=DOT)
    assert of_images.tolist() == (entry.expected["image_to_text_pessimistic"] - own_equals).tolist() == [1, 2]


@pytest.mark.parametrize("columns", [7, 1100], ids=["plain", "compiled"])
def test_counts_are_those_of_numpy(columns: int) -> None:
    scores = np.random.default_rng(0).integers(0, 9, (2000, columns)).astype(np.float32)
    in_row, in_column = scores[:, :1], scores[:1]
    of_rows, of_columns, broken = module._count_reaching(ops.convert_to_tensor(scores), in_row, in_column)
    np.testing.assert_array_equal(of_rows, (scores >= in_row).sum(axis=1))
    np.testing.assert_array_equal(of_columns, (scores >= in_column).sum(axis=0))
    assert not broken
    scores[-1, -1] = np.nan
    assert module._count_reaching(ops.convert_to_tensor(scores), in_row, in_column)[2]


@pytest.mark.parametrize(
    ("block", "tile", "kept"),
    [
        # Scores of none, of some and of all tiles are kept; blocks divide 9 images, or do not, or hold them all.
        (1, 1, 0),
        (1, 64, 20),
        (2, 15, 20),
        (2, 64, 1 << 28),
        (3, 15, 0),
        (5, 15, 20),
        (5, 64, 0),
        (5, 1 << 23, 1 << 28),
        (13, 15, 1 << 28),
        (13, 1 << 23, 0),
        (10_000, 1, 20),
        (10_000, 64, 1 << 28),
    ],
)
def test_tiles_change_nothing(block: int, tile: int, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = random_split(9)
    whole = retrieval_ranks(**inputs, similarity=DOT)
    monkeypatch.setattr("vsemb.evaluation.retrieval._TILE", tile)
    monkeypatch.setattr("vsemb.evaluation.retrieval._KEPT", kept)
    for ranks, expected in zip(retrieval_ranks(**inputs, similarity=DOT, block=block), whole, strict=True):
        np.testing.assert_array_equal(ranks, expected)


def check_scored_once(inputs: dict[str, np.ndarray], similarity: similarities.Similarity) -> None:
    """Checks that ranks in both directions score each image once."""
    rows, scores = [], similarity.scores
    # A part is frozen.
    vars(similarity)["scores"] = lambda *given: rows.append(len(given[0])) or scores(*given)
    retrieval_ranks(**inputs, similarity=similarity, block=2)
    # The last tile is as large as the others.
    assert sum(rows) == len(inputs["images"]) + len(inputs["images"]) % 2


def test_each_image_is_scored_once() -> None:
    check_scored_once(random_split(0), similarities.get("order"))


def test_what_is_not_kept_is_scored_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, similarity, calls = random_split(0), similarities.get("order"), []
    scores = similarity.scores
    vars(similarity)["scores"] = lambda *given: calls.append(given) or scores(*given)
    # Room for two blocks of two images.
    monkeypatch.setattr("vsemb.evaluation.retrieval._KEPT", 2 * 2 * len(inputs["texts"]))
    retrieval_ranks(**inputs, similarity=similarity, block=2)
    blocks = -(-len(inputs["images"]) // 2)
    assert len(calls) == blocks + blocks - 2 > blocks


def test_tiles_are_few_of_one_shape_and_small(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, similarity, shapes = random_split(0), similarities.get("order"), []
    images, texts = (len(inputs[name]) for name in ("images", "texts"))
    scores = similarity.scores
    vars(similarity)["scores"] = lambda *given: shapes.append(tuple(map(len, given))) or scores(*given)
    monkeypatch.setattr("vsemb.evaluation.retrieval._TILE", 2 * texts - 1)
    retrieval_ranks(**inputs, similarity=similarity, block=2)
    assert set(shapes) == {(2, -(-texts // 2))}
    assert len(shapes) == 2 * -(-images // 2)


def test_the_tile_of_a_million_rows() -> None:
    # 8350 x 1000 scores are just below 2^23, and 100 such tiles are as wide as all texts.
    assert module.tile_shape(167_000, 835_000, 1000) == (1000, 8350)


@pytest.mark.parametrize(("images", "captions"), [(37, 5), (100, 5), (1003, 1)])
@pytest.mark.parametrize("dim", [7, 300])
def test_a_constant_model_is_worst(images: int, captions: int, dim: int) -> None:
    # One embedding for everything. The scores are equal only if every entry of the product is summed
    # in the same order, wherever it stands in its block.
    vector = np.random.default_rng(0).normal(size=dim)
    normal = np.asarray(COSINE.normalize(np.tile(vector, (images, 1))))
    ids = np.arange(images)
    inputs = (normal, np.repeat(normal, captions, axis=0), ids, np.repeat(ids, captions))
    of_images, of_texts = retrieval_ranks(*inputs, similarity=COSINE, block=64)
    assert set(of_images) == {(images - 1) * captions}
    assert set(of_texts) == {images - 1}


# Images a, b, c and two captions of each. Every image scores highest with one of its own among all six; among
# a1, b1 and c1 alone, a prefers b1 and b prefers a1. Captions a1, b1 and c2 prefer a wrong image either way.
#          a1   a2   b1   b2   c1   c2
TABLE = [
    [0.5, 0.9, 0.6, 0.1, 0.2, 0.3],  # a
    [0.4, 0.2, 0.3, 0.8, 0.1, 0.7],  # b
    [0.6, 0.3, 0.2, 0.4, 0.9, 0.5],  # c
]


def test_the_two_protocols_by_hand() -> None:
    metrics = evaluate_retrieval(**given(TABLE, 2), similarity=DOT, recalls=(2, 1), pairs=3)
    # Ranks 0, 0, 0 from images; 1, 0, 1, 0, 0, 1 from captions, whose median 0.5 is reported as 1.
    check(metrics.image_to_text, {"R@1": 100, "R@5": 100, "R@10": 100, "medr_floor_plus_1": 1, "meanr": 1})
    check(metrics.text_to_image, {"R@1": 50, "medr_floor_plus_1": 1, "meanr": 1.5})
    assert (metrics.images, metrics.texts) == (3, 6)
    # Ranks 1, 1, 0 both ways.
    assert metrics.pairs is not None and metrics.pairs.pairs is None
    for side in (metrics.pairs.image_to_text, metrics.pairs.text_to_image):
        check(side, {"R@1": 100 / 3, "medr_floor_plus_1": 2, "meanr": 5 / 3})
        assert list(side) == ["R@1", "R@2", "R@5", "R@10", "median_rank", "mean_rank"]
        assert side["R@2"] == 100
    assert (metrics.pairs.images, metrics.pairs.texts) == (3, 3)
    # The first two pairs alone: a1 0.5 and b1 0.6 with image a, 0.4 and 0.3 with image b.
    two = evaluate_retrieval(**given(TABLE, 2), similarity=DOT, pairs=2).pairs
    assert two is not None and (two.image_to_text["R@1"], two.text_to_image["R@1"]) == (0, 50)


def test_further_recalls_leave_the_recall_sum_alone() -> None:
    inputs = random_split(3, images=30)
    default = evaluate_retrieval(**inputs, similarity=DOT)
    more = evaluate_retrieval(**inputs, similarity=DOT, recalls=(50, 20, 1))
    names = ["R@1", "R@5", "R@10", "R@20", "R@50", "median_rank", "mean_rank"]
    for side in SIDES:
        assert list(getattr(more, side)) == names
        assert list(getattr(default, side)) == [name for name in names if name not in ("R@20", "R@50")]
        assert getattr(default, side).items() <= getattr(more, side).items()
    assert more.image_to_text["R@10"] < more.image_to_text["R@20"] <= more.image_to_text["R@50"]
    assert more.text_to_image["R@50"] == 100
    assert more.recall_sum == default.recall_sum


def test_folds_average_further_recalls_and_leave_pairs_alone() -> None:
    inputs = random_split(4, images=24)
    metrics = evaluate_retrieval(**inputs, similarity=DOT, folds=3, recalls=[3], pairs=20)
    parts = []
    for rows in np.split(np.arange(24), 3):
        own = np.isin(inputs["text_image_ids"], inputs["image_ids"][rows])
        ids = {"image_ids": inputs["image_ids"][rows], "text_image_ids": inputs["text_image_ids"][own]}
        part = {"images": inputs["images"][rows], "texts": inputs["texts"][own], **ids}
        parts.append(evaluate_retrieval(**part, similarity=DOT, recalls=[3]))
    for side in SIDES:
        means = {name: np.mean([getattr(part, side)[name] for part in parts]) for name in parts[0].image_to_text}
        assert getattr(metrics.folds, side) == means
    assert metrics.pairs == evaluate_retrieval(**inputs, similarity=DOT, recalls=[3], pairs=20).pairs


def slow_metrics(scores: np.ndarray, own: np.ndarray, recalls: list[int]) -> dict[str, float]:
    """The metrics by sorting every row, the wrong candidates of a score before the right ones."""
    order = np.lexsort((own, -scores), axis=1)
    places = 1 + np.argmax(np.take_along_axis(own, order, axis=1), axis=1)
    metrics = {f"R@{k}": 100 * np.count_nonzero(places <= k) / len(places) for k in recalls}
    return {**metrics, "median_rank": np.floor(np.median(places)), "mean_rank": places.sum() / len(places)}


@pytest.mark.parametrize("seed", range(8))
def test_both_protocols_equal_sorting(seed: int) -> None:
    generator = np.random.default_rng(seed)
    inputs = random_split(100 + seed, images=int(generator.integers(1, 40)))
    recalls = sorted({1, 5, 10, *(generator.permutation(60)[:3] + 1).tolist()})
    count = int(generator.integers(1, len(inputs["images"]) + 1))
    metrics = evaluate_retrieval(**inputs, similarity=DOT, recalls=recalls, pairs=count)
    text_ids = inputs["text_image_ids"].tolist()
    paired = [text_ids.index(image) for image in inputs["image_ids"][:count]]
    scores = inputs["images"] @ inputs["texts"].T
    own = inputs["image_ids"][:, None] == inputs["text_image_ids"][None]
    chosen = np.ix_(range(count), paired)
    for measured, table, right in (
        (metrics, scores, own),
        (metrics.pairs, scores[chosen], np.eye(count, dtype=bool)),
    ):
        assert measured is not None and (measured.images, measured.texts) == table.shape
        for side, transposed in zip(SIDES, (False, True), strict=True):
            expected = slow_metrics(*((table.T, right.T) if transposed else (table, right)), recalls)
            # The scores are small integers and so exact; the means may be summed in another order.
            assert getattr(measured, side) == pytest.approx(expected, rel=1e-12)


def test_pairs_of_a_constant_model_tie() -> None:
    inputs = random_split(0) | {"images": np.ones((13, 5), np.float32)}
    inputs["texts"] = np.ones((len(inputs["text_image_ids"]), 5), np.float32)
    pairs = evaluate_retrieval(**inputs, similarity=DOT, pairs=7).pairs
    assert pairs is not None
    for side in SIDES:
        check(getattr(pairs, side), {"R@1": 0, "R@5": 0, "R@10": 100, "medr_floor_plus_1": 7, "meanr": 7})


def test_texts_of_another_size_are_told_that_of_the_images() -> None:
    with pytest.raises(InvalidArgumentError, match="size, 3") as raised:
        retrieval_ranks(np.ones((2, 3), np.float32), np.ones((2, 5), np.float32))
    assert raised.value.argument == "texts"


def test_duplicate_images_tie() -> None:
    # Two images with one embedding: neither caption can tell them apart, so each is ranked behind.
    vector = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], np.float32)
    of_images, of_texts = retrieval_ranks(vector, vector, np.arange(3), np.arange(3), DOT)
    assert of_images.tolist() == of_texts.tolist() == [1, 1, 0]


@dataclass(frozen=True)
class Best(similarities.Similarity):
    """The largest inner product of a vector of the image and one of the text."""

    accepts: ClassVar[str] = "multi_vector"

    def scores(self, images, texts):
        return ops.max(ops.einsum("ivd,twd->itvw", images, texts), axis=(2, 3))


def test_sets_of_vectors_are_ranked_by_hand() -> None:
    # Image 0 shows (1, 0) and (0, 1), image 1 (2, 0) twice; texts (1, 0) score 1 and 2, (0, 1) 1 and 0.
    images = np.array([[[1, 0], [0, 1]], [[2, 0], [2, 0]]], np.float32)
    texts = np.array([[[0, 1], [0, 0]], [[1, 0], [0, 0]]], np.float32)
    of_images, of_texts = retrieval_ranks(images, texts, similarity=Best())
    # Both texts score 1 with image 0, and ties count against the model.
    assert (of_images.tolist(), of_texts.tolist()) == ([1, 0], [0, 0])
    with raises_argument("texts"):
        retrieval_ranks(images, texts[:, 0], similarity=Best())
    with raises_argument("images"):
        retrieval_ranks(images, texts, similarity=DOT)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_ranks_of_other_floats_are_those_of_float32(dtype: str) -> None:
    images, texts = np.random.default_rng(0).normal(size=(2, 200, 8)).astype(dtype)
    of_images, of_texts = retrieval_ranks(images, texts, similarity="dot")
    assert of_images.min() >= 0 and of_texts.min() >= 0
    single = retrieval_ranks(images.astype(np.float32), texts.astype(np.float32), similarity="dot")
    np.testing.assert_array_equal((of_images, of_texts), single)


def test_nan_is_refused() -> None:
    for name in ("images", "texts"):
        inputs = random_split(0)
        inputs[name][-1, 0] = np.nan
        with pytest.raises(DataError):
            evaluate_retrieval(**inputs, similarity=DOT)


@pytest.mark.parametrize(
    "change",
    [
        {"image_ids": [1, 2, 2]},
        {"text_image_ids": [1, 1, 2]},
        {"text_image_ids": [1, 2, 3, 4], "texts": np.eye(4, 3)},
        {"image_ids": [1, 2]},
        {"text_image_ids": [1, 2]},
        {"images": np.zeros((0, 3)), "image_ids": []},
        {"texts": np.zeros((0, 3)), "text_image_ids": []},
    ],
)
@pytest.mark.parametrize("function", [retrieval_ranks, evaluate_retrieval])
def test_ids_that_do_not_fit(function, change) -> None:
    inputs = {"images": np.eye(3), "texts": np.eye(3), "image_ids": [1, 2, 3], "text_image_ids": [1, 2, 3]}
    inputs |= change
    arrays = {k: np.asarray(v, np.int64 if "ids" in k else np.float32) for k, v in inputs.items()}
    with pytest.raises(DataError):
        function(**arrays, similarity=DOT)


@pytest.mark.parametrize("folds", [0, -1, 14, 2.5, True], ids=str)
def test_bad_folds(folds) -> None:
    with raises_argument("folds"):
        evaluate_retrieval(**random_split(0), similarity=DOT, folds=folds)


@pytest.mark.parametrize("block", [0, -1, 2.5, True], ids=str)
def test_bad_blocks(block) -> None:
    with raises_argument("block"):
        retrieval_ranks(**random_split(0), similarity=DOT, block=block)


def test_one_image_is_one_fold() -> None:
    one = np.ones((1, 3), np.float32)
    with raises_argument("folds"):
        evaluate_retrieval(one, one, folds=2)
    assert evaluate_retrieval(one, one, folds=1).images == 1


@pytest.mark.parametrize("pairs", [0, -1, 14, 2.5, True], ids=str)
def test_bad_pairs(pairs) -> None:
    with raises_argument("pairs"):
        evaluate_retrieval(**random_split(0), similarity=DOT, pairs=pairs)


@pytest.mark.parametrize("recalls", [[0], [5, -1], [20, 20], [2.5], [True], "10"], ids=str)
def test_bad_recalls(recalls) -> None:
    with raises_argument("recalls"):
        evaluate_retrieval(**random_split(0), similarity=DOT, recalls=recalls)


def test_bootstrap_intervals() -> None:
    inputs = random_split(1, images=40)
    metrics = evaluate_retrieval(**inputs, similarity=DOT, bootstrap=200, seed=1)
    assert metrics.intervals_95 is not None
    for side in SIDES:
        for name, value in getattr(metrics, side).items():
            low, high = metrics.intervals_95[side][name]
            assert low <= value <= high
            assert low < high or name in ("R@10", "median_rank", "R@5", "R@1")
    again = evaluate_retrieval(**inputs, similarity=DOT, bootstrap=200, seed=1)
    assert again.intervals_95 == metrics.intervals_95
    more = evaluate_retrieval(**inputs, similarity=DOT, bootstrap=200, seed=1, recalls=[20], pairs=30)
    assert more.intervals_95 is not None and more.pairs is not None and more.pairs.intervals_95 is not None
    for side in SIDES:
        assert metrics.intervals_95[side].items() <= more.intervals_95[side].items()
        for metrics_of_some in (more, more.pairs):
            low, high = metrics_of_some.intervals_95[side]["R@20"]
            assert low < getattr(metrics_of_some, side)["R@20"] < high
    with raises_argument("bootstrap"):
        evaluate_retrieval(**inputs, similarity=DOT, bootstrap=-1)


def test_the_interval_of_the_recall_sum_draws_the_same_images_for_both_directions() -> None:
    # The first two of four pairs are confused in both directions; R@5 and R@10 of four are always 100.
    texts = np.eye(4)[[1, 0, 2, 3]]
    metrics = evaluate_retrieval(np.eye(4), texts, similarity=DOT, bootstrap=50)
    assert (metrics.image_to_text["R@1"], metrics.recall_sum) == (50.0, 500.0)
    low, high = metrics.intervals_95["image_to_text"]["R@1"]
    assert metrics.intervals_95["recall_sum"] == pytest.approx([2 * low + 400, 2 * high + 400]) and low < high


def test_json_form() -> None:
    side = {"R@1": 1.0, "R@5": 2.0, "R@10": 3.0, "median_rank": 4.0, "mean_rank": 5.0}
    metrics = RetrievalMetrics(side, side, images=2, texts=10)
    assert metrics.recall_sum == 12
    written = {"image_to_text": side, "text_to_image": side, "images": 2, "texts": 10, "recall_sum": 12.0}
    assert metrics.to_json() == written
    both = RetrievalMetrics(side, side, images=2, texts=10, pairs=metrics)
    assert both.to_json() == {**written, "pairs": written}


def test_intervals_resample_images_with_all_their_captions() -> None:
    # The five captions of an image are all right or all wrong, so 40 images are 40 independent draws and not 200:
    # a share of one half of 40 has a deviation of sqrt(0.25 / 40) = 7.9 %, of 200 one of 3.5 %. An interval of 95 %
    # is about four deviations wide.
    count, captions = 40, 5
    images = np.eye(count, dtype=np.float32)
    wrong = np.roll(images, 1, axis=0)
    right = (np.arange(count) % 2 == 0)[:, None]
    texts = np.repeat(np.where(right, images, wrong), captions, axis=0)
    ids = np.arange(count)
    metrics = evaluate_retrieval(images, texts, ids, np.repeat(ids, captions), DOT, bootstrap=400)
    assert metrics.text_to_image["R@1"] == 50.0
    low, high = metrics.intervals_95["text_to_image"]["R@1"]
    assert 24 < high - low < 40


def test_scores_of_a_dot_that_are_no_inner_products_are_not_scanned(monkeypatch):
    @dataclass(frozen=True)
    class Least(similarities.Dot):
        inner_product: ClassVar[bool] = False

        def scores(self, images, texts):
            return -super().scores(images, texts)

    monkeypatch.setattr(module, "worth_a_scan", lambda images, texts: True)
    monkeypatch.setattr(module, "scanned_ranks", lambda *_: pytest.fail("ranked by inner products"))
    images, ids = np.eye(2, dtype=np.float32), np.arange(2)
    for ranks in retrieval_ranks(images, images[::-1].copy(), ids, ids, Least()):
        assert ranks.tolist() == [0, 0]


def test_a_similarity_in_place_of_ids_is_named() -> None:
    with raises_argument("image_ids"):
        evaluate_retrieval(np.ones((2, 3)), np.ones((2, 3)), "dot")

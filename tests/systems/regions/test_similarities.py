"""Multi-vector similarities: geometry, scores, kinds."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from tests.contract import check_config, check_similarity
from tests.oracles import TOLERANCE, oracle
from tests.raising import raises_argument
from vsemb import registry, similarities
from vsemb.ops.geometry import l2_normalize
from vsemb.similarities import Similarity
from vsemb.systems.regions import similarities as sets
from vsemb.systems.regions.cross_attention import CrossAttention, cross_attention_pair_scores, cross_attention_scores
from vsemb.systems.regions.similarities import (
    MaxSim,
    MultiVectorSimilarity,
    SumSim,
    item_mask,
    item_products,
    region_word_pair_scores,
    region_word_scores,
)

NAMES = ("max-sim", "sum-sim", "late-interaction", "mutual-late-interaction", "cross-attention")


def embeddings(rows: int, seed: int, items: int = 4) -> np.ndarray:
    """Random embeddings of up to `items` vectors, with padding."""
    generator = np.random.default_rng(seed)
    vectors = generator.normal(size=(rows, items, 8))
    vectors[np.arange(items) >= generator.integers(1, items + 1, (rows, 1))] = 0
    return vectors


@pytest.mark.parametrize(
    "similarity", [*map(similarities.get, NAMES), CrossAttention(attend="words")], ids=[*NAMES, "attends to words"]
)
def test_contract(similarity: Similarity) -> None:
    check_similarity(similarity, embeddings(7, 7), embeddings(5, 5))


def test_regions_and_words_by_hand() -> None:
    # Regions (1, 0), (0, 2) with word (3, 1) give 3 and 2, with (-1, -1) -1 and -2; the rest is padding.
    image = np.array([[[1, 0], [0, 2], [0, 0]]], np.float32)
    text = np.array([[[3, 1], [-1, -1], [0, 0]]], np.float32)
    assert float(similarities.get("max-sim").scores(image, text)[0, 0]) == 3 - 1
    assert float(similarities.get("sum-sim").scores(image, text)[0, 0]) == 3 + 2
    for name in ("max-sim", "sum-sim"):
        scores = similarities.get(name).word_region_scores(image, text)
        assert scores.numpy().tolist() == [[[3, 2, 0], [-1, -2, 0], [0, 0, 0]]]


def test_late_interaction_by_hand() -> None:
    # Unit regions (1, 0), (0, -1); words (3, 4), (0, 2), (0, 0): cosines 0.6, -0.8 and 0, -1, then padding.
    similarity = similarities.get("late-interaction")
    image = similarity.normalize(np.array([[[2, 0], [0, -5], [0, 0]]], np.float32))
    text = similarity.normalize(np.array([[[3, 4], [0, 2], [0, 0]]], np.float32))
    np.testing.assert_allclose(similarity.scores(image, text), [[(0.6 + 0) / 2]], rtol=1e-6)
    # A padded region would win the second word of this image, where all cosines are negative.
    image = similarity.normalize(np.array([[[-1, -1], [0, 0]]], np.float32))
    np.testing.assert_allclose(similarity.scores(image, text), [[-(1.4 + 1) / 2 / np.sqrt(2)]], rtol=1e-6)
    assert float(similarity.scores(image, 0 * text)[0, 0]) == 0


def test_mutual_late_interaction_by_hand() -> None:
    # The best cosines are 0.6 and 0 of the words, and 0.6 and -0.8 of the regions. The rest is padding.
    similarity = similarities.get("mutual-late-interaction")
    image = similarity.normalize(np.array([[[2, 0], [0, -5], [0, 0]]], np.float32))
    text = similarity.normalize(np.array([[[3, 4], [0, 2], [0, 0]]], np.float32))
    np.testing.assert_allclose(similarity.scores(image, text), [[((0.6 + 0) / 2 + (0.6 - 0.8) / 2) / 2]], rtol=1e-6)


@pytest.mark.parametrize(("attend", "temperature"), [("regions", 9.0), ("words", 4.0)])
def test_attention_compares_unit_vectors(attend: str, temperature: float) -> None:
    similarity = CrossAttention(attend)
    raw = [embeddings(4, seed) for seed in (0, 1)]
    images, texts = (similarity.normalize(x) for x in raw)
    longer = [similarity.normalize(7 * x) for x in raw]
    np.testing.assert_allclose(similarity.scores(*longer), similarity.scores(images, texts), rtol=1e-5)
    # The published temperature is the default.
    published = CrossAttention(attend, temperature).scores(images, texts)
    np.testing.assert_array_equal(similarity.scores(images, texts), published)
    scores = similarity.word_region_scores(images, texts).numpy()
    assert np.abs(scores).max() <= 1 + 1e-6
    np.testing.assert_allclose(scores[2, 0, 0], np.dot(images[2, 0], texts[2, 0]), rtol=1e-5, atol=1e-6)


def test_options_of_attention_arrive() -> None:
    options = {"attend": "words", "temperature": 2.5, "pooling": "lse", "lse_temperature": 5.0}
    similarity = CrossAttention(**options)
    check_config(similarity)
    images, texts = (similarity.normalize(embeddings(3, seed)) for seed in (0, 1))
    scores = similarity.scores(images, texts)
    np.testing.assert_allclose(scores, cross_attention_scores(images, texts, **options), rtol=1e-6)
    assert np.abs(scores - CrossAttention("words").scores(images, texts)).max() > 0.01


def test_which_accept_multi_vectors() -> None:
    found = {kind for kind in registry.kinds("similarity") if similarities.get(kind).multi_vector}
    assert found == set(NAMES)
    assert all(isinstance(similarities.get(kind), MultiVectorSimilarity) for kind in found)
    assert (MaxSim.reduce, SumSim.reduce) == ("max", "sum")


@pytest.mark.parametrize(
    "options",
    [
        {"attend": "images"},
        {"temperature": 0.0},
        {"temperature": 31.0},
        {"temperature": math.nan},
        {"pooling": "max"},
        {"lse_temperature": -1.0},
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options: dict) -> None:
    (name,) = options
    with raises_argument(name):
        CrossAttention(**options)


# Sums of some dozen float32 products of order 1 to 10; a finite difference in float64 is much better.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def items(vectors: np.ndarray) -> list[np.ndarray]:
    return [vector.astype(float) for vector in vectors if vector.any()]


def slow_region_word(image: np.ndarray, text: np.ndarray, reduce: str = "max") -> float:
    total = 0.0
    for word in items(text):
        products = [float(region @ word) for region in items(image)]
        total += sum(max(0.0, p) for p in products) if reduce == "sum" else max(products, default=0.0)
    return total


def slow_cross_attention(
    image: np.ndarray,
    text: np.ndarray,
    attend: str = "regions",
    temperature: float = 9.0,
    pooling: str = "mean",
    lse_temperature: float = 6.0,
) -> float:
    """Equation by equation: the vector that a word saw is computed."""
    context, queries = (items(image), items(text))[:: 1 if attend == "regions" else -1]
    if not context or not queries:
        return 0.0
    # 1e-6 is what squared norms are kept above in the fast one, 1e-12, as a norm.
    positive = np.maximum(np.array([[c @ q for q in queries] for c in context]), 0)
    weights = positive / np.maximum(np.linalg.norm(positive, axis=1, keepdims=True), 1e-6)
    relevance = []
    for column, query in zip(weights.T, queries, strict=True):
        softmax = np.exp(temperature * column) / np.exp(temperature * column).sum()
        seen = sum(a * c for a, c in zip(softmax, context, strict=True))
        relevance.append(float(query @ seen) / (np.linalg.norm(query) * np.linalg.norm(seen)))
    if pooling == "mean":
        return float(np.mean(relevance))
    return math.log(sum(math.exp(lse_temperature * r) for r in relevance)) / lse_temperature


#: Each way to score: all pairs, pairs in their places, the slow one, and whether vectors have unit length.
KINDS: dict[str, tuple[Callable, Callable, Callable, bool]] = {
    "max": (region_word_scores, region_word_pair_scores, slow_region_word, False),
    "sum": (
        partial(region_word_scores, reduce="sum"),
        partial(region_word_pair_scores, reduce="sum"),
        partial(slow_region_word, reduce="sum"),
        False,
    ),
}
for attend in ("regions", "words"):
    for pooling in ("mean", "lse"):
        options = {"attend": attend, "pooling": pooling, "temperature": 9.0 if attend == "regions" else 4.0}
        functions = (cross_attention_scores, cross_attention_pair_scores, slow_cross_attention)
        KINDS[f"{attend}-{pooling}"] = (*(partial(f, **options) for f in functions), True)  # type: ignore[assignment]

kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(params=["one block", "blocks"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything at once, and blocks of two images and of a few words, which do not come out even."""
    if request.param == "blocks":
        monkeypatch.setattr(sets, "_FEW", 0)
        monkeypatch.setattr(sets, "_ROWS", 8)
        monkeypatch.setattr(sets, "_COLUMNS", 11)


def examples(kind: str, n: int = 5, m: int = 7, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Sets of 1 to 4 regions and 1 to 6 words of 5 dimensions, with a set of nothing on either side.

    Padding of regions stands anywhere, that of words at the end.
    """
    generator = np.random.default_rng(seed)
    regions, words = generator.normal(size=(n, 4, 5)), generator.normal(size=(m, 6, 5))
    regions[generator.random((n, 4)) < 0.3] = 0
    words[np.arange(6) >= generator.integers(1, 7, (m, 1))] = 0
    regions[1], words[2] = 0, 0
    if KINDS[kind][3]:
        regions, words = (np.asarray(l2_normalize(x)) for x in (regions, words))
    return regions.astype(np.float32), words.astype(np.float32)


def slow_matrix(kind: str, regions: np.ndarray, words: np.ndarray) -> np.ndarray:
    return np.array([[KINDS[kind][2](image, text) for text in words] for image in regions])


def test_oracle() -> None:
    case = oracle("dvsa_score_and_loss")
    regions, words = (
        np.array([[*rows, *[[0] * 3] * (3 - len(rows))] for rows in case.inputs[name]], np.float32)
        for name in ("regions_per_image", "words_per_sentence")
    )
    np.testing.assert_allclose(region_word_scores(regions, words), case.expected["S_eq8"], **TOLERANCE)
    np.testing.assert_allclose(region_word_scores(regions, words, "sum"), case.expected["S_eq7"], **TOLERANCE)


@kinds
@pytest.mark.usefixtures("way")
def test_equals_the_slow_one(kind: str) -> None:
    regions, words = examples(kind)
    found = KINDS[kind][0](regions, words)
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, slow_matrix(kind, regions, words), **CLOSE)
    tensors = KINDS[kind][0](tf.constant(regions), tf.constant(words))
    np.testing.assert_allclose(tensors, found, **CLOSE)


@kinds
def test_pairs_are_entries_of_the_matrix(kind: str) -> None:
    regions, words = examples(kind)
    matrix, pairs = KINDS[kind][0](regions, words), KINDS[kind][1]
    np.testing.assert_allclose(pairs(regions, words[:5]), np.diagonal(matrix), **CLOSE)
    np.testing.assert_allclose(pairs(regions[:, None], words[None]), matrix, **CLOSE)


@kinds
@pytest.mark.usefixtures("way")
def test_padding_changes_nothing(kind: str) -> None:
    regions, words = examples(kind)
    wider = [np.pad(x, [(0, 0), (0, 3), (0, 0)]) for x in (regions, words)]
    np.testing.assert_allclose(KINDS[kind][0](*wider), KINDS[kind][0](regions, words), **CLOSE)


def test_padding_never_wins_where_all_products_are_negative() -> None:
    # The words' best regions give -1 and -2; rows of zeros would give 0.
    regions = np.array([[[0, 0], [-1, 0], [0, -2], [0, 0]]], np.float32)
    words = np.array([[[1, 1], [2, 2], [0, 0]]], np.float32)
    assert float(region_word_scores(regions, words)[0, 0]) == -3
    assert float(region_word_pair_scores(regions, words)[0]) == -3


@kinds
@pytest.mark.usefixtures("way")
def test_gradient_equals_finite_differences_of_the_slow_one(kind: str) -> None:
    arrays = examples(kind, n=3, m=4, seed=3)
    weights = np.random.default_rng(4).normal(size=(3, 4))
    given = [tf.constant(x) for x in arrays]
    with tf.GradientTape() as tape:
        tape.watch(given)
        total = tf.reduce_sum(weights.astype(np.float32) * KINDS[kind][0](*given))
    found = [tf.convert_to_tensor(gradient).numpy() for gradient in tape.gradient(total, given)]

    def slow(*arrays: np.ndarray) -> float:
        # The slow ones take the cosine with whatever vectors there are, so lengths are not theirs to notice.
        return float((weights * slow_matrix(kind, *arrays)).sum())

    step = 1e-5
    for side, gradient in enumerate(found):
        for place in np.argwhere(item_mask(arrays[side]).numpy()):
            # What padding would change to is no item's gradient, and lengths are kept: tangents alone.
            here = arrays[side][tuple(place)].astype(float)
            direction = np.random.default_rng(int(place.sum())).normal(size=5)
            if KINDS[kind][3]:
                direction -= here * (direction @ here) / (here @ here)
            moved = []
            for sign in (1, -1):
                changed = [x.astype(float) for x in arrays]
                changed[side][tuple(place)] += sign * step * direction
                moved.append(slow(*changed))
            expected = (moved[0] - moved[1]) / (2 * step)
            actual = float(gradient[tuple(place)] @ direction)
            # Float32 sums of some hundred terms, the largest of order 10.
            np.testing.assert_allclose(actual, expected, rtol=2e-3, atol=2e-4)


def test_gradient_equals_that_of_a_double_loop() -> None:
    regions, words = (tf.constant(x) for x in examples("max"))
    weights = tf.random.stateless_normal((5, 7), [1, 2])

    def double_loop() -> tf.Tensor:
        total = tf.constant(0.0)
        for k, image in enumerate(regions):
            real = tf.boolean_mask(image, item_mask(image))
            for j, text in enumerate(words):
                said = tf.boolean_mask(text, item_mask(text))
                if len(real) and len(said):
                    best = tf.reduce_max(tf.matmul(real, said, transpose_b=True), axis=0)
                    total += weights[k, j] * tf.reduce_sum(best)
        return total

    with tf.GradientTape(persistent=True) as tape:
        tape.watch([regions, words])
        fast = tf.reduce_sum(weights * region_word_scores(regions, words))
        slow = double_loop()
    for side in (regions, words):
        real = item_mask(side).numpy()
        results, expected = (tape.gradient(total, side).numpy()[real] for total in (fast, slow))
        np.testing.assert_allclose(results, expected, **CLOSE)


@kinds
def test_in_a_graph_of_unknown_shapes(kind: str) -> None:
    unknown = tf.TensorSpec([None, None, 5], tf.float32)
    function = tf.function(KINDS[kind][0], autograph=False, input_signature=[unknown, unknown])
    for n, m in ((5, 7), (2, 3)):
        regions, words = examples(kind, n, m)
        np.testing.assert_allclose(function(regions, words), slow_matrix(kind, regions, words), **CLOSE)


@kinds
@pytest.mark.usefixtures("way")
def test_in_a_graph_of_known_shapes(kind: str) -> None:
    # Lengths are not known there: blocks are as they come.
    regions, words = examples(kind, 3, 4)
    found = tf.function(KINDS[kind][0], autograph=False)(tf.constant(regions), tf.constant(words))
    np.testing.assert_allclose(found, slow_matrix(kind, regions, words), **CLOSE)


@kinds
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)], ids=str)
def test_nothing_against_something(kind: str, shape: tuple[int, int]) -> None:
    regions, words = (np.ones((count, 2, 5), np.float32) for count in shape)
    assert KINDS[kind][0](regions, words).shape == shape


@pytest.mark.parametrize("dim", [7, 300])
def test_equal_sets_tie_wherever_they_stand(dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # One image, and one caption of 3 words and one of 19, over and over, in blocks of several sizes.
    monkeypatch.setattr(sets, "_FEW", 0)
    monkeypatch.setattr(sets, "_ROWS", 37)
    monkeypatch.setattr(sets, "_COLUMNS", 331)
    generator = np.random.default_rng(dim)
    regions = np.repeat(generator.normal(size=(1, 6, dim)), 41, axis=0).astype(np.float32)
    words = np.repeat(generator.normal(size=(1, 19, dim)), 301, axis=0).astype(np.float32)
    short = generator.random(301) < 0.5
    words[short, 3:] = 0
    scores = region_word_scores(regions, words).numpy()
    assert len(np.unique(scores[:, short])) == len(np.unique(scores[:, ~short])) == 1


def test_sentences_are_scored_without_their_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "_FEW", 0)
    monkeypatch.setattr(sets, "_COLUMNS", 100)
    seen = []
    products = sets.all_products
    monkeypatch.setattr(sets, "all_products", lambda a, b: seen.append(tuple(b.shape[1:])) or products(a, b))
    words = np.zeros((40, 50, 5), np.float32)
    words[::2, :3], words[1, :50] = 1, 1
    region_word_scores(np.ones((2, 3, 5), np.float32), words)
    # (steps, sentences): the long one and one of 20 short ones; 19 short ones and 14 empty ones; 5 more.
    assert seen == [(50, 2), (3, 33), (1, 5)]


def test_scores_of_words_and_regions() -> None:
    regions, words = examples("max")
    products = item_products(words[:5], regions)
    assert products.shape == (5, 6, 4)
    np.testing.assert_allclose(products, np.einsum("ntd,nmd->ntm", words[:5], regions), rtol=1e-5, atol=1e-5)


def test_nan_stays_nan() -> None:
    # What nobody can rank must not look like a score.
    regions, words = (np.ones((2, 3, 5), np.float32) for _ in range(2))
    regions[1, 2, 0] = np.nan
    scores = region_word_scores(regions, words).numpy()
    assert np.isfinite(scores[0]).all() and np.isnan(scores[1]).all()


@pytest.mark.parametrize("reduce", ["max", "sum"])
@pytest.mark.parametrize(("count", "steps"), [(0, 2), (2, 0)], ids=["no regions", "no words"])
def test_sets_without_places_score_zero(reduce: str, count: int, steps: int) -> None:
    regions, words = np.ones((3, count, 4), np.float32), np.ones((3, steps, 4), np.float32)
    np.testing.assert_array_equal(region_word_scores(regions, words, reduce), np.zeros((3, 3)))
    np.testing.assert_array_equal(sets.region_word_pair_scores(regions, words, reduce), np.zeros(3))

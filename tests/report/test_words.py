"""Which words exchange places, which images show them, and principal components by hand and by the covariance."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.report.words import apart, choose_arithmetic, families, principal_components


def space(captions: list[list[str]], unknown: tuple[str, ...] = ()) -> SimpleNamespace:
    said = [Counter(word for text in texts for word in set(text.split())) for texts in captions]
    keys = [f"image {row}" for row in range(len(captions))]
    part = type("Part", (list,), {})(captions)
    part.captions_of, part.keys = captions.__getitem__, keys
    return SimpleNamespace(part=part, said=said, knows=lambda word: word not in unknown)


def test_an_image_shows_a_word_that_most_of_its_captions_say() -> None:
    captions = [["a red car"]] * 5 + [["a blue car", "a blue one", "old"]] * 3
    captions += [["a red car on a blue road"], ["a green car"], ["one dog"], ["one dog"], ["one cat"]]
    captions += [["a blue car", "a car", "another car"]]
    (found,) = families(space(captions))
    assert found.name == "colours"
    # Red and blue in one image tell neither; green is too rare; the last says blue once in three times.
    assert found.images == {"red": [0, 1, 2, 3, 4], "blue": [5, 6, 7]}


def test_families_come_by_their_images_and_words_must_be_known() -> None:
    captions = [["red circle"]] * 4 + [["blue circle"]] * 4 + [["square"]] * 4
    assert [family.name for family in families(space(captions))] == ["shapes", "colours"]
    assert [family.name for family in families(space(captions, ("circle",)))] == ["colours"]


def test_other_languages_take_frequent_words() -> None:
    captions = [["ein hund"]] * 3 + [["ein katze"]] * 3 + [["die strasse"]] * 3 + [["nichts"]]
    (found,) = families(space(captions))
    assert found.name == "frequent words"
    assert found.images == {"hund": [0, 1, 2], "katze": [3, 4, 5], "strasse": [6, 7, 8]}
    # Too few images are left without one of them.
    assert families(space(captions, ("katze",))) == []
    assert families(space([["ab"]] * 9)) == []


def test_examples_use_an_image_once_and_families_in_turns() -> None:
    captions = [["red circle"]] * 4 + [["blue circle"]] * 4 + [["square"]] * 4
    here = space(captions)
    found = families(here)
    chosen = choose_arithmetic(found, 6, 0, here)
    assert len(chosen) == len({key for key, _, _ in chosen}) == 6
    assert [minus in ("red", "blue") for _, minus, _ in chosen] == [False, True] * 3
    for key, minus, plus in chosen:
        said = here.said[here.part.keys.index(key)]
        assert said[minus] and not said[plus] and plus != minus
    assert choose_arithmetic(found, 6, 0, here) == chosen != choose_arithmetic(found, 6, 1, here)
    assert len(choose_arithmetic(found, 50, 0, here)) == 12
    assert choose_arithmetic([], 6, 0, here) == []


def test_a_word_is_not_exchanged_for_one_that_says_the_same() -> None:
    captions = [["a small dog"]] * 4 + [["a little dog"]] * 4 + [["a big dog"]] * 4
    part = space(captions)
    chosen = choose_arithmetic(families(part), 9, 0, part)
    assert chosen and all({minus, plus} != {"small", "little"} for _, minus, plus in chosen)
    only = space(captions[:8])
    assert choose_arithmetic(families(only), 9, 0, only) == []


def test_components_by_hand() -> None:
    # Along (3, 4) / 5 the points lie at -5, 0 and 5; across it at 1, -2 and 1. Variances 50 and 6.
    along, across = np.array([0.6, 0.8]), np.array([0.8, -0.6])
    embeddings = 7 + np.outer([-5, 0, 5], along) + np.outer([1, -2, 1], across)
    points, shares = principal_components(embeddings)
    np.testing.assert_allclose(points, [[-5, 1], [0, -2], [5, 1]], atol=1e-12)
    np.testing.assert_allclose(shares, [50 / 56, 6 / 56])


def test_variances_are_the_largest_of_the_covariance() -> None:
    embeddings = np.random.default_rng(2).normal(size=(40, 6)) * [1, 5, 2, 1, 3, 1]
    points, shares = principal_components(embeddings.astype(np.float32), 3)
    values = np.linalg.eigvalsh(np.cov(embeddings.T))[::-1]
    np.testing.assert_allclose(points.var(axis=0, ddof=1), values[:3], rtol=1e-5)
    np.testing.assert_allclose(shares, values[:3] / values.sum(), rtol=1e-5)
    mirrored, _ = principal_components(-embeddings.astype(np.float32), 3)
    np.testing.assert_allclose(mirrored, -points, atol=1e-5)


def test_equal_vectors_have_no_variance() -> None:
    points, shares = principal_components(np.ones((4, 3)))
    assert not points.any() and not shares.any()


@pytest.mark.parametrize(("rows", "count"), [(1, 1), (3, 3), (5, 0), (9, 5)])
def test_refuses_more_directions_than_there_are(rows: int, count: int) -> None:
    with raises_argument("count"):
        principal_components(np.random.default_rng(0).normal(size=(rows, 4)), count)


def test_refuses_what_is_not_finite() -> None:
    with pytest.raises(DataError, match="NaN"):
        principal_components(np.array([[0.0, 1.0], [np.nan, 1.0], [2.0, 2.0]]))


def test_labels_of_words_in_one_place_do_not_cover_each_other() -> None:
    places = apart(
        [(word, 50.0, y) for word, y in zip(("circle", "heart", "star", "ring"), (93, 93, 91, 30), strict=True)]
    )
    assert [(word, x) for word, x, _ in places] == [("circle", 50), ("heart", 50), ("star", 50), ("ring", 50)]
    heights = sorted(y for *_, y in places)
    assert min(b - a for a, b in zip(heights, heights[1:], strict=False)) >= 5 and heights[-1] == 93
    assert apart([("circle", 20.0, 50.0), ("ring", 80.0, 50.0)]) == [("circle", 20.0, 50.0), ("ring", 80.0, 50.0)]

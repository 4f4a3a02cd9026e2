"""What captions repeat of training captions, against a slow reference."""

from __future__ import annotations

import functools
import math
from itertools import pairwise

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.systems.captions.training_captions import TrainingCaptions
from vsemb.text.normalize import words_of

TRAIN = [
    "A dog runs.",
    "two dogs run on the grass",
    "",
    "a dog runs",
    "The man's dog, running!",
    "dog dog dog",
]


def test_novelty_compares_words() -> None:
    train = TrainingCaptions(TRAIN)
    assert train.novelty(["the man's dog running"]) == 0
    assert train.novelty(["a dog runs .", "A DOG RUNS", "a dog runs fast", "dog a runs"]) == 50
    assert train.vocabulary == 12
    assert train.novelty([""]) == 0  # There is a training caption without words.


def slow_similarity(one: str, other: str, train: list[str]) -> float:
    @functools.cache
    def features(text: str) -> list[object]:
        (words,) = words_of([text])
        return [*words, *pairwise(words)]

    def vector(text: str) -> dict[object, float]:
        counted = features(text)
        return {
            feature: counted.count(feature)
            * (1 + math.log(len(train) / max(sum(feature in features(each) for each in train), 1)))
            for feature in counted
        }

    first, second = vector(one), vector(other)
    norms = math.hypot(*first.values()) * math.hypot(*second.values())
    return sum(first[each] * second.get(each, 0.0) for each in first) / norms if norms else 0.0


@pytest.mark.parametrize("caption", ["a dog", "dogs on grass", "dog dog", "the man's dog, running!", "a cat runs"])
def test_nearest_equals_a_slow_reference(caption: str) -> None:
    (row,), (similarity,) = TrainingCaptions(TRAIN).nearest([caption])
    slow = [slow_similarity(caption, text, TRAIN) for text in TRAIN]
    assert similarity == pytest.approx(max(slow), rel=1e-12)
    assert slow[row] == pytest.approx(max(slow), rel=1e-12)


def test_nearest_takes_the_first_and_nothing_where_no_word_is_shared() -> None:
    train = TrainingCaptions(TRAIN)
    nearest = train.nearest(["a dog runs", "cats", "", "Dog dog dog"])
    assert nearest.rows.tolist() == [0, -1, -1, 5]
    np.testing.assert_allclose(nearest.similarities, [1, 0, 0, 1], rtol=1e-12)
    assert (nearest.similarities <= 1).all()
    assert train.nearest([]).rows.shape == (0,)
    assert TrainingCaptions(["..."]).nearest(["a dog"]).rows.tolist() == [-1]


@pytest.mark.parametrize("wrong", [[], "a dog"])
def test_refusals(wrong) -> None:
    with raises_argument("captions"):
        TrainingCaptions(wrong)
    with raises_argument("captions"):
        TrainingCaptions(["a"]).novelty(wrong)

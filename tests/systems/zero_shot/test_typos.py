"""Typing errors: as many as asked for, of all kinds, the same for the same seed."""

from __future__ import annotations

import string

import pytest

from tests.raising import raises_argument
from vsemb.systems.zero_shot.recognition import mistyped

TEXT = "This small bird has a bright red crown, a short pointed bill and two white wing bars. " * 60


def test_nothing_happens_to_no_characters() -> None:
    assert mistyped(["a bird", "", "ÄÖ"], 0.0) == ["a bird", "", "ÄÖ"]


@pytest.mark.parametrize("share", [0.05, 0.2, 1.0])
def test_the_share_of_characters_that_is_hit(share) -> None:
    # Of a single character a replacement and a doubling are seen: half of the errors.
    changed = sum(text != "7" for text in mistyped(["7"] * 20000, share)) / 20000
    assert abs(changed - share / 2) < 0.015  # four deviations of 20,000 draws are 0.014 at most
    # In a long text deletions and doublings are equally frequent.
    (typed,) = mistyped([TEXT], share, seed=4)
    assert typed != TEXT and abs(len(typed) - len(TEXT)) < 0.03 * len(TEXT)


def test_all_kinds_of_errors_happen() -> None:
    # A share of 1 hits the only character: 'x' is replaced, doubled, left out (then kept) or swapped (kept).
    found = {text for seed in range(200) for text in mistyped(["X"], 1.0, seed)}
    assert found <= {"X", "XX", *string.ascii_lowercase} and {"X", "XX"} < found
    pairs = {text for seed in range(200) for text in mistyped(["ab"], 0.3, seed)}
    assert {"ab", "ba", "a", "b", "aab", "abb"} <= pairs


def test_a_replaced_letter_is_another_one() -> None:
    singles = {text for seed in range(2000) for text in mistyped(["q"], 1.0, seed)}
    assert {text for text in singles if len(text) == 1} == set(string.ascii_lowercase)
    # 'q' itself comes from deletions and swaps: as often as not.
    kept = sum(mistyped(["q"], 1.0, seed) == ["q"] for seed in range(2000))
    assert 900 < kept < 1100


def test_no_text_becomes_empty() -> None:
    assert all(text for seed in range(50) for text in mistyped(["a", "ab", "abc"], 1.0, seed))
    assert mistyped([""], 1.0) == [""]


def test_the_seed_and_the_place_decide() -> None:
    texts = ["a small bird with a red head"] * 3
    once = mistyped(texts, 0.3, seed=1)
    assert once == mistyped(texts, 0.3, seed=1) != mistyped(texts, 0.3, seed=2)
    assert len(set(once)) == 3
    # Texts that come behind change nothing.
    assert mistyped(texts[:2], 0.3, seed=1) == once[:2]


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_shares_out_of_range(share) -> None:
    with raises_argument("share"):
        mistyped(["a"], share)
